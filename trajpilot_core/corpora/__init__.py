"""Corpora: from the files of each data set to the same records."""
