"""Labels that a stage of its own fills from its scores: EPIC-KITCHENS-100, shots, poses, pools, conditions, endpoints.

A table of `ScoredBy` has the columns row, metric, seed, value, low, high and n_takes; a row without a seed is the mean
over the seeds. Source: arXiv 2605.20388; rows are named as in `trajpilot_core/paper/tables/<label>.csv`. The paper's
column of conditions is the best value on validation data; here the epoch is chosen on dev and test pairs are scored,
next to a row that copies the current latent.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import product
from statistics import mean
from typing import Any, TypeVar

from schemas.arrow import rows_of
from schemas.base import Record
from schemas.latent import ConditionScore
from schemas.results import Headroom, PairDistance, ProgressShare
from trajpilot_core.evaluation.comparison import EVALUATION
from trajpilot_core.evaluation.feature_distances import ADJACENT, FAR, QUANTITIES, RANDOM, SAME_ACTION
from trajpilot_core.evaluation.pose_rows import pose_rows
from trajpilot_core.paper.published import ACTION_METRICS, ATOMIC_CORPUS, HEADROOM_FIELDS, HORIZONS
from trajpilot_core.report.outcome_page import PAPERS
from trajpilot_core.studies.paper_tables.base import (
    Column,
    Line,
    PaperCell,
    PaperRun,
    PaperTable,
    headed,
    of_a_sample,
    of_methods,
    plain_cell,
)


@dataclass(frozen=True)
class ScoredBy:
    """The table with the scores of a label, and the stage's names of its rows and metrics."""

    label: str
    stage: str
    entry: str
    rows: Mapping[str, str]
    """Row of the paper -> of the stage."""
    metrics: Mapping[str, str]
    """Metric of the paper's data -> of the stage."""
    dataset: str = ""
    where: Mapping[str, object] = field(default_factory=dict)
    """Column -> the value that it must have."""


def of_scores(run: PaperRun, scored: ScoredBy) -> list[PaperCell]:
    """Return the cells that a run fills: means over the seeds, with their interval where the stage gives one."""
    cells = []
    table = run.read(scored.stage, scored.entry)
    records = [] if table is None else table.to_pylist()
    kept = [row for row in records if all(row[name] == value for name, value in scored.where.items())]
    for (row, its_row), (metric, its_metric) in product(scored.rows.items(), scored.metrics.items()):
        mine = [record for record in kept if record["row"] == its_row and record["metric"] == its_metric]
        mine = [record for record in mine if record["value"] is not None]
        if not mine:
            continue
        whole = next((record for record in mine if record["seed"] is None), mine[0] if len(mine) == 1 else None)
        value = mean(record["value"] for record in mine) if whole is None else whole["value"]
        fields = {"dataset": scored.dataset, "n_takes": mine[0]["n_takes"]}
        fields |= {} if whole is None else {name: whole[name] for name in ("low", "high")}
        cells.append(plain_cell(run, scored.label, row, metric, value, **fields))
    return cells


def table_of_scores(scored: ScoredBy, **fields: Any) -> PaperTable:
    """Return a label that a stage of its own fills; `fields`: those that do not follow from the scores."""
    cells = partial(of_scores, scored=scored)
    return PaperTable(label=scored.label, cells=cells, of_methods=False, note="Percent.", **fields)


POSES = {
    "aria_to_aria": "Aria → Aria",
    "pi3_to_pi3": "Pi3 → Pi3",
    "aria_to_pi3": "Aria → Pi3",
    "aria_and_pi3_to_pi3": "Aria + Pi3 → Pi3",
}
POSE_SCORES = ScoredBy(
    label="pi3_robustness",
    stage="pose_sources",
    entry="pose_scores",
    rows={row.published: row.name for row in pose_rows(("aria", "pi3")) if row.published},
    metrics={"Mid mAcc": "mid", "Full mAcc": "full"},
    dataset="keystep",
    where={"against": None},
)
ACTION_SCORES = ScoredBy(
    label="ek100",
    stage="action_token",
    entry="token_scores",
    rows={"visual_only_probe": "visual", "no_traj": "no_traj", "scorer": "scorer", "oracle": "oracle"},
    metrics=ACTION_METRICS,
    where={"subset": "overall", "space": "trained_pairs"},
)
"""In the space of the paper and of V-JEPA 2: the 3,568 pairs of verb and noun that occur in training."""
SHOT_SCORES = ScoredBy(
    label="basketball_shot_outcome",
    stage="outcome",
    entry="shot_scores",
    rows={row: row for row in ("no_traj", "attentive_probe", "scorer", "oracle")},
    metrics=PAPERS,
)

Stored = TypeVar("Stored", bound=Record)
HEADROOM = "retrieval_headroom"
HORIZON = 5
POOLS = (1, 5, 16, 64)


def rows_on_atomic(run: PaperRun, stage: str, entry: str, record: type[Stored]) -> list[Stored]:
    """Return the rows of a table of a run on atomic descriptions; none of another run, nor without the table."""
    table = run.read(stage, entry) if run.dataset == ATOMIC_CORPUS else None
    return [] if table is None else rows_of(record, table)


def _of_headroom(run: PaperRun) -> list[PaperCell]:
    rows = [row for row in rows_on_atomic(run, EVALUATION, "headroom", Headroom) if row.horizon == HORIZON]
    return [
        plain_cell(run, HEADROOM, f"top_{pool}", quantity, mean(getattr(row, name) for row in mine), mine[0])
        for pool in POOLS
        if (mine := [row for row in rows if row.pool == pool])
        for quantity, name in HEADROOM_FIELDS.items()
    ]


MOTIVATION = "motivation"
CONDITIONS = {
    "copy": "copy of the current latent",
    "none": "none",
    "text": "text",
    "trajectory": "trajectory",
    "text_and_trajectory": "text + trajectory",
    "shuffled_text": "shuffled text",
    "shuffled_trajectory": "shuffled trajectory",
}
STEPS_AHEAD = 1


def _of_conditions(run: PaperRun) -> list[PaperCell]:
    cells = []
    for row in rows_on_atomic(run, "latent_plans", "latent_conditions", ConditionScore):
        cell = partial(plain_cell, run, MOTIVATION, row.condition, horizon=STEPS_AHEAD, n_takes=row.n_takes)
        cells.append(cell("val_l1", row.l1, n_windows=row.n_pairs))
        if row.condition != "none":
            cells.append(cell("gain_over_none", row.gain, n_windows=row.n_pairs, low=row.low, high=row.high))
    return cells


ENDPOINT_CACHE = "qwen3vl_endpoint_cache"
ENDPOINTS = {
    "segments": "Endpoint segments",
    "R@1": "Endpoint R@1",
    "R@5": "Endpoint R@5",
    "exact_projection": "Exact projection to the text bank",
    "fallback_projection": "Fallback projection",
}
"""Row of the table `endpoint_cache` -> its printed name."""


def of_endpoints(run: PaperRun) -> list[PaperCell]:
    """Return the cells that a run fills; none of an untuned model, nor where only a sample was scored."""
    if of_a_sample(run):
        return []
    table = run.read("vlm_rows", "endpoint_cache")
    records = [] if table is None else table.to_pylist()
    return [
        plain_cell(run, ENDPOINT_CACHE, row["row"], metric, float(row[metric]))
        for row in records
        if row["row"] in ENDPOINTS and row["adapter"]
        for metric in ("count", "percentage")
    ]


GEOMETRY, MONOTONICITY = "vjepa_geometry", "monotonicity"
PAIRS = {
    ADJACENT: "Adjacent segments, same recording",
    FAR: "Far segments, same recording",
    SAME_ACTION: "Same action, different recording",
    RANDOM: "Random cross-recording pair",
}
"""Kind of pairs -> its printed name."""
SPLITS = {"test": "Test takes", "train": "Training takes"}
FRACTION = "monotonic_fraction"
PROGRESS = {"train": "Sampled training windows", "test": "All test windows", "null": "Random order, 1/(H-2)!"}
QUANTITY_HEADS = dict(zip(QUANTITIES, ("Mean l1 ↓", "Mean cosine ↑"), strict=True))
STAGE = "diagnostics"


def _of_geometry(run: PaperRun) -> list[PaperCell]:
    return [
        plain_cell(run, GEOMETRY, row.pairs, row.quantity, row.value, row, dataset=row.split)
        for row in rows_on_atomic(run, STAGE, "pair_distances", PairDistance)
    ]


def _of_progress(run: PaperRun) -> list[PaperCell]:
    rows = rows_on_atomic(run, STAGE, "progress_shares", ProgressShare)
    shares = [plain_cell(run, MONOTONICITY, row.split, FRACTION, row.share, row) for row in rows]
    chances = {row.horizon: row.chance for row in rows}
    return shares + [plain_cell(run, MONOTONICITY, "null", FRACTION, v, horizon=h) for h, v in sorted(chances.items())]


TABLES = (
    PaperTable(
        label=HEADROOM,
        title=f"What a pool of retrieved windows contains, H={HORIZON}",
        heads=("Pool",),
        lines=tuple(Line((f"top-{pool}",), f"top_{pool}", HORIZON) for pool in POOLS),
        columns=(
            Column("Mid same-step recall", ("same_step_recall",)),
            Column("Mid any-step recall", ("any_step_recall",)),
            Column("Cosine local / random", ("cosine_local", "cosine_random"), digits=3),
        ),
        cells=_of_headroom,
        of_methods=False,
        note="Recall in percent; means over the seeds. A pool that is larger than the run's setting was not run.",
        recipes=("atomic",),
    ),
    PaperTable(
        label=GEOMETRY,
        title="Distances between features of segments",
        heads=("Pair type",),
        lines=tuple(Line((title,), kind) for kind, title in PAIRS.items()),
        columns=tuple(
            Column(head, (metric,), over, split, digits=3)
            for split, over in SPLITS.items()
            for metric, head in QUANTITY_HEADS.items()
        ),
        cells=_of_geometry,
        of_methods=False,
        note="Pairs are sampled, one of each kind for each sampled segment; l1 is the mean over the components.",
        recipes=("atomic",),
    ),
    PaperTable(
        label=MONOTONICITY,
        title="True plans that come closer to the goal with every step, in the l1 distance of features",
        heads=("Windows",),
        lines=tuple(Line((title,), row) for row, title in PROGRESS.items()),
        columns=tuple(Column(f"H={h}", (FRACTION,), horizon=h, digits=1) for h in HORIZONS),
        cells=_of_progress,
        of_methods=False,
        note="Percent of the windows. Training windows are sampled with the seed.",
        recipes=("atomic",),
    ),
    table_of_scores(
        POSE_SCORES,
        title="Source of head motion at training → at test, Keystep",
        heads=("Setting",),
        lines=tuple(Line((title,), row, dataset="keystep") for row, title in POSES.items()),
        columns=headed({name: name for name in POSE_SCORES.metrics}),
        recipes=("keystep_poses",),
    ),
    table_of_scores(
        ACTION_SCORES,
        title="Action anticipation on EPIC-KITCHENS-100, our runs",
        heads=("Method",),
        lines=of_methods(("visual_only_probe", "no_traj", "scorer", "oracle")),
        columns=headed(ACTION_SCORES.metrics),
        recipes=("epic_kitchens", "epic_kitchens_patches"),
        rules=(3,),
        always="Clips whose pair of verb and noun is not in training are left out, as in V-JEPA 2. Rows that the paper "
        "takes from the literature are left out.",
    ),
    table_of_scores(
        SHOT_SCORES,
        title="Outcome of basketball shots",
        heads=("Method",),
        lines=of_methods(("no_traj", "attentive_probe", "scorer", "oracle")),
        columns=headed(dict(zip(PAPERS, ("Outcome Acc.", "Balanced Acc.", "Made Rec.", "Miss Rec."), strict=True))),
        recipes=("basketball",),
        rules=(3,),
        always="The probe reads temporal tokens of the clip (features.tokens=temporal), the paper's every patch.",
    ),
    PaperTable(
        label=MOTIVATION,
        title="Conditions of a predictor of future latents, H=1",
        heads=("Conditioning",),
        lines=tuple(Line((title,), row, STEPS_AHEAD) for row, title in CONDITIONS.items()),
        columns=(Column("l1 ↓", ("val_l1",), digits=4), Column("Gain over none", ("gain_over_none",), digits=3)),
        cells=_of_conditions,
        of_methods=False,
        void=(("none", "gain_over_none"),),
        note="Pairs of test takes; the epoch is chosen on dev. Layer-normalised latents, mean over components.",
        recipes=("atomic_latent",),
    ),
    PaperTable(
        label=ENDPOINT_CACHE,
        title="Recognition of the endpoints by a tuned vision-language model",
        heads=("Quantity",),
        lines=tuple(Line((title,), row) for row, title in ENDPOINTS.items()),
        columns=(Column("Count", ("count",), digits=0), Column("Percentage", ("percentage",))),
        cells=of_endpoints,
        of_methods=False,
        recipes=("vlm_sft",),
    ),
)
