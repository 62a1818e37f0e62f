"""How errors of ranks are told: taken apart on the rank, put together into one story in the notebook."""
