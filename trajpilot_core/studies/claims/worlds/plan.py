"""Which worlds the claims compute, what each is, and with which configuration. Source: docs/decisions/claims.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from schemas.claims import (
    BASE,
    ENTRIES,
    MAIN,
    NO_INFORMATION,
    NO_STYLE,
    ClaimsConfig,
    ClaimsJob,
    JobStatus,
    curve_worlds,
    sweep_worlds,
    world_names,
)
from schemas.config import PipelineConfig, RunOptions
from schemas.training import AlignmentConfig
from schemas.world import WorldConfig, claims_world
from trajpilot_core.errors import InputError, WorldError

WorldKind = Literal["main", "entry", "curve", "sweep"]
CHANGES: Mapping[str, dict[str, float]] = {
    BASE: {},
    NO_STYLE: {"style": 0.0},
    NO_INFORMATION: {"kappa": 0.0, "style": 0.0},
}
"""What differs from the settings of `base`."""
SQUARE_WORLDS = (BASE, NO_INFORMATION)
"""Worlds of the 2 x 2 of retrieval attention, where each of its variants is trained; elsewhere only the main row is."""


class PlannedWorld(NamedTuple):
    """One world of one seed: sampled independently, with a root of its own."""

    name: str
    seed: int
    kind: WorldKind
    world: WorldConfig

    @property
    def folder(self) -> str:
        """Name of its root under the root of the claims."""
        return f"{self.name}-s{self.seed}"

    def job(self, name: str, status: JobStatus, seconds: float | None = None, note: str = "") -> ClaimsJob:
        """Return what became of one of its jobs."""
        return ClaimsJob(world=self.name, seed=self.seed, job=name, status=status, seconds=seconds, note=note)


def planned(cfg: ClaimsConfig) -> tuple[PlannedWorld, ...]:
    """Return every world to compute: the main ones seed by seed, then those of one seed."""
    main = [make(name, seed, cfg) for seed in cfg.seeds for name in MAIN]
    single = [make(name, cfg.single_seed, cfg) for name in world_names(cfg) if name not in MAIN]
    return (*main, *single)


def make(name: str, seed: int, cfg: ClaimsConfig) -> PlannedWorld:
    """Return one world; each seed samples everything again.

    Raises:
        WorldError: the claims plan no world of that name.
    """
    sweep, curve, base = sweep_worlds(cfg), curve_worlds(cfg), claims_world()
    train, test = curve.get(name, cfg.train_takes), cfg.test_takes
    changes: dict[str, object] = {"entry": "latents", **CHANGES.get(name, {})}
    kind: WorldKind = "main"
    if name in ENTRIES:
        kind, train, test = "entry", cfg.entry_train_takes, cfg.entry_test_takes
        changes["entry"] = name.removeprefix("by_")
    elif name in sweep:
        kind = "sweep"
        changes["kappa"], changes["style"] = sweep[name]
    elif name in curve:
        kind = "curve"
    elif name not in MAIN:
        raise WorldError(f"the claims plan no world {name!r}; they plan {', '.join(world_names(cfg))}")
    world = base.replace(
        name=name.replace(".", "_"),
        fixed_on=cfg.fixed_on,
        seed=base.seed + seed,
        broken="none",
        broken_share=0.0,
        train_takes=train,
        test_takes=test,
        **changes,
    )
    return PlannedWorld(name, seed, kind, world)


def config_of(world: PlannedWorld, recipe: PipelineConfig) -> PipelineConfig:
    """Return the configuration of one world: its chains of models and their folds have the world's seed.

    On the learning curve no scorer learns, so there is one chain, which leaves out a single take.
    """
    attention = recipe.attention
    if world.name not in SQUARE_WORLDS:
        attention = attention.replace(variants=tuple(one for one in attention.variants if one == "both"))
    alignment = recipe.alignment.replace(seeds=(world.seed,), fold_seed=world.seed)
    if world.kind == "curve":
        alignment = in_one_chain(alignment)
    return recipe.replace(alignment=alignment, attention=attention)


def in_one_chain(alignment: AlignmentConfig) -> AlignmentConfig:
    """Return settings with one chain, which leaves out a single take: where no scorer learns from held-out takes."""
    return alignment.replace(folds=1, fold_share=None, holdout_share=1e-9)


def options_of(world: PlannedWorld, root: Path, device: str) -> RunOptions:
    """Return where a world is computed; what its annotators flag is rejected on purpose and does not stop it."""
    folder = root / world.folder
    return RunOptions.model_validate(
        {
            "root": str(folder),
            "data_root": str(folder / "world"),
            "workers": 1,
            "device": device,
            "max_reject_ratio": 0.5,
        }
    )


def dated_world(stored: WorldConfig) -> WorldConfig:
    """Return the world that the dated configuration asks for under the name and seed of a stored one.

    Raises:
        WorldError: the claims plan no world of that name.
    """
    cfg = ClaimsConfig()
    names = {name.replace(".", "_"): name for name in world_names(cfg)}
    return make(names.get(stored.name, stored.name), stored.seed - claims_world().seed, cfg).world


def chosen(cfg: ClaimsConfig, names: Sequence[str]) -> tuple[PlannedWorld, ...]:
    """Return the planned worlds called `names`, as `base` or `base-s3`; all of them where no name is given.

    Raises:
        InputError: no world is called so.
    """
    worlds = planned(cfg)
    known = {name for world in worlds for name in (world.name, world.folder)}
    unknown = sorted(set(names) - known)
    if unknown:
        raise InputError(
            f"no world is called {', '.join(unknown)}; the worlds are {', '.join(world_names(cfg))}, one seed of them "
            f"is called like {worlds[0].folder}"
        )
    return tuple(world for world in worlds if not names or {world.name, world.folder} & set(names))
