"""Statements of the paper that recomputing confirms; each check goes red when a number of it changes."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal
from itertools import product

from trajpilot_core.reproduction.finding import fixed, signed
from trajpilot_core.reproduction.published import (
    ATOMIC,
    ATOMIC_CORPUS,
    BENCHMARKS,
    CLOSED_METRICS,
    COARSE,
    COARSE_OVERALL,
    GOAL_MASKED,
    GOAL_SEEN,
    HORIZONS,
    LANGUAGE_MODELS,
    NAMES,
    OPEN_METRICS,
    PRIOR_PLANNERS,
    TEXT,
    Paper,
    half_digit,
)
from trajpilot_core.reproduction.windows import plain_mean, released_weights

BALL = "egoexo4d_basketball"
EPIC = "epic_kitchens_100"
METHODS = (*PRIOR_PLANNERS, "no_traj", "scorer", "oracle")
OPEN_ROWS = (*LANGUAGE_MODELS, "no_traj", "scorer", "oracle")
Place = tuple[str, str, str, str]
"""File, row, metric, benchmark; of a number without a horizon."""
POSE, MASKED, FUTURE = "pi3_robustness", GOAL_MASKED, "Future R@1"
MARGINS: tuple[tuple[str, tuple[str, str, str], Place, Place], ...] = (
    ("EPIC-KITCHENS-100, No-Traj over the visual probe, action recall", ("no_traj_minus_probe", "action_R@5", EPIC),
     ("ek100", "no_traj", "action_R@5", ""), ("ek100", "visual_only_probe", "action_R@5", "")),
    ("the same, accuracy", ("no_traj_minus_probe", "action_accuracy", EPIC),
     ("ek100", "no_traj", "action_accuracy", ""), ("ek100", "visual_only_probe", "action_accuracy", "")),
    ("EPIC-KITCHENS-100, Oracle over the visual probe, action recall", ("oracle_minus_probe", "action_R@5", EPIC),
     ("ek100", "oracle", "action_R@5", ""), ("ek100", "visual_only_probe", "action_R@5", "")),
    ("Keystep, Aria model on Pi3 poses", ("mismatch", "Mid mAcc", "keystep"),
     (POSE, "aria_to_pi3", "Mid mAcc", "keystep"), (POSE, "aria_to_aria", "Mid mAcc", "keystep")),
    ("goal dropout, gain without a goal, with trajectory", ("goal_dropout", "gain_with_trajectory", ATOMIC_CORPUS),
     (MASKED, "goal_dropout_traj", FUTURE, ""), (MASKED, "no_dropout_traj", FUTURE, "")),
    ("goal dropout, gain without a goal, No-Traj", ("goal_dropout", "gain_without_trajectory", ATOMIC_CORPUS),
     (MASKED, "goal_dropout_no_traj", FUTURE, ""), (MASKED, "no_dropout_no_traj", FUTURE, "")),
    ("loss from masking the goal, without goal dropout", ("goal_dropout", "drop_before", ATOMIC_CORPUS),
     (MASKED, "no_dropout_traj", FUTURE, ""), (GOAL_SEEN, "no_dropout_traj", FUTURE, "")),
    ("loss from masking the goal, with goal dropout", ("goal_dropout", "drop_after", ATOMIC_CORPUS),
     (MASKED, "goal_dropout_traj", FUTURE, ""), (GOAL_SEEN, "goal_dropout_traj", FUTURE, "")),
)  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One statement, what the tables give, and whether rounding explains the difference."""

    statement: str
    computed: str
    stated: str
    holds: bool


def near(computed: float, stated: Decimal, slack: float = 0.0) -> bool:
    """Return whether rounding the stated number, and `slack` on what it was computed from, explain the difference."""
    return abs(computed - float(stated)) <= half_digit(stated) + slack + 1e-9


def checks(paper: Paper) -> list[Check]:
    """Return all checks."""
    parts: tuple[Callable[[Paper], Iterable[Check]], ...] = (
        averages, identities, sizes, budget, diagnostics, basketball, margins,
    )  # fmt: skip
    return [check for part in parts for check in part(paper)]


def averages(paper: Paper) -> list[Check]:
    """The table of averages is the plain mean over horizons of the table by horizon; seven of nine cells are won."""
    agree = won = 0
    cells = list(product(BENCHMARKS, CLOSED_METRICS[:3]))
    for dataset, metric in cells:
        printed = {row: paper.printed(COARSE_OVERALL, row, metric, None, dataset) for row in METHODS}
        for row, value in printed.items():
            agree += near(plain_mean(paper.by_horizon(COARSE, row, metric, dataset)), value, 0.005)
        won += printed["scorer"] > max(printed[row] for row in PRIOR_PLANNERS)
    total = len(cells) * len(METHODS)
    stated = paper.text("scorer", "cells_won"), paper.text("scorer", "cells")
    return [
        Check("closed vocabulary, averages over horizons are plain means", f"{agree} of {total} cells",
              f"{total} cells", agree == total),
        Check("cells of them that the Scorer wins against prior planners", f"{won} of {len(cells)}",
              f"{stated[0]:.0f} of {stated[1]:.0f}", (won, len(cells)) == stated),
    ]  # fmt: skip


def sizes(paper: Paper) -> list[Check]:
    """Parts of the data sets add up; the finest printed share is one window."""
    takes = sum(paper.text(split, "takes", dataset=ATOMIC_CORPUS) for split in ("train", "validation"))
    clips = sum(paper.text(split, "segments", dataset="keystep") for split in ("train", "validation"))
    values = [c.value for c in paper.of_file(ATOMIC) if c.key.metric in ("MSeq", "FSeq") and c.value > 0]
    smallest, window = min(values), 100 / released_weights(paper)[3]
    return [
        _count("takes of Ego-Exo4D atomic, training and validation", takes, paper, "all", "takes", ATOMIC_CORPUS),
        _count("clips of Keystep, training and validation", clips, paper, "all", "segments", "keystep"),
        Check("smallest share of windows in the open table is one window", f"{window:.4f} %", f"{smallest} %",
              near(window, smallest)),
        *(_share_of_endpoints(paper, row) for row in ("R@1", "R@5", "exact_projection", "fallback_projection")),
    ]  # fmt: skip


def budget(paper: Paper) -> list[Check]:
    """The stages' minutes give the total hours, and these the project's."""
    minutes = sum(paper.text(stage, "minutes") for stage in ("alignment", "predictor", "scorer"))
    minutes += len(BENCHMARKS) * paper.text("closed_fine_tuning", "minutes")
    total = paper.printed(TEXT, "total", "hours")
    factor, project = paper.text("project", "factor"), paper.printed(TEXT, "project", "hours")
    spent = factor * float(total)
    return [
        Check(f"GPU hours of all stages ({minutes:.0f} minutes)", fixed(minutes / 60), f"{total}",
              near(minutes / 60, total)),
        Check("GPU hours of the project", fixed(spent, 0), f"{project}", near(spent, project)),
    ]  # fmt: skip


def diagnostics(paper: Paper) -> list[Check]:
    """The correlation's square, and the losses under shuffled inputs."""
    pearson, square = paper.text("l1_to_goal", "pearson"), paper.printed(TEXT, "l1_to_goal", "r_squared_percent")
    best = paper.value("motivation", "text_and_trajectory", "val_l1", 1)
    rows = [Check("square of the correlation between goal distance and accuracy, %", fixed(100 * pearson**2),
                  f"{square}", near(100 * pearson**2, square))]  # fmt: skip
    for row in ("shuffled_trajectory", "shuffled_text"):
        worse = paper.value("motivation", row, "val_l1", 1) - best
        stated = paper.printed(TEXT, row, "degradation", 1)
        rows.append(Check(f"loss with {row.replace('_', ' ')}, difference", signed(worse, 4), f"{stated}",
                          near(worse, stated, 1e-4)))  # fmt: skip
    return rows


def basketball(paper: Paper) -> list[Check]:
    """All shares are whole counts of shots, balanced accuracy is the mean recall, and the margins follow."""
    made = int(paper.text("test", "made", dataset=BALL))
    shots = paper.text("test", "shots", dataset=BALL) + paper.text("train", "shots", dataset=BALL)
    balanced = 2 * paper.text("made", "shots", dataset=BALL)
    rows = ("no_traj", "attentive_probe", "scorer", "oracle")
    table = {row: [paper.printed("basketball_shot_outcome", row, m) for m in _BALL_METRICS] for row in rows}
    counts = {row: [round(float(v) * made / 100) for v in values[2:]] for row, values in table.items()}
    whole = sum(
        near(100 * sum(counts[row]) / (2 * made), table[row][0])
        and near(50 * sum(counts[row]) / made, table[row][1])
        and all(near(100 * n / made, v) for n, v in zip(counts[row], table[row][2:], strict=True))
        for row in rows
    )
    called = counts["no_traj"][0] + made - counts["no_traj"][1]
    return [
        Check("basketball rows whose shares are whole counts of shots", f"{whole} of {len(rows)}", f"{len(rows)}",
              whole == len(rows)),
        _count("shots that No-Traj calls made", called, paper, "no_traj", "called_made", BALL),
        Check("balanced shots, training and test", fixed(shots, 0), fixed(balanced, 0), shots == balanced),
        *(_ball_margin(paper, *pair) for pair in _BALL_MARGINS),
    ]  # fmt: skip


def margins(paper: Paper) -> list[Check]:
    """Differences and values that the text states, against their tables."""
    found = [_margin(paper, *margin) for margin in MARGINS]
    for row, horizon in (("no_traj", 3), ("no_traj", 8), ("scorer", 8), ("oracle", 8)):
        stated = paper.printed(TEXT, row, "M@1", horizon, ATOMIC_CORPUS)
        value = paper.value(ATOMIC, row, "M@1", horizon)
        statement = f"{NAMES[row]}, M@1 at H = {horizon}, as the text rounds it"
        found.append(Check(statement, fixed(value), f"{stated}", near(value, stated)))
    return found


def identities(paper: Paper) -> list[Check]:
    """Inside the open table: at H = 3 MSeq = M@1; MSeq <= M@1 <= M@5, FSeq <= F@1 <= F@5 and FSeq <= MSeq always."""
    rows = [{m: paper.value(ATOMIC, row, m, h) for m in OPEN_METRICS} | {"H": h} for row in OPEN_ROWS for h in HORIZONS]
    broken = [r for r in rows if not _is_possible(r)]
    return [Check("rows of the open table that keep the identities of its metrics", f"{len(rows) - len(broken)} of "
                  f"{len(rows)}", f"{len(rows)}", not broken)]  # fmt: skip


def _is_possible(row: dict[str, float]) -> bool:
    single = row["H"] > 3 or row["MSeq"] == row["M@1"]
    chains = (
        row["MSeq"] <= row["M@1"] <= row["M@5"],
        row["FSeq"] <= row["F@1"] <= row["F@5"],
        row["FSeq"] <= row["MSeq"],
    )
    return single and all(chains)


_BALL_METRICS = ("accuracy", "balanced_accuracy", "made_recall", "miss_recall")
_BALL_MARGINS = (("scorer_minus_no_traj", "scorer", "no_traj"), ("scorer_minus_probe", "scorer", "attentive_probe"),
                 ("oracle_minus_scorer", "oracle", "scorer"))  # fmt: skip


def _margin(paper: Paper, statement: str, text: tuple[str, str, str], left: Place, right: Place) -> Check:
    """Compare a difference of the text (row, metric, benchmark) with that of two numbers without a horizon."""
    values = [paper.value(file, row, metric, None, dataset) for file, row, metric, dataset in (left, right)]
    stated = paper.printed(TEXT, text[0], text[1], None, text[2])
    difference = values[0] - values[1]
    return Check(statement, signed(difference), f"{stated:+}", near(difference, stated))


def _ball_margin(paper: Paper, name: str, left: str, right: str) -> Check:
    metric, file = "balanced_accuracy", "basketball_shot_outcome"
    statement = f"basketball, {left.replace('_', ' ')} over {right.replace('_', ' ')}, balanced accuracy"
    return _margin(paper, statement, (name, metric, BALL), (file, left, metric, ""), (file, right, metric, ""))


def _share_of_endpoints(paper: Paper, row: str) -> Check:
    count, of = (paper.value("qwen3vl_endpoint_cache", name, "count") for name in (row, "segments"))
    stated = paper.printed("qwen3vl_endpoint_cache", row, "percentage")
    name = row.replace("_", " ")
    return Check(f"endpoint cache, {name}, %", fixed(100 * count / of), f"{stated}", near(100 * count / of, stated))


def _count(statement: str, computed: float, paper: Paper, row: str, metric: str, dataset: str) -> Check:
    stated = paper.text(row, metric, dataset=dataset)
    return Check(statement, f"{computed:,.0f}", f"{stated:,.0f}", computed == stated)
