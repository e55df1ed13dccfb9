"""EgoPER."""
