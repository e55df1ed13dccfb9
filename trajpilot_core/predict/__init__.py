"""A plan for a video of one's own, from the models that a run has trained. No Prefect."""
