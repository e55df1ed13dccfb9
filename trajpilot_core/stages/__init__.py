"""Every stage of the pipeline, in order: the only list. Imports neither torch nor Prefect.

A new stage is a file of this folder that declares `STAGE`, with its import and its line in the list below. Plan and
status, the flows and their deployments, the forms, and the rejects that the report shows follow from the list. Settings
of its own are a record and a field of PipelineConfig (schemas/config.py); without them it names those of another stage.
Tests then ask for its row in the README's table, its line in deployments/prefect.yaml, and its pool in
docs/operations.md.
"""

from schemas.config import RunOptions
from trajpilot_core.engine.select import selected_of
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.stages import (
    alignment,
    attention,
    diagnostics,
    evaluation,
    feature_space,
    features,
    ingest,
    label_effects,
    planners,
    predictor,
    probe,
    report,
    scorer,
    text_bank,
    trajectories,
)

REPORTED: tuple[AnyStage, ...] = (
    ingest.STAGE,
    trajectories.STAGE,
    features.STAGE,
    diagnostics.STAGE,
    text_bank.STAGE,
    alignment.STAGE,
    predictor.STAGE,
    label_effects.STAGE,
    scorer.STAGE,
    attention.STAGE,
    planners.STAGE,
    probe.STAGE,
    evaluation.STAGE,
)
"""All stages but the report, which shows what each of them rejected."""
STAGES: dict[str, AnyStage] = {stage.name: stage for stage in (*REPORTED, report.report_on(REPORTED))}

FEATURE_SPACE_STAGES: dict[str, AnyStage] = {
    stage.name: stage
    for stage in (
        feature_space.TABLES,
        feature_space.FEATURES,
        text_bank.STAGE,
        alignment.STAGE,
        predictor.STAGE,
        label_effects.STAGE,
        scorer.STAGE,
        attention.STAGE,
        planners.STAGE,
        evaluation.STAGE,
    )
}
"""For simulated worlds that enter by features (docs/decisions/claims.md)."""


def selected(run: RunOptions) -> list[str]:
    """Return the names of the stages that `run` asks for, in order.

    Raises:
        InputError: a name is not a stage.
    """
    return selected_of(STAGES, run)
