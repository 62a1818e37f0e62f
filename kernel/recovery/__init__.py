"""What is done to ranks that should not go on as they are: freed, ended, replaced, and brought up to date."""
