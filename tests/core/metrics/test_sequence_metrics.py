"""Tables of sequences read the decoded sequence of one window alone, and keep the two meanings of mAcc apart."""

from dataclasses import replace

import numpy as np

from trajpilot_core.metrics import METRICS, of_table
from trajpilot_core.metrics.base import MetricSpec

LABELS = np.array([[1, 2, 3, 4], [1, 2, 3, 4], [5, 5, 6, 7]])
DECODED = np.array([[1, 2, 3, 4], [9, 2, 3, 9], [5, 6, 5, 8]])
RANKED = np.stack([DECODED, LABELS], axis=2)
"""The best label of each step is the decoded one, the truth stands second."""
SEQUENCE = of_table("sequence")


def test_no_table_names_a_plain_macc() -> None:
    assert SEQUENCE == ("SR", "Mid mAcc", "Full mAcc", "mIoU", "ED")
    assert tuple(METRICS) == ("M@1", "M@5", "MSeq", "F@1", "F@5", "FSeq", *SEQUENCE, "A@1", "A@5", "ASeq")


def reads_the_ranking(spec: MetricSpec) -> bool:
    other = RANKED[..., ::-1]
    return not np.array_equal(spec.values(LABELS, DECODED, RANKED), spec.values(LABELS, DECODED, other))


def test_a_metric_reads_what_it_declares() -> None:
    wrong = np.full_like(RANKED, 99)
    for spec in METRICS.values():
        changes = not np.array_equal(spec.values(LABELS, DECODED, RANKED), spec.values(LABELS, DECODED, wrong))
        assert changes == (spec.reads == "ranking"), spec.id


def depends_on_the_batch(spec: MetricSpec) -> bool:
    alone = np.concatenate([spec.values(LABELS[n : n + 1], DECODED[n : n + 1], RANKED[n : n + 1]) for n in range(3)])
    return not np.allclose(spec.values(LABELS, DECODED, RANKED), alone)


def test_it_reads_the_decoded_sequence_of_its_own_window() -> None:
    """The planted faults: the best label of every step replaces the sequence; and the sets of labels of
    all windows together, as released planners compute an overlap."""

    def of_the_batch(labels: np.ndarray, decoded: np.ndarray, _: np.ndarray) -> np.ndarray:
        true, guessed = set(labels.flatten().tolist()), set(decoded.flatten().tolist())
        return np.full(len(labels), 100.0 * len(true & guessed) / len(true | guessed))

    for name in SEQUENCE:
        assert not reads_the_ranking(METRICS[name]), name
        assert not depends_on_the_batch(METRICS[name]), name
    best = replace(METRICS["SR"], values=lambda labels, _, ranks: 100.0 * (ranks[..., 0] == labels).all(axis=1))
    assert reads_the_ranking(best)
    assert depends_on_the_batch(replace(METRICS["mIoU"], values=of_the_batch))
