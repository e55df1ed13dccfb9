"""What the study of planning in latents computes in a world beyond the stages of every run, and which stages these are.

No row of ours is trained: rows in latents need features, head motion, texts, and which takes are fitted.
"""

from typing import TYPE_CHECKING

from schemas.arrow import table_of
from schemas.config import EvaluationConfig
from schemas.latent_worlds import ConditionTake, EnergyTake
from trajpilot_core.engine.stage import AnyStage, Stage, Work
from trajpilot_core.stages import diagnostics, latent, latent_plans
from trajpilot_core.studies.claims.worlds.stages import FITTED, world_at, world_sources
from trajpilot_core.studies.planner_worlds.stages import levels_of

if TYPE_CHECKING:
    import pyarrow as pa

    from trajpilot_core.data.cross_fitting import Chain
    from trajpilot_core.data.planning import PlanningData

ROWS_STAGE = "latent_rows"
VERSION = 1  # raise when the numbers that this stage writes change


def score_rows(work: Work[EvaluationConfig]) -> None:
    """Score the rows in latents against their ceilings, and write conditions and energies take by take."""
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.evaluation.ceiling import compare, known_of_predictions, row_scores, score_tables
    from trajpilot_core.evaluation.prediction_arrays import predictions_of
    from trajpilot_core.stages.evaluation import score
    from trajpilot_core.studies.latent_worlds.rows import take_tables
    from trajpilot_core.training.loop import one_thread

    device = work.runtime.device
    data = load_planning_data(work.inputs, ROWS_STAGE).to(device)
    chain, entry = chains_of(data)[0], work.inputs.models("latent_models")
    table = with_majority(work.inputs.table("latent_predictions"), data, chain)
    predictions, world = predictions_of(table), world_at(work.runtime.data_root)
    takes = work.inputs.table("takes", ["take_id", "corpus", "capture", "split"]).to_pylist()
    known = known_of_predictions(world, predictions, work.inputs.table("segments"), work.inputs.table("windows"))
    for name, scores in score_tables(row_scores(predictions), known, compare(predictions, known)).items():
        work.sink.table(name, scores)
    work.sink.table("metrics", levels_of(score(predictions, takes, work.config)))
    with one_thread(device):
        conditions, energies = take_tables(entry, data, chain, device, work.runtime.progress)
    work.sink.table("condition_takes", table_of(ConditionTake, conditions))
    work.sink.table("energy_takes", table_of(EnergyTake, energies))
    work.sink.count(table.num_rows, table.num_rows)


def with_majority(table: "pa.Table", data: "PlanningData", chain: "Chain") -> "pa.Table":
    """Return predictions with those of the floor that shares of ceilings are counted from.

    Args:
        table: columns of `schemas.results.Prediction`, of every test window of the horizons that it has.
        data: what the floor counts labels in.
        chain: the final one.
    """
    import pyarrow as pa

    from trajpilot_core.data.planning import SPLITS
    from trajpilot_core.evaluation.predictions import prediction_table
    from trajpilot_core.methods.base import Answers
    from trajpilot_core.methods.floors import MAJORITY, mid_label_order
    from trajpilot_core.methods.plans import RANKED

    ids, shares = mid_label_order(data, chain)
    parts = [table]
    for seed in sorted(set(table["seed"].to_pylist())):
        for windows in data.windows.values():
            rows = (windows.split == SPLITS.index("test")).nonzero()[:, 0]
            of_windows = windows.segments[rows].shape
            told = Answers(ids[:RANKED].expand(*of_windows, -1), shares[:RANKED].expand(*of_windows, -1))
            parts += [prediction_table(MAJORITY.id, told, data, windows, rows, seed)] if len(rows) else []
    return pa.concat_tables(parts)


ROWS: Stage[EvaluationConfig] = Stage(
    name=ROWS_STAGE,
    reads=(
        "takes",
        "segments",
        "windows",
        "motions",
        "features",
        "text_bank",
        "folds",
        "latent_models",
        "latent_predictions",
    ),
    writes=("take_scores", "ceilings", "metrics", "condition_takes", "energy_takes"),
    config=EvaluationConfig,
    run=score_rows,
    version=VERSION,
    summary="score rows in latents against their ceilings, and write conditions and energies take by take",
    sources=world_sources,
    uses_gpu=True,
)


def stages_of() -> dict[str, AnyStage]:
    """Return the stages that a world goes through, in order."""
    return {stage.name: stage for stage in (*FITTED, diagnostics.STAGE, latent.STAGE, latent_plans.STAGE, ROWS)}
