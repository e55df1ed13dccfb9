"""Head motion: from pose streams to 16 relative motions a segment."""
