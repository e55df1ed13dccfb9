"""Made-up tables of the study of planning in latents, with planted effects."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np
from claims_fixture import write_claims_table

from schemas.claims import ClaimScore
from schemas.latent import LATENT_VARIANTS
from schemas.latent_worlds import (
    BASE,
    LATENT_WORLDS,
    NO_INFORMATION,
    PLAIN_LOOKS,
    STRAIGHT,
    ConditionTake,
    EnergyTake,
    LatentWorldsConfig,
)
from schemas.results import Judgement
from trajpilot_core.studies.claims.evidence.tables import Origin
from trajpilot_core.studies.latent_worlds.tables import LatentTables, read_tables

CFG = LatentWorldsConfig(bootstrap=300)
TAKES, WINDOWS = 40, 10
INFORMED = {
    "copy": 40.0,
    "none": 30.0,
    "text": 20.0,
    "trajectory": 22.0,
    "text_and_trajectory": 17.0,
    "shuffled_text": 34.0,
    "shuffled_trajectory": 33.0,
}
"""Hundredths of l1."""
BLIND = INFORMED | {"trajectory": 30.0, "text_and_trajectory": 20.0, "shuffled_trajectory": 20.0}
PLAIN = INFORMED | {"text": 30.0}
PLANS = {
    "latent_no_traj": 50.0,
    "latent_oracle": 75.0,
    "cem": 35.0,
    "cem_bank": 40.0,
    "majority": 5.0,
    "ceiling/no_traj": 65.0,
    "ceiling/oracle": 95.0,
}
"""Full mAcc and M@1 at every H, percent."""


@dataclass
class Planted:
    """What the made-up worlds show; change a field to plant another effect."""

    l1: dict[str, Mapping[str, float]] = field(
        default_factory=lambda: {BASE: INFORMED, NO_INFORMATION: BLIND, PLAIN_LOOKS: PLAIN, STRAIGHT: INFORMED}
    )
    plans: dict[str, Mapping[str, float]] = field(
        default_factory=lambda: dict.fromkeys(LATENT_WORLDS, PLANS) | {STRAIGHT: PLANS | {"cem": 50.5}}
    )
    r: dict[str, float] = field(default_factory=lambda: {BASE: 0.0, STRAIGHT: -0.6})
    undertrained: tuple[tuple[str, str], ...] = ()
    """(world, model)."""


def tables_of(folder: Path, planted: Planted) -> LatentTables:
    """Write the tables that the claims have, read them back, and add the others."""
    folder.mkdir(parents=True, exist_ok=True)
    write_claims_table(folder, "scores", [row for world in planted.plans for row in scores(planted, world)])
    write_claims_table(folder, "judgements", judgements(planted))
    conditions = tuple(row for world in planted.l1 for row in condition_rows(planted, world))
    energies = tuple(row for world in planted.r for row in energy_rows(planted, world))
    return read_tables(folder, CFG.horizons)._replace(condition_takes=conditions, energy_takes=energies)


def noise_of(*what: object) -> np.random.Generator:
    return np.random.default_rng(crc32(repr(what).encode()))


def take(number: int) -> str:
    return f"t{number:03d}"


def scores(planted: Planted, world: str) -> list[tuple[Origin, ClaimScore]]:
    of_take = noise_of(world).normal(0, 5, TAKES)
    rows = []
    for row, level in planted.plans[world].items():
        for horizon in CFG.horizons:
            found = level + of_take + noise_of(world, row, horizon).normal(0, 2, TAKES)
            rows += [
                (
                    Origin(world, CFG.seed),
                    ClaimScore(
                        variant=row,
                        seed=CFG.seed,
                        take_id=take(n),
                        horizon=horizon,
                        n_windows=WINDOWS,
                        m1=WINDOWS * value,
                        mseq=WINDOWS * value / 2,
                        f1=WINDOWS * value,
                    ),
                )
                for n, value in enumerate(found)
            ]
    return rows


def judgements(planted: Planted) -> list[tuple[Origin, Judgement]]:
    return [
        (
            Origin(world, CFG.seed),
            Judgement(
                check=f"trained: final/{model}, seed {CFG.seed}",
                verdict="undertrained" if (world, model) in planted.undertrained else "holds",
                detail="",
            ),
        )
        for world in LATENT_WORLDS
        for model in LATENT_VARIANTS
    ]


def condition_rows(planted: Planted, world: str) -> list[tuple[Origin, ConditionTake]]:
    of_take = noise_of(world, "l1").normal(0, 3, TAKES)
    return [
        (
            Origin(world, CFG.seed),
            ConditionTake.model_validate(
                {
                    "condition": condition,
                    "seed": CFG.seed,
                    "take_id": take(n),
                    "n_pairs": WINDOWS,
                    "total": WINDOWS * (level + of_take[n] + own),
                }
            ),
        )
        for condition, level in planted.l1[world].items()
        for n, own in enumerate(noise_of(world, condition).normal(0, 0.5, TAKES))
    ]


def energy_rows(planted: Planted, world: str) -> list[tuple[Origin, EnergyTake]]:
    rows = []
    r = planted.r[world]
    for horizon in CFG.horizons:
        drawn = noise_of(world, horizon)
        for n in range(TAKES):
            energy = drawn.normal(size=50)
            right = r * energy + np.sqrt(1 - r**2) * drawn.normal(size=50)
            sums = {
                "energy_sum": energy.sum(),
                "energy_squares": (energy**2).sum(),
                "accuracy_sum": right.sum(),
                "accuracy_squares": (right**2).sum(),
                "products": (energy * right).sum(),
            }
            head = {"seed": CFG.seed, "horizon": horizon, "energy": "last_mid", "motion": "bank", "take_id": take(n)}
            row = EnergyTake.model_validate({**head, "n_windows": 50, **{k: float(v) for k, v in sums.items()}})
            rows.append((Origin(world, CFG.seed), row))
    return rows
