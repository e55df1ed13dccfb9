"""Records, tables and every hyperparameter: what exists, without torch and without Prefect."""
