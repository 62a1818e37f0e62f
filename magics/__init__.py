"""What the notebook types: `%mesh`, `%%on_mesh`, their grammar and their completion."""
