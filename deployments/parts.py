"""Which stages of a named experiment wait for parts that are not built."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from schemas.config import RecipeName
from trajpilot_core.errors import NotBuiltError
from trajpilot_core.stages import STAGES


class Waits(NamedTuple):
    """What an experiment waits for."""

    what: str
    parts: Mapping[str, tuple[str, ...]]
    """Stage -> what has to be built before it can run."""


MISSING: dict[RecipeName, Waits] = {}
"""The paper's benchmarks whose later stages wait for parts; the stages that are not named here run. None does now."""


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
