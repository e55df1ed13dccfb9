"""Training windows by their endpoints."""
