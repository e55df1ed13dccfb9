"""The world before any file: procedures, head motion, look."""
