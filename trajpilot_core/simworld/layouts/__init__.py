"""The files of each corpus, written from a world."""
