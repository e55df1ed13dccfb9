"""The work itself: plain functions over typed records. Imports no Prefect."""
