"""Contradictions of the closed-vocabulary tables, and of Oracle as a bound: nos. 3, 5, 13, 19, 20, 22."""

from itertools import product

from trajpilot_core.reproduction.finding import (
    Finding,
    Grid,
    by_horizon,
    fixed,
    name_horizons,
    printed,
    signed,
)
from trajpilot_core.reproduction.published import (
    ATOMIC,
    ATOMIC_CORPUS,
    BENCHMARKS,
    CLOSED_METRICS,
    COARSE,
    COARSE_OVERALL,
    HORIZONS,
    NAMES,
    OPEN_METRICS,
    PRIOR_PLANNERS,
    Paper,
)
from trajpilot_core.reproduction.windows import fitting_counts, plain_mean, stride_one

LOWER_IS_BETTER = ("ED",)
MATCHED = (("keystep", "mAcc"), ("keystep", "mIoU"), ("goalstep", "mIoU"),
           ("egoper", "SR"), ("egoper", "mAcc"), ("egoper", "mIoU"))  # fmt: skip
"""Cells of which the paper says that No-Traj alone matches or exceeds the strongest prior planner."""
METHODS = (*PRIOR_PLANNERS, "no_traj", "scorer", "oracle")


def above_oracle(paper: Paper, file: str, metric: str, dataset: str = "") -> list[int]:
    """Return the horizons at which the Scorer is better than Oracle."""
    sign = -1 if metric in LOWER_IS_BETTER else 1
    scorer, oracle = (paper.by_horizon(file, row, metric, dataset) for row in ("scorer", "oracle"))
    return [h for h in HORIZONS if sign * scorer[h] > sign * oracle[h]]


def oracle_as_bound(paper: Paper) -> Finding:
    """No. 3: rows above the upper bound."""
    places = [("Ego-Exo4D atomic", ATOMIC, metric, "") for metric in OPEN_METRICS]
    places += [(NAMES[d], COARSE, metric, d) for d, metric in product(BENCHMARKS, CLOSED_METRICS)]
    found = [(name, metric, above_oracle(paper, file, metric, dataset)) for name, file, metric, dataset in places]
    rows = tuple((name, metric, name_horizons(above)) for name, metric, above in found if above)
    count = sum(len(above) for _, _, above in found)
    pool = paper.text("pool_oracle", "M@1", 5, ATOMIC_CORPUS)
    oracle = paper.value(ATOMIC, "oracle", "M@1", 5)
    return Finding(
        3,
        "Oracle as an upper bound",
        "Oracle, which is fed the true middle trajectory, bounds from above what trajectories can give.",
        ("sec:exp:setup", "tab:atomic_results_full", "tab:coarse_planning_full", "app:retrieval_headroom"),
        Grid(("benchmark", "metric", "Scorer better than Oracle at"), rows),
        f"The Scorer is better than Oracle in {count} of {len(found) * len(HORIZONS)} cells. The best candidate of "
        f"the pool reaches {fixed(pool, 1)} % M@1 at H = 5, Oracle {fixed(oracle)} %. No error is needed for that: "
        "the Scorer reads labels of retrieved windows, has two checkpoints and chooses among many plans; Oracle is "
        "one pass of one checkpoint. It is a condition, not a bound.",
        "contradicted" if count or pool > oracle else "holds",
    )


def fallback_against_planners(paper: Paper) -> Finding:
    """No. 5: No-Traj alone against the strongest prior planner."""
    rows, lost = [], []
    for dataset, metric in MATCHED:
        ours = paper.value(COARSE_OVERALL, "no_traj", metric, None, dataset)
        values = {row: paper.value(COARSE_OVERALL, row, metric, None, dataset) for row in PRIOR_PLANNERS}
        best = max(values, key=lambda row: values[row])
        rows.append((NAMES[dataset], metric, fixed(ours), f"{NAMES[best]} {fixed(values[best])}",
                     signed(ours - values[best])))  # fmt: skip
        if ours < values[best]:
            lost.append(f"{NAMES[dataset]} {metric}")
    return Finding(
        5,
        "No-Traj alone against prior planners",
        "No-Traj alone matches or exceeds the strongest prior planner on Keystep mAcc and mIoU, GoalStep mIoU and all "
        "three EgoPER metrics.",
        ("sec:exp:coarse", "tab:coarse_planning_overall"),
        Grid(("benchmark", "metric", "No-Traj", "strongest prior planner", "difference"), tuple(rows)),
        f"It does not on {', '.join(lost)}." if lost else "It does on all six.",
        "contradicted" if lost else "holds",
    )


def pose_source(paper: Paper) -> Finding:
    """No. 13: where the poses of Keystep come from."""
    oracle = paper.by_horizon(COARSE, "oracle", "mAcc", "keystep")
    mean = plain_mean(oracle)
    single = {
        row: paper.value("pi3_robustness", row, "Mid mAcc", None, "keystep") for row in ("aria_to_aria", "pi3_to_pi3")
    }
    falling = all(oracle[h] >= oracle[h + 1] for h in HORIZONS[:-1])
    apart = falling and mean - 0.01 > max(single.values())
    return Finding(
        13,
        "Pose source on Keystep",
        "Aria poses exist for Ego-Exo4D only, so the Oracle rows of Keystep, GoalStep and EgoPER use Pi3; another "
        "table gives Aria results on Keystep, which is part of Ego-Exo4D.",
        ("app:preprocessing", "tab:pi3_robustness", "tab:coarse_planning_full"),
        by_horizon({"Oracle, Keystep, mid mAcc": printed(oracle)}),
        f"Plain mean {fixed(mean)}. The source table, weighted by windows, has {fixed(single['pi3_to_pi3'])} (Pi3) and "
        f"{fixed(single['aria_to_aria'])} (Aria). "
        + (
            "The figures fall with H and there are never more windows at a longer horizon, so a mean weighted by "
            "windows is at least the plain one: neither source gives the Oracle row of the main table."
            if apart
            else "A weighted mean can equal one of them."
        ),
        "contradicted" if apart else "textual",
    )


def scored_windows(paper: Paper) -> Finding:
    """No. 19: which windows the EgoPER figures were counted on."""
    segments, videos = (int(paper.text("validation", name, dataset="egoper")) for name in ("segments", "takes"))
    stated = stride_one(segments, videos)
    fits = {
        h: fitting_counts([paper.printed(COARSE, row, "SR", h, "egoper") for row in METHODS], segments)
        for h in HORIZONS
    }
    agree = [h for h in HORIZONS if stated[h] in fits[h]]
    return Finding(
        19,
        "Test means validation",
        "Tables are headed test split, while the data section has training and validation sets only; how "
        "checkpoints and thresholds were selected is not said.",
        ("app:implementation:datasets", "tab:coarse_planning_full"),
        by_horizon(
            {
                "window counts that fit the success rates of all six methods, EgoPER": {
                    h: ", ".join(str(n) for n in found) or "none" for h, found in fits.items()
                },
                f"{segments} − {videos} (H − 1)": printed(stated, 0),
            }
        ),
        f"At {name_horizons(agree)} the success rates are whole counts of exactly the stride-1 windows of the "
        f"{segments} segments of the {videos} validation videos."
        if agree
        else "The success rates do not fit the windows of the validation videos.",
        "textual",
    )


def hyperparameter_columns(paper: Paper) -> Finding:
    """No. 20: a table that lost a column, a reference that leads nowhere."""
    declared, headed = (int(paper.text("hyperparameter_table", f"columns_{name}")) for name in ("declared", "headed"))
    return Finding(
        20,
        "Hyperparameters per benchmark",
        "The table lists what varies between benchmarks; the text refers to the predictor's section for goal dropout.",
        ("tab:closed_vocab_hparams", "sec:exp:anticipation", "sec:method:stage2"),
        None,
        f"The table is set for {declared} columns and has {headed}: "
        + ("a column is missing. " if declared > headed else "none is missing. ")
        + "The section that is referred to never mentions goal dropout.",
        "textual" if declared != headed else "holds",
    )


def unopened_gate(paper: Paper) -> Finding:
    """No. 22: benchmarks and horizons where the Scorer is No-Traj."""
    equal = {
        dataset: [
            h
            for h in HORIZONS
            if all(
                paper.printed(COARSE, "scorer", m, h, dataset) == paper.printed(COARSE, "no_traj", m, h, dataset)
                for m in CLOSED_METRICS
            )
        ]
        for dataset in BENCHMARKS
    }
    longest = [dataset for dataset, found in equal.items() if HORIZONS[-1] in found]
    return Finding(
        22,
        "A gate that never opened",
        "The longer the horizon, the more the gate trusts retrieval; the closed benchmarks use the same machinery.",
        ("app:selector_behavior", "tab:coarse_planning_full"),
        Grid(
            ("benchmark", "Scorer = No-Traj on SR, mAcc, mIoU and ED"),
            tuple((NAMES[dataset], name_horizons(found)) for dataset, found in equal.items()),
        ),
        f"On {', '.join(NAMES[d] for d in longest)} the two rows are equal to the last digit at the longest "
        "horizons: there the gate never opened, or opening it changed nothing."
        if longest
        else "At the longest horizon the two rows differ on every benchmark.",
        "contradicted" if longest else "holds",
    )
