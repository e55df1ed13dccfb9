"""Prefect tasks: thin shells over the declared stages."""
