"""Messages between processes: what they are, how they are encoded, the links they travel by, and the loop."""
