"""What a dashboard knows: facts of every rank, kept up to date, and numbers over time."""
