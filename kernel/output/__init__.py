"""What ranks print: cut into lines, put in one order, and told once where it is equal."""
