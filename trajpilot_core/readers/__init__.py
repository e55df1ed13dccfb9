"""One reader per corpus, all to the same records."""
