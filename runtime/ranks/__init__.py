"""What runs in a rank process: its mailbox, its control thread, its streams, its process groups, its actors."""
