"""Metrics against recorded cases and a plain reference; each reads what it declares, of one window alone."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import get_args

import numpy as np
import pyarrow.compute as pc
import pytest
from checkout import DATA
from hypothesis import given
from hypothesis import strategies as st
from right_predictions import predictions_of
from synthetic_corpus import corpus, predictions

from schemas.config import EvaluationConfig
from schemas.events import OutcomeMetric
from trajpilot_core.evaluation.ceiling import row_scores
from trajpilot_core.evaluation.tables import metric_rows
from trajpilot_core.metrics import METRICS, of_table, window_values, with_ceiling
from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS
from trajpilot_core.metrics.shots import SHOT_METRICS
from trajpilot_core.metrics.windows import edit_distance, full_exact, mean_accuracy, mid_recall, sequence_iou
from trajpilot_core.report.pose_page import PoseResults
from trajpilot_core.studies.paper_tables.labels.scored import ACTION_SCORES, SHOT_SCORES

GOLDEN = DATA / "golden_metrics.json"
NAMES = list(METRICS)


@pytest.fixture(scope="module")
def golden() -> list[dict]:
    return json.loads(GOLDEN.read_text())


def test_every_recorded_case_of_our_definition_is_reproduced(golden: list[dict]) -> None:
    assert len(golden) == 6
    for case in golden:
        labels, decoded, want = np.array(case["gt"]), np.array(case["pred"]), case["expected"]["recommended_definition"]
        got = {
            "SR_full": full_exact(labels, decoded).mean(),
            "mAcc_full": mean_accuracy(labels, decoded).mean(),
            "mAcc_mid": mid_recall(labels, decoded[..., None], 1).mean(),
            "MSeq": METRICS["MSeq"].values(labels, decoded, decoded[..., None]).mean(),
            "mIoU_full_per_sample": sequence_iou(labels, decoded).mean(),
            "ED_steps": edit_distance(labels, decoded).mean(),
        }
        assert got == pytest.approx({name: want[name] for name in got}, abs=1e-6), case["name"]
        assert sequence_iou(labels, decoded) / 100 == pytest.approx(want["per_sample_IoU"], abs=1e-6)


def reference(labels: list[int], decoded: list[int], ranked: list[list[int]]) -> dict[str, float]:
    """The definitions, one window at a time, in plain Python."""
    horizon, mids = len(labels), range(1, len(labels) - 1)
    rows = [[i + j for j in range(horizon + 1)] for i in range(horizon + 1)]
    for i in range(1, horizon + 1):
        for j in range(1, horizon + 1):
            cost = labels[i - 1] != decoded[j - 1]
            rows[i][j] = min(rows[i - 1][j] + 1, rows[i][j - 1] + 1, rows[i - 1][j - 1] + cost)
    hits = [sum(labels[t] in ranked[t][:k] for t in mids) / len(mids) for k in (1, 5)]
    all_hits = [sum(labels[t] in ranked[t][:k] for t in range(horizon)) / horizon for k in (1, 5)]
    later = [sum(labels[t] in ranked[t][:k] for t in range(1, horizon)) / (horizon - 1) for k in (1, 5)]
    exact = float(labels == decoded)
    return {
        "M@1": 100 * hits[0],
        "M@5": 100 * hits[1],
        "MSeq": 100 * float(labels[1:-1] == decoded[1:-1]),
        "F@1": 100 * all_hits[0],
        "F@5": 100 * all_hits[1],
        "FSeq": 100 * exact,
        "SR": 100 * exact,
        "Mid mAcc": 100 * sum(labels[t] == decoded[t] for t in mids) / len(mids),
        "Full mAcc": 100 * sum(labels[t] == decoded[t] for t in range(horizon)) / horizon,
        "mIoU": 100 * len(set(labels) & set(decoded)) / len(set(labels) | set(decoded)),
        "ED": float(rows[-1][-1]),
        "A@1": 100 * later[0],
        "A@5": 100 * later[1],
        "ASeq": 100 * float(labels[1:] == decoded[1:]),
    }


def drawn(seed: int, horizon: int, n: int, vocabulary: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random windows with many near misses and repeated labels; (N, H), (N, H), (N, H, 5)."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(vocabulary, size=(n, horizon))
    other = rng.integers(vocabulary, size=(n, horizon))
    decoded = np.where(rng.random((n, horizon)) < rng.random((n, 1)), labels, other)
    order = rng.permuted(np.broadcast_to(np.arange(vocabulary), (n, horizon, vocabulary)), axis=2)
    ranked = np.full((n, horizon, 5), -1)
    ranked[..., : min(5, vocabulary)] = order[..., :5]
    return labels, decoded, ranked


def test_ten_thousand_random_windows_agree_with_the_plain_reference() -> None:
    """The reference sees one window alone and compares labels only: neither batch, order nor names can matter."""
    for seed, (horizon, vocabulary) in enumerate((h, v) for h in range(3, 9) for v in (2, 4, 8, 30)):
        labels, decoded, ranked = drawn(seed, horizon, 420, vocabulary)
        got = window_values(labels, decoded, ranked)
        for n in range(len(labels)):
            want = reference(labels[n].tolist(), decoded[n].tolist(), ranked[n].tolist())
            assert dict(zip(NAMES, got[n].tolist(), strict=True)) == pytest.approx(want, abs=1e-9)


windows = st.tuples(st.integers(0, 2**32 - 1), st.integers(3, 8), st.integers(1, 24), st.integers(2, 9))


@given(windows)
def test_bounds_hold_for_every_window(shape: tuple[int, int, int, int]) -> None:
    labels, decoded, ranked = drawn(*shape)
    got = dict(zip(NAMES, window_values(labels, decoded, ranked).T, strict=True))
    pairs = [("M@1", "M@5"), ("F@1", "F@5"), ("FSeq", "MSeq"), ("A@1", "A@5"), ("ASeq", "MSeq")]
    for smaller, larger in [*pairs, *(("SR", larger) for larger in ("Mid mAcc", "Full mAcc", "mIoU"))]:
        assert (got[smaller] <= got[larger] + 1e-9).all(), (smaller, larger)
    assert ((got["ED"] >= 0) & (got["ED"] <= shape[1])).all()
    assert all(((got[name] >= 0) & (got[name] <= 100)).all() for name in NAMES if name != "ED")


def test_no_table_names_a_plain_macc() -> None:
    assert of_table("sequence") == ("SR", "Mid mAcc", "Full mAcc", "mIoU", "ED")


# A metric is one record: a toy metric is found in tables, ceilings and take scores.


CFG = EvaluationConfig(bootstrap=100)
TOY = MetricSpec(
    id="M@2",
    description="middle steps with the truth among two answers",
    values=lambda labels, _, rankings: mid_recall(labels, rankings, 2),
    table="open",
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
        rows = [row for row in metric_rows(arrays, "toy", CFG) if row.metric == "M@2"]
        scores = row_scores(arrays)
        assert "M@2" in of_table("open")
        assert "M@2" in with_ceiling()
    assert {3, 4, None} <= {row.horizon for row in rows}
    assert "M@2" in pc.unique(scores["metric"]).to_pylist()
    assert "M@2" not in METRICS


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
