"""Running one stage: what is missing is computed, and one manifest is committed."""
