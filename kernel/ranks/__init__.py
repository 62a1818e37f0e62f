"""What runs on a rank: the actor that takes cells, the shell they run in, its names, loop and comms."""
