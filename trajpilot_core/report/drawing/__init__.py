"""Charts as data, and how matplotlib draws them: on pages, in the Prefect UI and in the paper."""
