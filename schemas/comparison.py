"""The planners of other papers in simulated worlds: what is fixed beforehand, and the table that only they have.

Reasons: docs/decisions/planners.md.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Record
from schemas.world import WorldConfig, claims_world, demo_world

WorldPart = Literal["pilot", "deterministic", "development", "claims"]
"""pilot: a deterministic world of another seed, on which its settings are chosen. development: the development world
of the claims, for the same purpose; nothing of either is published. claims: the worlds `base` of the claims."""
PUBLISHED: tuple[WorldPart, ...] = ("deterministic", "claims")
"""Parts that have a folder of tables below docs/comparison."""
DEVELOPMENT_SEED = 900
"""Of the world that settings of the claims are chosen on; none that a claim uses."""


class PlannerWorldsConfig(Record):
    """Horizons, margins, caps and seeds. No other file repeats these numbers."""

    fixed_on: str = Field("2026-11-23", pattern=r"^\d{4}-\d{2}-\d{2}$")
    """Date on which these values were fixed, before the final seed of the deterministic world was computed."""
    horizons: tuple[int, ...] = Field((3, 5, 8), min_length=2)
    """H; a planner has one model for each."""
    within: float = Field(5.0, gt=0)
    """Points of M@1 that a planner may lie below its exact ceiling in the deterministic world."""
    deterministic_cap_s: float = Field(240.0, gt=0)
    """Seconds of one thread that all trainings of a planner may take there, their measures on dev included."""
    claims_cap_s: float = Field(600.0, gt=0)
    """The same in the development world and in each of those of the claims; set 2026-11-25, before they were run."""
    pilot_seed: int = Field(901, ge=0)
    """Of the pilot's world."""
    deterministic_seed: int = Field(902, ge=0)
    """Of the deterministic world whose figures are printed."""
    development_takes: int = Field(1500, ge=3)
    """Takes of the development world; a third are tested on."""

    def cap_s(self, part: WorldPart) -> float:
        """Return what one planner may take in one world of a part, seconds of one thread."""
        return self.deterministic_cap_s if part in ("pilot", "deterministic") else self.claims_cap_s


class PlannerCost(Record):
    """What the training of one planner took, all its epochs and their measures on dev included."""

    method: str
    seed: int
    horizon: int
    thread_s: float | None
    """Seconds of one thread; None where nobody timed it."""
    is_whole: bool
    """False where an earlier call was killed in the middle: then it took more."""


def development_world(seed: int, takes: int) -> WorldConfig:
    """Return a world of the claims' settings that enters by latents; every third take is tested."""
    test = takes // 3
    whole = {"broken": "none", "broken_share": 0.0, "train_takes": takes - test, "test_takes": test}
    return claims_world().replace(seed=seed, entry="latents", **whole)


def deterministic_world(seed: int) -> WorldConfig:
    """Return a world in which every take walks through its procedure step by step, as its intent says.

    Looks tell the label, so that it is asked whether a planner puts the ends together, not whether it sees them.
    """
    return demo_world().replace(
        name="deterministic",
        fixed_on="2026-11-23",
        seed=seed,
        entry="latents",
        broken="none",
        broken_share=0.0,
        rho=1.0,
        advance=(0.0, 1.0, 0.0, 0.0),
        tasks=2,
        label_appearance=6.0,
        scene=0.0,
        train_takes=600,
        test_takes=200,
    )
