"""A small corpus with its models and every row, predicted once for all tests that only read them."""

import pytest
from rows_fixture import make_rows, of_one_horizon


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return make_rows(tmp_path_factory.mktemp("scorers"))


@pytest.fixture(scope="session")
def quick(made):
    return of_one_horizon(made)
