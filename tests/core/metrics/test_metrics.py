"""Metrics against recorded cases and against references that a reader can check by eye."""

import json

import numpy as np
import pytest
from checkout import DATA
from hypothesis import given, settings
from hypothesis import strategies as st

from trajpilot_core.metrics import METRICS, window_values
from trajpilot_core.metrics.windows import (
    edit_distance,
    full_exact,
    mean_accuracy,
    mid_exact,
    mid_recall,
    sequence_iou,
    step_recall,
)

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
            "MSeq": mid_exact(labels, decoded).mean(),
            "mIoU_full_per_sample": sequence_iou(labels, decoded).mean(),
            "ED_steps": edit_distance(labels, decoded).mean(),
        }
        assert got == pytest.approx({name: want[name] for name in got}, abs=1e-6), case["name"]
        assert sequence_iou(labels, decoded) / 100 == pytest.approx(want["per_sample_IoU"], abs=1e-6)


def test_four_windows_worked_by_hand() -> None:
    """pred 123, 445, 213, 012 against 123, 455, 123, 345: SR 25, mAcc 50, set IoU 1 1 1 0, ED 0 1 2 3."""
    labels = np.array([[1, 2, 3], [4, 5, 5], [1, 2, 3], [3, 4, 5]])
    decoded = np.array([[1, 2, 3], [4, 4, 5], [2, 1, 3], [0, 1, 2]])
    assert full_exact(labels, decoded).tolist() == [100, 0, 0, 0]
    assert mean_accuracy(labels, decoded).mean() == pytest.approx(50)
    assert sequence_iou(labels, decoded).tolist() == [100, 100, 100, 0]
    assert edit_distance(labels, decoded).tolist() == [0, 1, 2, 3]


def test_edit_distance_has_no_transposition_and_is_not_divided() -> None:
    assert edit_distance(np.array([[1, 2, 3, 4]]), np.array([[2, 1, 3, 4]])).tolist() == [2]
    assert edit_distance(np.array([[1] * 8]), np.array([[2] * 8])).tolist() == [8]
    labels = np.array([[1, 2, 3]])
    assert mid_recall(labels, np.array([[[9], [2], [9]]]), 1).tolist() == [100], "Start and Goal do not count"
    assert step_recall(labels, np.array([[[9], [2], [9]]]), 1).tolist() == [pytest.approx(100 / 3)]


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
    checked = 0
    for seed, (horizon, vocabulary) in enumerate((h, v) for h in range(3, 9) for v in (2, 4, 8, 30)):
        labels, decoded, ranked = drawn(seed, horizon, 420, vocabulary)
        got = window_values(labels, decoded, ranked)
        for n in range(len(labels)):
            want = reference(labels[n].tolist(), decoded[n].tolist(), ranked[n].tolist())
            assert dict(zip(NAMES, got[n].tolist(), strict=True)) == pytest.approx(want, abs=1e-9)
            checked += 1
    assert checked >= 10_000


windows = st.tuples(st.integers(0, 2**32 - 1), st.integers(3, 8), st.integers(1, 24), st.integers(2, 9))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(windows, st.integers(1, 8), st.randoms(use_true_random=False))
def test_no_value_depends_on_order_or_batch(shape: tuple[int, int, int, int], batch: int, random: object) -> None:
    labels, decoded, ranked = drawn(*shape)
    whole = window_values(labels, decoded, ranked)
    order = np.random.default_rng(shape[0]).permutation(len(labels))
    assert np.array_equal(window_values(labels[order], decoded[order], ranked[order]), whole[order])
    parts = [
        window_values(labels[i : i + batch], decoded[i : i + batch], ranked[i : i + batch])
        for i in range(0, len(labels), batch)
    ]
    assert np.array_equal(np.concatenate(parts), whole)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(windows)
def test_bounds_hold_for_every_window(shape: tuple[int, int, int, int]) -> None:
    labels, decoded, ranked = drawn(*shape)
    got = dict(zip(NAMES, window_values(labels, decoded, ranked).T, strict=True))
    of_rate = [("SR", larger) for larger in METRICS["SR"].at_most]
    assert len(of_rate) == 3
    pairs = (("M@1", "M@5"), ("F@1", "F@5"), ("FSeq", "MSeq"), ("A@1", "A@5"), ("ASeq", "MSeq"))
    for smaller, larger in (*pairs, *of_rate):
        assert (got[smaller] <= got[larger] + 1e-9).all(), (smaller, larger)
    assert ((got["ED"] >= 0) & (got["ED"] <= shape[1])).all()
    assert all(((got[name] >= 0) & (got[name] <= 100)).all() for name in NAMES if name != "ED")


@settings(derandomize=True, deadline=None, max_examples=60)
@given(windows)
def test_renaming_the_labels_changes_nothing(shape: tuple[int, int, int, int]) -> None:
    """A bitwise IoU, as some released code computes it, fails here."""
    labels, decoded, ranked = drawn(*shape)
    names = np.random.default_rng(1).permutation(1000)[: shape[3]]
    renamed = np.where(ranked < 0, -1, names[ranked])
    assert np.allclose(window_values(names[labels], names[decoded], renamed), window_values(labels, decoded, ranked))
