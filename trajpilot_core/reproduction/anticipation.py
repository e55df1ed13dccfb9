"""Contradictions around anticipation and goal dropout: nos. 7 and 8, and one found while recomputing."""

from trajpilot_core.reproduction.finding import (
    Finding,
    Grid,
    by_horizon,
    differences,
    fixed,
    name_horizons,
    printed,
    signed,
    span,
)
from trajpilot_core.reproduction.open_vocabulary import best_language_model
from trajpilot_core.reproduction.published import (
    ANTICIPATION,
    ATOMIC,
    ATOMIC_CORPUS,
    FUTURE_METRICS,
    GOAL_MASKED,
    GOAL_SEEN,
    HORIZONS,
    NAMES,
    Paper,
)

ROUNDING = 0.0551
"""Half a digit of each table, one printed with one decimal, the other with two."""
ROWS = ("qwen_zs", "qwen_sft_llm", "no_traj", "scorer", "oracle")


def implied_sum(paper: Paper, row: str, positions: int, future: int) -> dict[int, float]:
    """Return H -> sum of the accuracies that are in Full R@1 but not in Future R@1, in percent.

    Args:
        paper: the tables.
        row: method.
        positions: positions in Full, less H.
        future: positions in Future, less H.
    """
    full, ahead = (paper.by_horizon(ANTICIPATION, row, metric) for metric in ("Full R@1", "Future R@1"))
    return {h: (h + positions) * full[h] - (h + future) * ahead[h] for h in HORIZONS}


def mixed_definitions(paper: Paper) -> Finding:
    """No. 7: one table, two definitions of a future step."""
    apart = {
        row: abs(paper.value(ANTICIPATION, row, "Future R@1", 3) - paper.value(ANTICIPATION, row, "Future Seq", 3))
        for row in ROWS
    }
    single = [row for row in ROWS if apart[row] < 0.005]
    several = [row for row in ROWS if row not in single]
    rows = {
        "Qwen-SFT+LLM: Start, if Future has H − 1 steps": implied_sum(paper, "qwen_sft_llm", 0, -1),
        "Oracle: Start, if Full is Start and H − 2 steps": implied_sum(paper, "oracle", -1, -2),
        "Oracle: Start + Goal, if Full has H positions": implied_sum(paper, "oracle", 0, -2),
    }
    recogniser = paper.value("qwen3vl_endpoint_cache", "R@1", "percentage")
    spans = [span(list(values.values())) for values in rows.values()]
    return Finding(
        7,
        "What a future step is",
        "Future metrics cover the predicted steps, Full adds the observed Start, for every method alike.",
        ("tab:atomic_anticipation_full",),
        by_horizon({f"{name}, implied %": printed(values, 1) for name, values in rows.items()}),
        "At H = 3 one future step makes R@1 and Seq equal: so it is for "
        f"{', '.join(NAMES[r] for r in single) or 'no row'}; not for "
        f"{', '.join(NAMES[r] for r in several) or 'none'}. With H − 1 steps Qwen-SFT+LLM's Start accuracy is "
        f"{spans[0]} (its recogniser: {fixed(recogniser)}). Oracle's Full, read as in the caption, gives a Start "
        f"accuracy of {spans[1]}; with the masked Goal position counted, a steady sum of {spans[2]}.",
        "contradicted" if single and several else "holds",
    )


def largest_difference(paper: Paper, ours: tuple[str, str], theirs: tuple[str, str], metrics: tuple[str, ...]) -> float:
    """Return the largest difference over horizons and the three future metrics between two (file, row)."""
    return max(
        abs(paper.value(*ours, metric, h) - paper.value(*theirs, future, h))
        for metric, future in zip(metrics, FUTURE_METRICS, strict=True)
        for h in HORIZONS
    )


def two_checkpoints(paper: Paper) -> Finding:
    """No. 8: which checkpoint stands behind which table."""
    planning = {
        model: largest_difference(paper, (ATOMIC, "oracle"), (GOAL_SEEN, f"{model}_traj"), ("M@1", "M@5", "MSeq"))
        for model in ("no_dropout", "goal_dropout")
    }
    anticipation = {
        model: largest_difference(paper, (ANTICIPATION, "oracle"), (GOAL_MASKED, f"{model}_traj"), FUTURE_METRICS)
        for model in ("no_dropout", "goal_dropout")
    }
    behind = [
        next((model for model, value in table.items() if value <= ROUNDING), "neither")
        for table in (planning, anticipation)
    ]
    rows = tuple(
        (name, fixed(table["no_dropout"]), fixed(table["goal_dropout"]))
        for name, table in (("planning, Oracle", planning), ("anticipation, Oracle", anticipation))
    )
    words = {"no_dropout": "without goal dropout", "goal_dropout": "with goal dropout", "neither": "unknown"}
    return Finding(
        8,
        "One checkpoint or two",
        "A single checkpoint serves planning and anticipation; the anticipation table is said to use the one of "
        "planning.",
        ("sec:exp:anticipation", "tab:atomic_anticipation_full", "app:goal_dropout_full"),
        Grid(("largest difference in points to the checkpoint", "without goal dropout", "with goal dropout"), rows),
        f"The planning table is the checkpoint {words[behind[0]]}, the anticipation table the one "
        f"{words[behind[1]]}; the appendix says so too.",
        "contradicted" if behind[0] != behind[1] else "holds",
    )


def anticipation_margin(paper: Paper) -> Finding:
    """No. 23, ours: the margin over the language models in anticipation."""
    least, most = (
        paper.text("scorer_minus_best_vlm", f"Future R@1_{end}", dataset=ATOMIC_CORPUS) for end in ("least", "most")
    )
    margin = {
        h: paper.value(ANTICIPATION, "scorer", "Future R@1", h)
        - best_language_model(paper, ANTICIPATION, "Future R@1", h)[1]
        for h in HORIZONS
    }
    inside = [h for h in HORIZONS if least - 0.5 <= margin[h] < most + 0.5]
    return Finding(
        23,
        "Margin over the language models in anticipation",
        f"At every horizon the Scorer leads the best language model by {fixed(least, 0)} to {fixed(most, 0)} points "
        "of Future R@1.",
        ("sec:exp:anticipation", "tab:atomic_anticipation_full"),
        by_horizon({"Scorer − best language model, Future R@1": differences(margin)}),
        f"After rounding the margin lies in that range at {name_horizons(inside)}; it shrinks from "
        f"{signed(margin[3])} to {signed(margin[8])}.",
        "holds" if len(inside) == len(HORIZONS) else "contradicted",
    )
