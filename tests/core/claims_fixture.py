"""Made-up tables of the claims with planted effects, for the tests of statistics, rules and pages."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from zlib import crc32

import numpy as np

from schemas.base import Record
from schemas.claims import (
    BASE,
    DRAWN,
    NO_INFORMATION,
    NO_SCENE,
    NO_STYLE,
    ClaimsConfig,
    ClaimsJob,
    ClaimsRun,
    sweep_worlds,
)  # fmt: skip
from schemas.results import (
    Ceiling,
    CurvePoint,
    GateRow,
    GeometryScore,
    GoalProgress,
    Headroom,
    Judgement,
    LeakCheck,
    ScorerStudy,
    TakeScore,
)  # fmt: skip
from trajpilot_core.claims.tables import KINDS, RUN_FILE, Evidence, Placed, read_evidence, write_claims_table

CFG = ClaimsConfig(bootstrap=400)
INFORMED: dict[str, float] = {
    "no_traj": 25, "endpoint_traj": 32, "scorer": 35, "scorer_plus": 38, "oracle": 60, "top1": 20, "knn_labels": 30,
    "pool_mean": 34, "shuffled": 8, "scorer_permuted": 26, "scorer_no_labels": 28, "scorer_no_motion": 29,
    "majority": 5, "ceiling/no_traj": 35, "ceiling/endpoint_traj": 45, "ceiling/oracle": 75,
}  # fmt: skip
"""M@1 of each row at H=3, percent."""
BLIND: dict[str, float] = {row: 25.0 for row in INFORMED if row != "majority"} | {
    "majority": 5.0, "scorer": 27.0, "scorer_permuted": 27.0,
}  # fmt: skip
NO_INTENT = INFORMED | {"scorer": 26.0, "endpoint_traj": 27.0, "scorer_plus": 27.0}
DISTANCES = (1.0, 2.0, 3.0, 4.0)
SWAPPED = (1.0, 3.0, 2.0, 4.0)
MODELS = ("no_traj", "endpoint_traj", "traj", "scorer", "scorer_plus", "scorer_no_labels", "scorer_no_motion")


@dataclass
class Planted:
    """What the made-up worlds show; change a field to plant another effect."""

    levels: dict[str, Mapping[str, float]] = field(
        default_factory=lambda: {
            BASE: INFORMED, DRAWN: INFORMED, NO_INFORMATION: BLIND, NO_STYLE: NO_INTENT,
        }
    )  # fmt: skip
    """World -> row -> M@1 at H=3."""
    widening: float = 2.0
    """Points that the middle of Oracle gains over the others per step of H."""
    noise: float = 4.0
    """Standard deviation of a row's own noise per take, points."""
    n_takes: int = 30
    seed_shift: dict[tuple[str, str], tuple[float, ...]] = field(default_factory=dict)
    """(world, row) -> points added in each seed."""
    distances: dict[str, tuple[float, ...]] = field(default_factory=lambda: {BASE: DISTANCES, NO_SCENE: SWAPPED})
    undertrained: tuple[str, ...] = ()
    """Models of the final chain in the world `base` that are not trained."""
    missing: tuple[tuple[str, int], ...] = ()
    """(world, seed) that were not run."""


def with_sweep(planted: Planted) -> Planted:
    """Add the worlds of the sweep."""
    planted.levels |= {world: _swept(kappa, style) for world, (kappa, style) in sweep_worlds(CFG).items()}
    return planted


def _swept(kappa: float, style: float) -> dict[str, float]:
    return {
        "no_traj": 25, "endpoint_traj": 25 + kappa + 2 * style, "oracle": 25 + 15 * kappa + style,
        "ceiling/no_traj": 35, "ceiling/endpoint_traj": 36 + kappa + 3 * style,
        "ceiling/oracle": 40 + 17 * kappa + style,
    }  # fmt: skip


def seeds_of(world: str) -> tuple[int, ...]:
    return (0,) if world.startswith("sweep") else CFG.seeds


def scores(planted: Planted) -> list[tuple[Placed, TakeScore]]:
    rows: list[tuple[Placed, TakeScore]] = []
    for world, levels in planted.levels.items():
        for seed in seeds_of(world):
            if (world, seed) not in planted.missing:
                rows += _world_scores(planted, world, seed, levels)
    return rows


def _world_scores(
    planted: Planted, world: str, seed: int, levels: Mapping[str, float]
) -> list[tuple[Placed, TakeScore]]:
    rng = np.random.default_rng([crc32(world.encode()), seed])
    of_take, n_windows = rng.normal(0, 6, planted.n_takes), rng.integers(6, 12, planted.n_takes)
    rows = []
    for row, level in levels.items():
        own = np.random.default_rng([crc32(f"{world} {row}".encode()), seed])
        shift = planted.seed_shift.get((world, row), (0.0, 0.0, 0.0))[seed]
        noise = own.normal(0, planted.noise, (planted.n_takes, len(CFG.horizons)))
        for place, horizon in enumerate(CFG.horizons):
            gain = planted.widening * place if row.endswith("oracle") and level > 30 else 0.0
            m1 = level + shift + gain + of_take + noise[:, place]
            rows += [
                (
                    Placed(world, seed),
                    _take_score(row, seed, take, horizon, int(n_windows[take] - place // 2), m1[take]),
                )
                for take in range(planted.n_takes)
            ]
    return rows


def _take_score(row: str, seed: int, take: int, horizon: int, n: int, m1: float) -> TakeScore:
    return TakeScore(
        variant=row, seed=seed, take_id=f"t{take:03d}", horizon=horizon, n_windows=n, m1=n * m1, m5=n * (m1 + 20),
        mseq=n * (0.6 * m1), f1=n * m1, f5=n * (m1 + 20), fseq=n * (0.4 * m1),
    )  # fmt: skip


def geometry(planted: Planted) -> list[tuple[Placed, GeometryScore]]:
    rows: list[tuple[Placed, GeometryScore]] = []
    for world, distances in planted.distances.items():
        for seed in seeds_of(world):
            rng = np.random.default_rng([crc32(world.encode()), seed])
            rows += [
                (Placed(world, seed), GeometryScore(take_id=f"t{take:03d}", kind=kind, distance=10 * d, n=10))
                for take in range(planted.n_takes)
                for kind, d in zip(KINDS, np.asarray(distances) + rng.normal(0, 0.2, 4), strict=True)
            ]
    return rows


def judgements(planted: Planted) -> list[tuple[Placed, Judgement]]:
    return [
        (Placed(world, seed), Judgement(
            check=f"trained: final/{model}, seed {seed}",
            verdict="undertrained" if world == BASE and model in planted.undertrained else "holds",
            detail="dev M@1 20.0 % (majority 5.0, previous 8.0)",
        ))
        for world in planted.levels for seed in seeds_of(world) for model in MODELS
    ]  # fmt: skip


def small_tables() -> dict[str, list[tuple[Placed, Record]]]:
    """The tables whose figures no verdict rests on."""
    of_seeds = [Placed(BASE, seed) for seed in CFG.seeds]
    gate = [
        (place, GateRow(horizon=h, seed=place.seed, open_rate=50.0, gain_opened=10.0, gain_overall=5.0, harmed=20.0,
                        n_opened=50, n_windows=100))
        for place in of_seeds for h in (*CFG.horizons, None)
    ]  # fmt: skip
    headroom = [
        (place, Headroom(seed=place.seed, horizon=h, pool=pool, same_step_recall=40.0 + pool,
                         any_step_recall=45.0 + pool, endpoint_cosine=0.8, endpoint_cosine_random=0.1,
                         best_mid_cosine=0.6, best_mid_cosine_random=0.3,
                         oracle_m1=45.0 + pool, oracle_mseq=30.0 + pool, n_windows=100))
        for place in of_seeds for h in CFG.horizons for pool in (1, 5, 16, 32)
    ]  # fmt: skip
    curves = [
        (place, CurvePoint(model=f"final/{model}", seed=place.seed, epoch=epoch, split="dev", quantity="M@1",
                           value=0.3 * (1 - 0.7**epoch)))
        for place in of_seeds for model in MODELS for epoch in range(1, 9)
    ]  # fmt: skip
    ceilings = [
        (place, Ceiling(variant=row, horizon=None, metric=metric, value=25.0, ceiling=35.0, difference=-10.0,
                        standard_error=1.0, n_takes=30, n_windows=1000, binding=True, above=False))
        for place in of_seeds for row in ("no_traj", "endpoint_traj", "scorer") for metric in ("M@1", "MSeq")
    ]  # fmt: skip
    leaks = [
        (place, LeakCheck(check="leak: motion", value=19.0, bound=60.0, verdict="holds", detail="accuracy, %"))
        for place in of_seeds
    ]  # fmt: skip
    study = [
        (place, ScorerStudy(model=model, seed=place.seed, share=count / 20, n_queries=count + place.seed,
                            horizon=None, quantity=quantity,
                            value=value + count / 500 + place.seed, n_windows=100))
        for place in of_seeds for model in ("scorer", "scorer_no_labels") for count in (500, 2000)
        for quantity, value in (("M@1", 30.0), ("open rate", 60.0), ("rank: best candidate chosen", 12.0))
    ]  # fmt: skip
    progress = [
        (place, GoalProgress(take_id=f"t{t:02}", horizon=h, n_windows=24, monotone=12))
        for place in of_seeds for t in range(12) for h in CFG.horizons
    ]  # fmt: skip
    few = {"study": study, "leaks": leaks, "goal_progress": progress}
    return {**few, "gate": gate, "headroom": headroom, "curves": curves, "ceilings": ceilings}


def write_all(folder: Path, planted: Planted) -> None:
    """Write every table and run.json into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    write_claims_table(folder, "scores", scores(planted))
    write_claims_table(folder, "geometry", geometry(planted))
    write_claims_table(folder, "judgements", judgements(planted))
    for name, rows in small_tables().items():
        write_claims_table(folder, name, rows)
    jobs = (
        ClaimsJob(world=BASE, seed=0, job="predictor/no_traj", status="done", seconds=90.0),
        ClaimsJob(world=NO_SCENE, seed=2, job="geometry", status="not run", seconds=None, note="no time"),
    )
    run = ClaimsRun(date="2026-11-21", config_digest="0" * 64, machine="2 cores", device="cpu", jobs=jobs)
    (folder / RUN_FILE).write_text(run.model_dump_json())


def evidence_of(folder: Path, planted: Planted) -> Evidence:
    """Write the tables that verdicts rest on, and read everything back."""
    write_claims_table(folder, "scores", scores(planted))
    write_claims_table(folder, "geometry", geometry(planted))
    write_claims_table(folder, "judgements", judgements(planted))
    return read_evidence(folder, CFG.horizons)
