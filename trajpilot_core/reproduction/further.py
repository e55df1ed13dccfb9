"""What recomputing showed beyond the 22 contradictions: nos. 24 and 25."""

from collections import defaultdict

from trajpilot_core.reproduction.finding import Finding, Grid, by_horizon, fixed, printed
from trajpilot_core.reproduction.published import (
    ANTICIPATION,
    ATOMIC,
    ATOMIC_CORPUS,
    COARSE,
    COARSE_OVERALL,
    LANGUAGE_MODELS,
    NAMES,
    PRIOR_PLANNERS,
    Cell,
    Paper,
)
from trajpilot_core.reproduction.windows import implied_weights, released_weights

DEPLOYABLE = (*LANGUAGE_MODELS, *PRIOR_PLANNERS, "no_traj", "scorer")
TITLES = {ATOMIC: "planning, open", ANTICIPATION: "anticipation, open", COARSE: "planning, closed",
          COARSE_OVERALL: "planning, closed, averaged"}  # fmt: skip


def misplaced_bold(paper: Paper, file: str) -> list[tuple[Cell, Cell]]:
    """Return (bold, better) for every bold cell of a row that is used at test time and is not the best such row."""
    columns: dict[tuple[int | None, str, str], list[Cell]] = defaultdict(list)
    for cell in paper.of_file(file):
        if cell.key.row in DEPLOYABLE:
            columns[cell.key.horizon, cell.key.dataset, cell.key.metric].append(cell)
    found = []
    for (_, _, metric), cells in columns.items():
        sign = -1 if metric == "ED" else 1
        best = max(cells, key=lambda cell: sign * cell.value)
        found += [(cell, best) for cell in cells if cell.is_bold and sign * cell.value < sign * best.value]
    return found


def bold_faces(paper: Paper) -> Finding:
    """No. 24, ours: bold numbers that are not the best of the rows that can be used at test time."""
    found = {file: misplaced_bold(paper, file) for file in TITLES}
    rows = tuple(
        (TITLES[file], f"{NAMES.get(bold.key.dataset, '')} H={bold.key.horizon} {bold.key.metric}".strip(),
         f"{NAMES[bold.key.row]} {bold.value}", f"{NAMES[best.key.row]} {best.value}")
        for file, pairs in found.items() for bold, best in pairs
    )  # fmt: skip
    return Finding(
        24,
        "Bold faces",
        "Bold marks the best method that can be used at test time (so the captions of the closed tables; the open "
        "tables do not say what it marks).",
        tuple(f"tab:{file}" for file in TITLES),
        Grid(("table", "cell", "bold", "better"), rows),
        f"{len(rows)} bold numbers are not the best of their cell among the rows that do not see the true trajectory.",
        "contradicted" if rows else "holds",
    )


def shorter_runs(paper: Paper) -> Finding:
    """No. 25, ours: there are fewer long windows than the released takes would give."""
    implied, released = implied_weights(paper), released_weights(paper)
    segments, takes = (paper.text("validation", name, dataset=ATOMIC_CORPUS) for name in ("segments", "takes"))
    covered = paper.value("qwen3vl_endpoint_cache", "segments", "count")
    runs = implied.runs_per_segment * segments
    share = {h: 100 * released[h] / released[3] for h in released}
    steeper = implied.weights[8] / implied.weights[3] < released[8] / released[3] - 0.01
    return Finding(
        25,
        "Windows and uninterrupted runs",
        f"Windows are consecutive segments of {fixed(takes, 0)} validation takes with {segments:,.0f} segments.",
        ("app:implementation:datasets", "tab:goal_dropout_fullgoal", "tab:goal_dropout_anticipation_full"),
        by_horizon(
            {
                "windows relative to H = 3, every take one run, %": printed(share, 1),
                "as the overall rows of the goal-dropout tables imply, %": printed(
                    {h: 100 * w / implied.weights[3] for h, w in implied.weights.items()}, 1
                ),
            }
        ),
        f"Weights of stride-1 windows reproduce all {implied.n_figures} overall figures to {fixed(implied.worst, 3)} "
        f"with about {fixed(runs, 0)} runs; {fixed(takes, 0)} would miss them. {segments - covered:,.0f} validation "
        "segments are neither Start nor Goal of any window (endpoint cache). So windows break inside takes, or "
        "short takes drop out; the rule is not given."
        if steeper
        else "The overall figures fit one run per take.",
        "strained" if steeper else "holds",
    )
