"""A plan for a user's own video, from the models that a run has trained. No Prefect."""
