"""Every stage of the pipeline, declared once."""
