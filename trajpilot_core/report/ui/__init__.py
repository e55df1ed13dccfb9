"""Figures and summaries for the Prefect UI."""
