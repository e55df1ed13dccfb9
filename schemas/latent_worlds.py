"""Planning in latents in simulated worlds: what is fixed beforehand, and the tables that only this study has.

Reasons: docs/decisions/latent-planning.md.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Record
from schemas.latent import Condition, Energy
from schemas.world import WorldConfig, claims_world

LatentWorldsPart = Literal["development", "final"]
"""development: the world `base` of the seed that recipes are chosen on; nothing of it is published. final: all
worlds."""
LatentWorld = Literal["base", "no_information", "plain_looks", "straight"]
BASE: LatentWorld = "base"
NO_INFORMATION: LatentWorld = "no_information"
PLAIN_LOOKS: LatentWorld = "plain_looks"
STRAIGHT: LatentWorld = "straight"
LATENT_WORLDS: tuple[LatentWorld, ...] = (BASE, NO_INFORMATION, PLAIN_LOOKS, STRAIGHT)
CHANGES: dict[LatentWorld, dict[str, float | bool]] = {
    BASE: {},
    NO_INFORMATION: {"kappa": 0.0, "style": 0.0},
    PLAIN_LOOKS: {"label_appearance": 0.0, "place_fidelity": 0.0},
    STRAIGHT: {"straight": True, "scene": 0.0},
}
"""What differs from `base`: motion that tells nothing; looks that do not name the label; features in which distance is
progress, in one room."""


RUN_DIGEST = "a042bd6ffba17881d162ddea2a9ed0d8eaa2d8dc20c5ed0370ccc7867d38a041"
"""Digest of `LatentWorldsConfig`, the recipe `latents_in_worlds` and the final worlds (`tables.digest_of`): what was
fixed before a final world was computed. Other settings are refused."""


class LatentWorldsConfig(Record):
    """Sizes, margins and seeds. No other file repeats these numbers."""

    fixed_on: str = Field("2026-11-25", pattern=r"^\d{4}-\d{2}-\d{2}$")
    """Date on which these values were fixed, before a world of the final seed was computed."""
    development_seed: int = Field(900, ge=0)
    """Of the world that recipes are chosen on."""
    seed: int = Field(910, ge=0)
    """Of the final worlds; each is sampled for itself."""
    train_takes: int = Field(400, ge=1)
    """Training takes of each world, dev takes included."""
    test_takes: int = Field(100, ge=1)
    horizons: tuple[int, ...] = Field((3, 4, 5), min_length=2)
    """H."""
    short: int = Field(3, ge=3)
    """Horizon at which CEM must recover in the straight world: its one middle step is the one whose latent the energy
    compares. Steps before the last middle move the energy little or not at all, so that beyond it they stay where
    chance has put them."""
    l1_margin: float = Field(1.0, gt=0)
    """Equivalence margin of conditions, hundredths of l1."""
    l1_target_se: float = Field(0.31, gt=0)
    """Largest standard error at which their equivalence is judged: as to the margin, that of the claims."""
    accuracy_margin: float = Field(3.0, gt=0)
    """Equivalence margin of Full mAcc, points."""
    accuracy_target_se: float = Field(0.92, gt=0)
    """Likewise."""
    correlation_margin: float = Field(0.1, gt=0, lt=1)
    """Pearson's r that says little: below a hundredth of the variance."""
    correlation_target_se: float = Field(0.031, gt=0)
    """Likewise."""
    bootstrap: int = Field(5_000, ge=100)
    """Resamples of takes."""


def latent_world(name: LatentWorld, seed: int, cfg: LatentWorldsConfig) -> WorldConfig:
    """Return one of the worlds.

    One procedure that every take walks through step by step, so that it is asked which alternative comes next, not
    where one is. In `base` looks and head motion both name it.
    """
    return claims_world().replace(
        **{
            "name": f"latent_{name}",
            "fixed_on": cfg.fixed_on,
            "seed": seed,
            "entry": "latents",
            "broken": "none",
            "broken_share": 0.0,
            "tasks": 1,
            "positions": 8,
            "intents": 4,
            "advance": (0.0, 1.0, 0.0, 0.0),
            "label_appearance": 8.0,
            "kappa": 4.0,
            "train_takes": cfg.train_takes,
            "test_takes": cfg.test_takes,
            "segments": 10,
            **CHANGES[name],
        }
    )


class ConditionTake(Record):
    """What predictions of the next latent got under one condition on the test pairs of one take."""

    condition: Condition
    seed: int
    take_id: str
    n_pairs: int
    total: float
    """Sum of l1 over the pairs, in hundredths."""


class EnergyTake(Record):
    """Sums over the drawn training windows of one take, of which correlations of any set of takes can be made."""

    seed: int
    horizon: int
    energy: Energy
    motion: Literal["bank", "own"]
    """Whose head motion the plans follow."""
    take_id: str
    n_windows: int
    energy_sum: float
    """Of the l1 energy."""
    energy_squares: float
    accuracy_sum: float
    """Of the share of middle steps that are right."""
    accuracy_squares: float
    products: float
