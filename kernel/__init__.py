"""A cell runs on a rank and comes back: capture, folding, results, restarts, the debugger."""
