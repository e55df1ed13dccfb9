"""What a run would do and why, from looks alone."""
