"""Running one stage: compute what is missing and commit one manifest."""
