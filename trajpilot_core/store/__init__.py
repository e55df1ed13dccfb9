"""The artifact store: immutable content-named files and one manifest, written last."""
