"""JSON, CSV and folders, read strictly."""
