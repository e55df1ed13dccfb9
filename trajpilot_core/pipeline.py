"""Every stage of the pipeline, in order: the only list. Imports neither torch nor Prefect."""

from schemas.config import RunOptions
from trajpilot_core.stages import (
    alignment,
    drawn,
    evaluation,
    features,
    ingest,
    predictor,
    report,
    scorer,
    text_bank,
    trajectories,
)
from trajpilot_core.stages.select import selected_of
from trajpilot_core.stages.stage import Stage

STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        ingest.STAGE,
        trajectories.STAGE,
        features.STAGE,
        text_bank.STAGE,
        alignment.STAGE,
        predictor.STAGE,
        scorer.STAGE,
        evaluation.STAGE,
        report.STAGE,
    )
}

DRAWN_STAGES: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        drawn.TABLES, drawn.FEATURES, text_bank.STAGE, alignment.STAGE, predictor.STAGE, scorer.STAGE, evaluation.STAGE,
    )
}  # fmt: skip
"""For simulated worlds that enter by features (docs/decisions/claims.md)."""


def selected(run: RunOptions) -> list[str]:
    """Return the names of the stages that `run` asks for, in order.

    Raises:
        InputError: a name is not a stage.
    """
    return selected_of(STAGES, run)
