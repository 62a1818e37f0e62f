"""What cells leave on ranks, and end with: described, sized, compared, and shown as the rows of a result."""
