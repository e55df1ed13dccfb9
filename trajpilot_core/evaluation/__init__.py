"""Metrics, intervals and the rows of the tables."""
