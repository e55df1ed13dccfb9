"""The list of all stages of the pipeline, in order. Imports neither torch nor Prefect.

A new stage is a file in this folder that declares `STAGE`, with its import and its line in the list below. Plan and
status, the flows and their deployments, the forms, and the rejects in the report are derived from the list. Its
settings are a record and a field of PipelineConfig (schemas/config.py), or those of another stage. Tests then require
its row in docs/stages.md, and its pool in docs/operations.md.
"""

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.planning.plan import selected_of
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.stages import (
    action_token,
    alignment,
    diagnostics,
    evaluation,
    features,
    ingest,
    latent,
    outcome,
    planners,
    pose_sources,
    predictor,
    probe,
    report,
    scorer,
    text_bank,
    trajectories,
    vlm,
)

REPORTED: tuple[AnyStage, ...] = (
    ingest.STAGE,
    trajectories.STAGE,
    features.STAGE,
    diagnostics.STAGE,
    text_bank.STAGE,
    alignment.STAGE,
    predictor.STAGE,
    scorer.STAGE,
    evaluation.STAGE,
)
"""The stages of planning that every run has except the report, which shows the rejects of each."""
OPTIONAL: tuple[AnyStage, ...] = (planners.STAGE, latent.STAGE, latent.PLANS, vlm.STAGE, vlm.ROWS)
"""Stages of planning that run before the evaluation where settings enable them (`evaluation.further`)."""
OF_EVENTS: tuple[AnyStage, ...] = (
    ingest.STAGE,
    trajectories.STAGE,
    features.STAGE,
    text_bank.STAGE,
    alignment.STAGE,
    outcome.STAGE,
)
"""The stages of a corpus of events (CorpusSpec.is_of_events); the last writes its own pages."""
TWO_MOTIONS: tuple[AnyStage, ...] = (
    ingest.STAGE,
    trajectories.STAGE,
    trajectories.SECOND,
    features.STAGE,
    text_bank.STAGE,
    alignment.STAGE,
)
"""The stages that both kinds of run have that compare or add head motion from videos."""
OF_POSES: tuple[AnyStage, ...] = (*TWO_MOTIONS, pose_sources.STAGE)
"""The stages of the table of pose sources (PoseSourcesConfig.is_asked); the last writes its own pages."""
OF_ACTIONS: tuple[AnyStage, ...] = (ingest.STAGE, features.STAGE, probe.STAGE)
"""The stages of a corpus without plans (CorpusSpec.has_plans), before its report."""
OF_TOKENS: tuple[AnyStage, ...] = (*TWO_MOTIONS, probe.STAGE, action_token.STAGE)
"""The same, with TrajPilot's token in the probe (ActionTokenConfig.is_asked)."""
STAGES: dict[str, AnyStage] = {
    stage.name: stage for stage in (*REPORTED, report.report_on(REPORTED, (*OPTIONAL, probe.STAGE)))
}
"""Stages of a default run of planning."""
EVERY_STAGE: dict[str, AnyStage] = STAGES | {
    stage.name: stage for stage in (*OF_EVENTS, *OF_POSES, *OF_TOKENS, *OPTIONAL)
}
"""All stages that a run can have, for commands, flows and forms."""


def stages_of(config: PipelineConfig) -> dict[str, AnyStage]:
    """Return the stages of a run with these settings, by the kind of its corpus and by what is enabled."""
    if config.pose_sources.is_asked:
        return {stage.name: stage for stage in OF_POSES}
    if spec_of(config.ingest.corpus).is_of_events:
        return {stage.name: stage for stage in OF_EVENTS}
    if not spec_of(config.ingest.corpus).has_plans:
        alone = OF_TOKENS if config.action_token.is_asked else OF_ACTIONS
        return {stage.name: stage for stage in (*alone, STAGES["report"])}
    if config.vlm.rows:
        vlm.refuse_settings(config)
    more = [stage for stage in OPTIONAL if stage.name in evaluation.further(config)]
    return {stage.name: stage for stage in (*REPORTED[:-1], *more, evaluation.STAGE, STAGES["report"])}


def selected(run: RunOptions, config: PipelineConfig) -> list[str]:
    """Return the names of the stages that `run` selects, in order. Raises InputError: a run has no such stage."""
    return selected_of(stages_of(config), run)
