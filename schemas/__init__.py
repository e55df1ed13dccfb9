"""Records, tables and every hyperparameter; imports neither torch nor Prefect."""
