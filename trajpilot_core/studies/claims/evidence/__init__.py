"""What the tables of the claims say: read, with intervals over takes and seeds."""
