"""What every corpus becomes: labels, segments, windows, splits."""
