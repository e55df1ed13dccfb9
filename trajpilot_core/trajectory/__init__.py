"""Head poses and the relative motions of a segment."""
