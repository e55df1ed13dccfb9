"""What is claimed, by which rule it is judged, and what the figures make of it."""
