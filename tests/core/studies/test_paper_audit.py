"""The contradictions are recomputed: numbers that agreed would be told so."""

from collections.abc import Mapping

import pytest
from paper_audit.finding import Finding, falls, fixed, rises, signed
from paper_audit.numbers import (
    ANTICIPATION,
    COARSE,
    COARSE_OVERALL,
    GOAL_MASKED,
    GOAL_SEEN,
    TEXT,
    NumberKey,
    Paper,
    published,
)
from paper_audit.open_vocabulary import implied_endpoint, opened_gain
from paper_audit.statements import STATEMENTS, recompute
from paper_audit.windows import fitting_counts, implied_weights, sample_mean, stride_one

from trajpilot_core.paper.published import ATOMIC, HORIZONS

PAPER = published()
FOUND = recompute(PAPER)
VERDICTS = {
    "contradicted": {1, 2, 3, 5, 6, 7, 8, 9, 12, 13, 15, 22, 23, 24},
    "strained": {4, 10, 11, 18, 21, 25},
    "textual": {14, 16, 17, 19, 20},
}


def changed(values: Mapping[NumberKey, object]) -> Paper:
    """The paper with some numbers replaced."""
    paper = PAPER
    for key, value in values.items():
        paper = paper.with_value(key, str(value))
    return paper


def again(number: int, values: Mapping[NumberKey, object]) -> Finding:
    """One finding of a paper with other numbers."""
    return STATEMENTS[number - 1](changed(values))


def test_the_findings_are_numbered_without_a_gap() -> None:
    assert list(FOUND) == list(range(1, 26))


@pytest.mark.parametrize("verdict", sorted(VERDICTS))
def test_the_verdicts_are_those_that_the_numbers_give(verdict: str) -> None:
    assert {number for number, finding in FOUND.items() if finding.verdict == verdict} == VERDICTS[verdict]


def at(file: str, row: str, metric: str, dataset: str = "") -> dict[int, NumberKey]:
    return {h: NumberKey(file, row, metric, h, dataset) for h in HORIZONS}


def like(left: dict[int, NumberKey], right: dict[int, NumberKey], plus: float = 0.0) -> dict[NumberKey, object]:
    """Give every number of `left` the value of `right` and a constant."""
    return {left[h]: round(PAPER.value(*right[h]) + plus, 2) for h in left}


RANDOM = {
    row: NumberKey("retrieval_headroom", row, "cosine_local", 5) for row in ("top_1", "top_5", "top_16", "top_64")
}
ORACLE_ABOVE = {
    **like(at(ATOMIC, "oracle", "M@1"), at(ATOMIC, "scorer", "M@1"), 10.0),
    **like(at(ATOMIC, "oracle", "M@5"), at(ATOMIC, "scorer", "M@5"), 1.0),
    **like(at(ATOMIC, "oracle", "MSeq"), at(ATOMIC, "scorer", "MSeq"), 1.0),
    **like(at(ATOMIC, "oracle", "F@1"), at(ATOMIC, "scorer", "F@1"), 1.0),
    **like(at(ATOMIC, "oracle", "F@5"), at(ATOMIC, "scorer", "F@5"), 1.0),
    **like(at(ATOMIC, "oracle", "FSeq"), at(ATOMIC, "scorer", "FSeq"), 1.0),
    **{
        key: value
        for dataset in ("keystep", "goalstep", "egoper")
        for metric, plus in (("SR", 1.0), ("mAcc", 1.0), ("mIoU", 1.0), ("ED", -0.01))
        for key, value in like(
            at(COARSE, "oracle", metric, dataset), at(COARSE, "scorer", metric, dataset), plus
        ).items()
    },
    NumberKey(TEXT, "pool_oracle", "M@1", 5, "egoexo4d_atomic"): "30.0",
}
EQUAL_NO_TRAJ = {
    key: value
    for metric, future in (("M@1", "Future R@1"), ("M@5", "Future R@5"), ("MSeq", "Future Seq"))
    for key, value in like(at(ATOMIC, "no_traj", metric), at(GOAL_SEEN, "no_dropout_no_traj", future)).items()
}
ONE_CHECKPOINT = {
    key: value
    for metric in ("Future R@1", "Future R@5", "Future Seq")
    for key, value in like(at(ANTICIPATION, "oracle", metric), at(GOAL_MASKED, "no_dropout_traj", metric)).items()
}
ENDPOINTS_GIVEN = {
    NumberKey(ATOMIC, row, "F@1", h): round(((h - 2) * PAPER.value(ATOMIC, row, "M@1", h) + 2 * 100) / h, 2)
    for row in ("no_traj", "scorer", "oracle")
    for h in HORIZONS
}
FLIPS: list[tuple[int, dict[NumberKey, object], str]] = [
    (1, like(at(ATOMIC, "qwen_sft_llm", "M@1"), at(ATOMIC, "scorer", "M@1"), -23.0), "holds"),
    (2, {NumberKey(ATOMIC, "scorer", "M@1", 3): "30.00", NumberKey(ATOMIC, "scorer", "M@1", 8): "33.00"}, "holds"),
    (3, ORACLE_ABOVE, "holds"),
    (4, {NumberKey(TEXT, "scorer", "fallback_share", 3, "egoexo4d_atomic"): "95"}, "contradicted"),
    (4, {NumberKey(TEXT, "scorer", "fallback_share", 3, "egoexo4d_atomic"): "50"}, "holds"),
    (5, {NumberKey(COARSE_OVERALL, "no_traj", "SR", None, "egoper"): "70.41"}, "holds"),
    (6, {NumberKey(ATOMIC, "scorer", "F@1", 3): "33.30"}, "holds"),
    (7, {NumberKey(ANTICIPATION, "qwen_sft_llm", "Future Seq", 3): "11.79"}, "holds"),
    (8, ONE_CHECKPOINT, "holds"),
    (9, EQUAL_NO_TRAJ, "holds"),
    (10, {NumberKey("motivation", "text", "val_l1", 1): "0.4763"}, "holds"),
    (10, {NumberKey("motivation", "text", "val_l1", 1): "0.4670"}, "contradicted"),
    (11, {NumberKey("monotonicity", "ground_truth", "monotonic_fraction", 8): "40"}, "holds"),
    (12, dict(zip(RANDOM.values(), ("0.9", "0.8", "0.7", "0.6"), strict=True)), "holds"),
    (13, {NumberKey("pi3_robustness", "pi3_to_pi3", "Mid mAcc", None, "keystep"): "20.65"}, "textual"),
    (15, {NumberKey(TEXT, "pooled_feature", "width"): "1408"}, "textual"),
    (17, {NumberKey(TEXT, "classifier_head", "input_width"): "4096"}, "holds"),
    (18, ENDPOINTS_GIVEN, "holds"),
    (20, {NumberKey(TEXT, "hyperparameter_table", "columns_declared"): "5"}, "holds"),
    (21, {NumberKey(TEXT, "oracle", "M@1", None, "egoexo4d_atomic_closed"): "44.8"}, "holds"),
    (22, {NumberKey(COARSE, "scorer", "mAcc", 8, "egoper"): "79.18"}, "holds"),
    (23, {NumberKey(ANTICIPATION, "scorer", "Future R@1", h): "26.00" for h in HORIZONS}, "holds"),
    (25, {NumberKey(TEXT, "validation", "takes", None, "egoexo4d_atomic"): "457"}, "holds"),
]


@pytest.mark.parametrize(("number", "values", "verdict"), FLIPS, ids=[f"{n}-{v}" for n, _, v in FLIPS])
def test_other_numbers_give_another_verdict(number: int, values: dict[NumberKey, object], verdict: str) -> None:
    assert verdict != FOUND[number].verdict
    assert again(number, values).verdict == verdict


def test_every_verdict_that_numbers_decide_has_been_flipped() -> None:
    decided = {number for number, finding in FOUND.items() if finding.verdict != "textual"}
    assert decided - {number for number, _, _ in FLIPS} == {24}, "24 has a test of its own"


@pytest.mark.parametrize(
    ("number", "key", "value"),
    [
        (14, NumberKey(TEXT, "pooled_feature", "width"), "1408"),
        (16, NumberKey(TEXT, "train", "takes", None, "egoexo4d_atomic"), "1"),
        (19, NumberKey(COARSE, "pdpp", "SR", 3, "egoper"), "84.80"),
    ],
)
def test_figures_of_a_textual_finding_follow_the_numbers(number: int, key: NumberKey, value: str) -> None:
    other = again(number, {key: value})
    assert other != FOUND[number]


def test_bold_faces_are_right_where_the_bold_number_is_made_the_best() -> None:
    figures = FOUND[24].figures
    better = {
        NumberKey(ATOMIC, "scorer", "F@1", 3): "99",
        **{NumberKey(ATOMIC, "scorer", "F@5", h): "99" for h in range(3, 8)},
        NumberKey(ANTICIPATION, "no_traj", "Full Seq", 3): "99",
        NumberKey(COARSE, "no_traj", "ED", 4, "egoper"): "0.01",
        NumberKey(COARSE, "no_traj", "mIoU", 5, "egoper"): "91.42",
    }
    assert len(better) == len(figures.rows)
    assert again(24, better).verdict == "holds"


def test_the_recovered_share_is_the_quotient_of_the_gains() -> None:
    figures = FOUND[2].figures
    assert figures.rows[2][1:] == ("1.60", "0.88", "0.69", "0.63", "0.53", "0.50")


def test_gain_on_the_opened_windows_follows_from_the_gate_rate() -> None:
    overall, opened = opened_gain(PAPER, 3, "M@1")
    assert opened * 0.19 == pytest.approx(overall)


def test_implied_endpoints_are_those_that_make_up_the_full_metric() -> None:
    start = implied_endpoint(PAPER, "oracle")[5]
    assert (3 * PAPER.value(ATOMIC, "oracle", "M@1", 5) + 2 * start) / 5 == pytest.approx(
        PAPER.value(ATOMIC, "oracle", "F@1", 5)
    )


def test_success_rates_of_egoper_pin_the_number_of_windows() -> None:
    rates = [PAPER.printed(COARSE, row, "SR", 3, "egoper") for row in ("schema", "pdpp", "viterbiplannet", "oracle")]
    assert 787 in fitting_counts(rates, 921)
    assert fitting_counts([*rates, PAPER.printed(COARSE, "scorer", "SR", 3, "egoper")], 921) == [787]


def test_weights_are_found_again_where_the_overall_figures_are_made_from_them() -> None:
    weights = stride_one(1.0, 0.03)
    values = {
        NumberKey(file, model, metric): round(sample_mean(PAPER.by_horizon(file, model, metric), weights), 3)
        for file in (GOAL_SEEN, GOAL_MASKED)
        for model in ("no_dropout_traj", "goal_dropout_traj", "no_dropout_no_traj", "goal_dropout_no_traj")
        for metric in ("Future R@1", "Future R@5", "Future Seq")
    }
    found = implied_weights(changed(values))
    assert found.runs_per_segment == pytest.approx(0.03)
    assert found.worst < 0.001


def test_numbers_are_printed_with_a_true_minus_and_zero_without_a_sign() -> None:
    assert (signed(-0.001), signed(1.0), fixed(-1.5, 1)) == ("0.00", "+1.00", "−1.5")
    assert falls([3, 2, 1])
    assert rises([1, 2])
    assert not falls([1, 1])
