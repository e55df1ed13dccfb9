"""A small corpus with predictions of two seeds and their metrics, which several tests of the evaluation read."""

import pyarrow as pa
import pytest
from right_predictions import predictions_of
from synthetic_corpus import corpus, predictions

from schemas.config import EvaluationConfig
from schemas.results import Metric
from trajpilot_core.evaluation.prediction_arrays import Predictions
from trajpilot_core.evaluation.tables import metric_rows


@pytest.fixture(scope="session")
def small_world() -> dict[str, pa.Table]:
    return corpus(n_train=6, n_test=12, n_segments=10)


@pytest.fixture(scope="session")
def table(small_world: dict[str, pa.Table]) -> pa.Table:
    return predictions(small_world, seeds=(0, 1))


@pytest.fixture(scope="session")
def blocks(table: pa.Table) -> Predictions:
    return predictions_of(table)


@pytest.fixture(scope="session")
def metrics(blocks: Predictions) -> list[Metric]:
    return metric_rows(blocks, "egoexo4d", EvaluationConfig(bootstrap=300))
