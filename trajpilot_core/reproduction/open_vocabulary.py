"""Contradictions of the open-vocabulary planning table: nos. 1, 2, 4, 6, 9, 18, 21."""

from itertools import product

from trajpilot_core.reproduction.finding import (
    Finding,
    Grid,
    Verdict,
    by_horizon,
    differences,
    falls,
    fixed,
    minus,
    name_horizons,
    printed,
    rises,
    signed,
    span,
)
from trajpilot_core.reproduction.published import (
    ANTICIPATION,
    ATOMIC,
    ATOMIC_CORPUS,
    CLOSED_CORPUS,
    FUTURE_METRICS,
    GOAL_SEEN,
    HORIZONS,
    LANGUAGE_MODELS,
    NAMES,
    OPEN_METRICS,
    Paper,
    half_digit,
)
from trajpilot_core.reproduction.windows import implied_weights, sample_mean

_OPEN_TABLES = (
    ("planning", ATOMIC, OPEN_METRICS),
    ("anticipation", ANTICIPATION, (*FUTURE_METRICS, "Full R@1", "Full R@5", "Full Seq")),
)
LIFT = 2.0
"""Points of M@1 below which a sevenfold smaller label bank counts as no easier task."""


def gap_over_language_model(paper: Paper) -> Finding:
    """No. 1: the margin over the language-model baseline."""
    least, most = (
        paper.text("scorer_minus_qwen_sft_llm", f"M@1_{end}", dataset=ATOMIC_CORPUS) for end in ("least", "most")
    )
    gap = minus(paper.by_horizon(ATOMIC, "scorer", "M@1"), paper.by_horizon(ATOMIC, "qwen_sft_llm", "M@1"))
    inside = [h for h, value in gap.items() if least - 0.5 <= value < most + 0.5]
    return Finding(
        1,
        "Margin over the language-model baseline",
        f"Qwen-SFT+LLM stays {fixed(least, 0)} to {fixed(most, 0)} points of M@1 below the Scorer.",
        ("sec:exp:atomic", "tab:atomic_results_full"),
        by_horizon({"Scorer − Qwen-SFT+LLM, M@1": differences(gap)}),
        f"After rounding to whole points the margin lies in that range at {name_horizons(inside)}; over all horizons "
        f"it runs from {signed(min(gap.values()))} to {signed(max(gap.values()))}.",
        "holds" if len(inside) == len(gap) else "contradicted",
    )


def recovery(paper: Paper) -> Finding:
    """No. 2: the share of the gap between No-Traj and Oracle that the Scorer recovers."""
    fallback, scorer, oracle = (paper.by_horizon(ATOMIC, row, "M@1") for row in ("no_traj", "scorer", "oracle"))
    gain, gap = minus(scorer, fallback), minus(oracle, fallback)
    share = {h: gain[h] / gap[h] for h in HORIZONS}
    largest = max(gain, key=lambda h: gain[h])
    course = "falls at every step" if falls(list(share.values())) else "does not fall throughout"
    return Finding(
        2,
        "How much of the gap the Scorer recovers",
        "The Scorer recovers most of the way from No-Traj to Oracle, and the longer the horizon the more of it.",
        ("sec:exp:atomic", "tab:atomic_results_full"),
        by_horizon(
            {
                "Scorer − No-Traj, M@1": differences(gain),
                "Oracle − No-Traj, M@1": differences(gap),
                "recovered share": printed(share),
            }
        ),
        f"The share {course}, from {fixed(share[3])} to {fixed(share[8])}; it is at most a half at "
        f"{name_horizons([h for h in HORIZONS if share[h] <= 0.5])}. The gain in points is largest at H = {largest}. "
        f"Oracle's lead over No-Traj {'widens' if rises(list(gap.values())) else 'does not widen'} throughout.",
        "contradicted" if share[8] < share[3] else "holds",
    )


def opened_gain(paper: Paper, horizon: int, metric: str) -> tuple[float, float]:
    """Return the overall gain of the Scorer over No-Traj, and the gain on opened windows that it implies, in points.

    A closed gate answers with the fallback, so overall gain = open share x gain on the opened windows.
    """
    fallback_share = paper.text("scorer", "fallback_share", horizon, ATOMIC_CORPUS)
    gain = paper.value(ATOMIC, "scorer", metric, horizon) - paper.value(ATOMIC, "no_traj", metric, horizon)
    return gain, 100 * gain / (100 - fallback_share)


def gate_arithmetic(paper: Paper) -> Finding:
    """No. 4: what the stated gate rates imply on the windows that the gate opens."""
    kept = {h: paper.text("scorer", "fallback_share", h, ATOMIC_CORPUS) for h in (3, 8)}
    rows = []
    for h, share in kept.items():
        for metric in ("M@1", "M@5", "F@5"):
            gain, implied = opened_gain(paper, h, metric)
            rows.append((f"H={h}", metric, f"{fixed(100 - share, 0)} %", signed(gain), signed(implied, 1)))
    implied_m1, implied_m5 = opened_gain(paper, 3, "M@1")[1], opened_gain(paper, 3, "M@5")[1]
    best = paper.text("pool_oracle", "M@1", 5, ATOMIC_CORPUS) - paper.text("no_traj", "M@1", 5, ATOMIC_CORPUS)
    verdict: Verdict = "contradicted" if implied_m1 > 100 else "strained" if implied_m1 > best else "holds"
    return Finding(
        4,
        "Gate rates against gains",
        f"The gate keeps the fallback for about {fixed(kept[3], 0)} % of the windows at H = 3, where the endpoints "
        f"settle the plan, and for about {fixed(kept[8], 0)} % at H = 8.",
        ("sec:method:stage3", "tab:atomic_results_full", "app:retrieval_headroom"),
        Grid(("", "metric", "opened", "gain over all", "implied on the opened"), tuple(rows)),
        f"At H = 3 the opened windows must gain {signed(implied_m1, 1)} points of M@1 and {signed(implied_m5, 1)} of "
        f"M@5. A perfect choice among the candidates gains {signed(best, 1)} points over all windows at H = 5, the "
        "only horizon where the paper gives it.",
        verdict,
    )


def best_language_model(paper: Paper, file: str, metric: str, horizon: int) -> tuple[str, float]:
    """Return the better of the two language-model rows in one cell, and its value."""
    values = {row: paper.value(file, row, metric, horizon) for row in LANGUAGE_MODELS}
    return max(values.items(), key=lambda item: item[1])


def language_models_beaten(paper: Paper) -> Finding:
    """No. 6: cells where a language model is not below the Scorer."""
    lost, compared = [], 0
    for task, file, metrics in _OPEN_TABLES:
        for h, metric in product(HORIZONS, metrics):
            row, theirs = best_language_model(paper, file, metric, h)
            ours = paper.value(file, "scorer", metric, h)
            compared += 1
            if theirs >= ours:
                lost.append((task, f"H={h}", metric, f"{NAMES[row]} {fixed(theirs)}", fixed(ours)))
    return Finding(
        6,
        "Language models beaten",
        "TrajPilot beats the language-model baselines in planning and in anticipation.",
        ("abstract", "tab:atomic_results_full", "tab:atomic_anticipation_full"),
        Grid(("task", "horizon", "metric", "language model", "Scorer"), tuple(lost)),
        f"In {len(lost)} of {compared} cells a language model is not below the Scorer.",
        "contradicted" if lost else "holds",
    )


def two_no_traj_rows(paper: Paper) -> Finding:
    """No. 9: one No-Traj row, two sets of numbers."""
    pairs = list(zip(("M@1", "M@5", "MSeq"), FUTURE_METRICS, strict=True))
    slack = 1e-9 + sum(
        half_digit(paper.printed(file, row, metric, 3))
        for file, row, metric in ((ATOMIC, "no_traj", "M@1"), (GOAL_SEEN, "no_dropout_no_traj", FUTURE_METRICS[0]))
    )
    apart = {}
    for name, ours, theirs in (("No-Traj", "no_traj", "no_dropout_no_traj"), ("Oracle", "oracle", "no_dropout_traj")):
        for metric, future in pairs:
            difference = minus(paper.by_horizon(ATOMIC, ours, metric), paper.by_horizon(GOAL_SEEN, theirs, future))
            apart[f"{name}, {metric}"] = difference
    beyond = {name: [h for h in HORIZONS if abs(values[h]) > slack] for name, values in apart.items()}
    of_no_traj = sum(len(found) for name, found in beyond.items() if name.startswith("No-Traj"))
    of_oracle = sum(len(found) for name, found in beyond.items() if name.startswith("Oracle"))
    return Finding(
        9,
        "Which No-Traj",
        "No-Traj is a checkpoint of its own; elsewhere it is the predictor with a zero trajectory input. The main "
        "table and the goal-dropout table both print it.",
        ("sec:exp:setup", "fig:arch", "tab:atomic_results_full", "tab:goal_dropout_fullgoal"),
        by_horizon({f"{name}: main − goal-dropout table": differences(values) for name, values in apart.items()}),
        f"Rounding explains at most {fixed(slack, 3)}. Beyond it lie {of_no_traj} of 18 figures of No-Traj and "
        f"{of_oracle} of 18 of Oracle: the two No-Traj rows come from different models or evaluations, the Oracle "
        "rows from one and the same."
        if of_no_traj
        else f"Rounding explains every difference (at most {fixed(slack, 3)}).",
        "contradicted" if of_no_traj else "holds",
    )


def implied_endpoint(paper: Paper, row: str) -> dict[int, float]:
    """Return H -> mean accuracy of Start and Goal that F@1 and M@1 imply, in percent: (H F@1 − (H − 2) M@1) / 2."""
    full, mid = paper.by_horizon(ATOMIC, row, "F@1"), paper.by_horizon(ATOMIC, row, "M@1")
    return {h: (h * full[h] - (h - 2) * mid[h]) / 2 for h in HORIZONS}


def endpoints_predicted(paper: Paper) -> Finding:
    """No. 18: Start and Goal are predicted, not given."""
    rows = ("no_traj", "scorer", "oracle", "qwen_sft_llm")
    implied = {row: implied_endpoint(paper, row) for row in rows}
    ours = [value for row in rows[:3] for value in implied[row].values()]
    recogniser = paper.value("qwen3vl_endpoint_cache", "R@1", "percentage")
    return Finding(
        18,
        "Accuracy at Start and Goal",
        "Full-sequence metrics include the observed Start and Goal, so that differences lie in the middle steps.",
        ("tab:atomic_results_full", "tab:coarse_planning_overall", "tab:qwen3vl_endpoint_cache"),
        by_horizon({f"{NAMES[row]}, implied R@1 of Start and Goal": printed(implied[row], 1) for row in rows}),
        f"TrajPilot's rows imply {span(ours)} % at the endpoints, nearly constant over H, and Qwen-SFT+LLM "
        f"{span(list(implied['qwen_sft_llm'].values()))} % (its recogniser: {fixed(recogniser)} %). Observed means "
        "seen as clips: their labels are predicted, and less well than by the baseline.",
        "strained" if max(ours) < 99 else "holds",
    )


def smaller_bank(paper: Paper) -> Finding:
    """No. 21: seven times fewer labels hardly help."""
    weights = implied_weights(paper).weights
    rows, lifts = [], []
    for row, metric in (("scorer", "M@1"), ("oracle", "M@1"), ("scorer", "MSeq"), ("oracle", "MSeq")):
        before = sample_mean(paper.by_horizon(ATOMIC, row, metric), weights)
        after = paper.text(row, metric, dataset=CLOSED_CORPUS)
        rows.append((NAMES[row], metric, fixed(before, 1), fixed(after, 1), signed(after - before, 1)))
        if metric == "M@1":
            lifts.append(after - before)
    counts = [paper.text(name, "labels", dataset=ATOMIC_CORPUS) for name in ("bank", "closed_bank")]
    return Finding(
        21,
        "The closed label bank",
        f"The {counts[0]:,.0f} open labels collapse to {counts[1]:,.0f}, a protocol that is said to favour the "
        "baselines.",
        ("sec:exp:atomic", "tab:atomic_results_full"),
        Grid(("row", "metric", "open, weighted by windows", "closed, as stated", "difference"), tuple(rows)),
        f"With {counts[0] / counts[1]:.1f} times fewer labels M@1 rises by {signed(lifts[0], 1)} (Scorer) and "
        f"{signed(lifts[1], 1)} (Oracle) points: labels can hardly have been merged into an easier task; the bank "
        "was mainly restricted.",
        "strained" if max(lifts) < LIFT else "holds",
    )
