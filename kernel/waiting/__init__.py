"""Who waits for whom, and where ranks are: hangs, ranks that come late, collectives, stacks."""
