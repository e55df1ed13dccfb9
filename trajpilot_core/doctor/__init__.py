"""Health checks of a machine, a root and a corpus."""
