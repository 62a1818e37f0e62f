"""The text of cells: made ready to run, remembered, and what it does as far as its names tell."""
