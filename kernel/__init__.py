"""A cell runs on ranks and comes back: the mesh, a run, what drives it to its end; the rest in folders by subject."""
