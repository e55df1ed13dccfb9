"""The leak checks: that a simulated world gives no answer away, and that nothing of its test was used in training.

Each check has its bound and its reason in docs/decisions/claims-checks.md, and a test that plants what it must find.
"""

from collections.abc import Sequence

from schemas.checks import LeakConfig
from schemas.results import LeakCheck
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.studies.claims.leaks.choices import choice_checks
from trajpilot_core.studies.claims.leaks.context import Provenance, load_material
from trajpilot_core.studies.claims.leaks.scorers import scorer_checks
from trajpilot_core.studies.claims.leaks.tables import table_checks
from trajpilot_core.studies.claims.leaks.world import world_checks


def leak_checks(
    inputs: Inputs, world: World, provenance: Provenance, config: LeakConfig, without: Sequence[str] = ()
) -> list[LeakCheck]:
    """Run every leak check on one world; on dev and training takes, never on test answers.

    Args:
        inputs: the entries that the stage evaluation reads, and its `predictions`.
        world: sampled from `provenance.stored`.
        provenance: which world was asked for, which lies there, and when.
        config: the bounds.
        without: entries that this kind of run does not have; the checks that need them are `not run`.
    """
    material = load_material(inputs, world, provenance, config, without)
    return [
        *world_checks(material),
        *table_checks(material),
        *choice_checks(material),
        *scorer_checks(material),
    ]
