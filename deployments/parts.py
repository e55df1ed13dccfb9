"""Which stages of a named experiment wait for parts that are not built, and which a run of it has."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from schemas.config import RecipeName, RunOptions
from trajpilot_core.errors import NotBuiltError
from trajpilot_core.stages import STAGES


class Waits(NamedTuple):
    """What an experiment waits for."""

    what: str
    parts: Mapping[str, tuple[str, ...]]
    """Stage -> what has to be built before it can run."""


GOAL_FREE = "start-only retrieval, scorer and metrics for anticipation"
TOKEN = "event form of the predictor, whose embedding goes into the attentive probe"


EPIC: tuple[RecipeName, ...] = ("epic_kitchens", "demo_epic_kitchens")
PLANNING = ("predictor", "label_effects", "scorer", "attention", "planners", "evaluation")
EPIC_WAITS = Waits("TrajPilot's token in the probe of EPIC-KITCHENS-100", dict.fromkeys(PLANNING, (TOKEN, GOAL_FREE)))

MISSING: dict[RecipeName, Waits] = dict.fromkeys(EPIC, EPIC_WAITS)
"""The paper's benchmarks whose later stages wait for parts; the stages that are not named here run."""

PARTS: dict[RecipeName, tuple[str, ...]] = dict.fromkeys(EPIC, ("ingest", "features", "probe", "report"))
"""Recipe -> the stages of a run that names none, where these are not all."""


def with_parts(run: RunOptions) -> RunOptions:
    """Return a run that names no stage with those of its recipe, where these are not all."""
    parts = PARTS.get(run.recipe)
    return run if parts is None or run.only or run.from_stage else run.replace(only=parts)


def check_built(name: str, stages: Iterable[str]) -> None:
    """Refuse stages of an experiment that wait for parts, before anything runs.

    Args:
        name: recipe of the run.
        stages: those that are asked for.

    Raises:
        NotBuiltError: names the parts that are missing and the stages that can be run.
    """
    waits = next((found for known, found in MISSING.items() if known == name), None)
    if waits is None:
        return
    what, waiting = waits
    refused = [stage for stage in stages if stage in waiting]
    if not refused:
        return
    parts = dict.fromkeys(part for stage in refused for part in waiting[stage])
    can = " ".join(f"--only {stage}" for stage in STAGES if stage not in waiting)
    raise NotBuiltError(
        f"recipe {name} ({what}): {', '.join(refused)} cannot run, not built yet: {'; '.join(parts)}. "
        f"Its other stages can: {can}"
    )
