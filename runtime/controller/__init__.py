"""What the controlling process keeps of its meshes: who lives, who listens, what is to be done about the dead."""
