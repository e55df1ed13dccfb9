"""Which stages a world of the claims goes through."""

from collections.abc import Mapping

from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.stages import FEATURE_SPACE_STAGES, STAGES
from trajpilot_core.studies.claims.worlds import stages as evidence
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld, WorldKind

BASE_STAGES: dict[str, AnyStage] = {
    **{name: stage for name, stage in STAGES.items() if name != "report"},
    evidence.CHECKS.name: evidence.CHECKS,
    evidence.PROGRESS.name: evidence.PROGRESS,
    evidence.STUDY.name: evidence.STUDY,
}
CONTROL_STAGES: dict[str, AnyStage] = {**FEATURE_SPACE_STAGES, evidence.CHECKS.name: evidence.CHECKS}
SWEEP_STAGES: dict[str, AnyStage] = {
    **{name: stage for name, stage in FEATURE_SPACE_STAGES.items() if name not in ("scorer", "evaluation")},
    evidence.SWEEP.name: evidence.SWEEP,
}
SCENE_STAGES: dict[str, AnyStage] = {
    **{name: FEATURE_SPACE_STAGES[name] for name in ("feature_space", "feature_space_features")},
    evidence.GEOMETRY.name: evidence.GEOMETRY,
}
STAGES_OF: Mapping[WorldKind, dict[str, AnyStage]] = {
    "base": BASE_STAGES,
    "control": CONTROL_STAGES,
    "sweep": SWEEP_STAGES,
    "scene": SCENE_STAGES,
}


def stages_of(world: PlannedWorld) -> dict[str, AnyStage]:
    """Return the stages that a world goes through, in order."""
    return STAGES_OF[world.kind]
