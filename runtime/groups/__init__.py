"""Process groups of torch on a rank: made, met in, renewed, broken off, and what they have issued."""
