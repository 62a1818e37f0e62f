"""The stop button: what each press means, and ranks that do not hear it."""
