"""A metric is one record: a toy metric is found in tables, checks, ceilings and take scores."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import get_args

import numpy as np
import pyarrow.compute as pc
import pytest
from right_predictions import predictions_of
from synthetic_corpus import corpus, predictions

from schemas.config import EvaluationConfig
from schemas.events import OutcomeMetric
from trajpilot_core.evaluation.ceiling import row_scores
from trajpilot_core.evaluation.checks import identity_checks
from trajpilot_core.evaluation.tables import metric_rows, take_clusters
from trajpilot_core.metrics import METRICS, of_table, with_ceiling
from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS
from trajpilot_core.metrics.shots import SHOT_METRICS
from trajpilot_core.metrics.windows import mid_recall
from trajpilot_core.report.pose_page import PoseResults
from trajpilot_core.studies.paper_tables.labels.scored import ACTION_SCORES, SHOT_SCORES

CFG = EvaluationConfig(bootstrap=100)
TOY = MetricSpec(
    id="M@2",
    description="middle steps with the truth among two answers",
    values=lambda labels, _, rankings: mid_recall(labels, rankings, 2),
    table="open",
    shortest=4,
    at_most=("M@5",),
    reached=lambda labels, best: mid_recall(labels, best.ranking, 2),
    expected=lambda best: 100.0 * best.chance[..., :2].sum(axis=2)[:, 1:-1].mean(1),
)


@contextmanager
def with_metric(spec: MetricSpec) -> Iterator[None]:
    """Add a metric to the list for a moment, as a record in a file and a line in `metrics/__init__.py` would."""
    METRICS[spec.id] = spec
    try:
        yield
    finally:
        del METRICS[spec.id]


@pytest.fixture(scope="module")
def arrays():
    return predictions_of(predictions(corpus(n_train=6, n_test=8, n_segments=8), {"no_traj": 0.3, "oracle": 0.6}))


def test_a_metric_of_one_record_is_scored_where_it_is_defined(arrays):
    with with_metric(TOY):
        rows = [row for row in metric_rows(arrays, "toy", take_clusters(arrays), CFG) if row.metric == "M@2"]
        scores = row_scores(arrays)
        assert "M@2" in of_table("open")
        assert "M@2" in with_ceiling()
    horizons = {row.horizon for row in rows}
    assert 3 not in horizons, "windows of three steps are shorter than it asks for"
    assert 4 in horizons
    assert None not in horizons, "a mean over horizons needs all of them"
    assert "M@2" in pc.unique(scores["metric"]).to_pylist()
    assert "M@2" not in METRICS


def test_a_metric_above_its_bound_fails_the_identity_checks(arrays):
    wrong = replace(TOY, values=lambda labels, _, rankings: np.full(len(labels), 100.0))
    with with_metric(wrong):
        rows = metric_rows(arrays, "toy", take_clusters(arrays), CFG)
        values: dict = {}
        for row in rows:
            if row.reference is None:
                values.setdefault((row.variant, row.seed, row.horizon, row.pooling), {})[row.metric] = row.value
        found = {judgement.check: judgement.verdict for judgement in identity_checks(values)}
    assert found["identity: M@2 is at most M@5"] == "fails"
    assert found["identity: M@1 is at most M@5"] == "holds"


def test_every_table_of_scores_names_metrics_of_the_one_list():
    """The planted fault is a metric that a stage prints and nobody lists."""
    named = {
        "windows": {*METRICS, *PoseResults((), (), (), is_simulated=False, is_closed=True).names},
        "actions": set(ACTION_SCORES.metrics.values()),
        "shots": {*get_args(OutcomeMetric), *SHOT_SCORES.metrics.values()},
    }
    listed = {"windows": set(METRICS), "actions": set(EPIC_METRICS), "shots": set(SHOT_METRICS)}
    for scored, family in listed.items():
        assert named[scored] <= family, scored
        assert not {*named[scored], "a metric that nobody lists"} <= family
    assert len(set.union(*listed.values())) == sum(map(len, listed.values())), "a name means one thing"
