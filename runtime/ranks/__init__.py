"""What runs in a rank process: its mailbox, its control thread, its streams, its interrupts, its actors."""
