"""A small corpus with its models and every row, predicted once for all tests that only read them."""

from dataclasses import replace

import pytest
from planning_fixture import model_files, planning_data
from rows_fixture import SEEDS, first_seed, predicted, scorers_of


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Data, model files, scorers, and the tables of `predicted`."""
    data = planning_data()
    files = model_files(data, seeds=SEEDS)
    scorers = scorers_of(data, files, tmp_path_factory.mktemp("scorers"), threshold=0.5)
    return data, files, scorers, predicted(data, files, scorers)


@pytest.fixture(scope="session")
def quick(made):
    """The same corpus and models, predicted with the first seed alone, at one horizon."""
    data, files, scorers, _ = made
    data, files = replace(data, windows={3: data.windows[3]}), first_seed(files)
    return data, files, scorers, predicted(data, files, scorers)
