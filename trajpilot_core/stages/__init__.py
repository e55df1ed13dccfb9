"""The stages of the pipeline, one file each, and what runs them. The list of all is `trajpilot_core/pipeline.py`."""
