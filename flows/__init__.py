"""Prefect flows: the pipeline end to end, and one flow per stage."""
