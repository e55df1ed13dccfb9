"""Which worlds the claims compute, what each is, and which stages it goes through. Source: docs/decisions/claims.md."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from schemas.claims import (
    BASE,
    FEATURE_SPACE,
    NO_INFORMATION,
    NO_SCENE,
    NO_STYLE,
    ClaimsConfig,
    ClaimsJob,
    JobStatus,
    curve_worlds,
    sweep_worlds,
)
from schemas.config import PipelineConfig, RunOptions
from schemas.world import WorldConfig, claims_world
from trajpilot_core.errors import InputError, WorldError

WorldKind = Literal["base", "control", "sweep", "scene"]
CHANGES: Mapping[str, dict[str, float]] = {
    FEATURE_SPACE: {},
    NO_INFORMATION: {"kappa": 0.0, "style": 0.0},
    NO_STYLE: {"style": 0.0},
    NO_SCENE: {"scene": 0.0},
}
"""What differs from the base world's settings, besides the entry."""


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


class Recipes(NamedTuple):
    """What is computed in the worlds that enter by video, and in those that enter by frames."""

    video: PipelineConfig
    frames: PipelineConfig

    def of(self, world: PlannedWorld) -> PipelineConfig:
        """Return the configuration of one world: its chain of models has the world's seed."""
        config = self.video if world.world.entry == "video" else self.frames
        return config.replace(alignment=config.alignment.replace(seeds=(world.seed,), fold_seed=world.seed))


def planned(cfg: ClaimsConfig) -> tuple[PlannedWorld, ...]:
    """Return every world to compute, the most informative first; a setting that two names share is computed once."""
    first = [make(name, seed, cfg) for seed in cfg.seeds for name in (BASE, NO_INFORMATION)]
    sweep = [make(name, cfg.sweep_seed, cfg) for name in sweep_worlds(cfg) if shared(name, cfg) is None]
    then = [make(name, seed, cfg) for name in (FEATURE_SPACE, NO_STYLE) for seed in cfg.seeds]
    scene = [make(NO_SCENE, seed, cfg) for seed in cfg.seeds]
    curve = [make(name, cfg.sweep_seed, cfg) for name in curve_worlds(cfg)]
    return (*first, *scene, *then, *sweep, *curve)


def make(name: str, seed: int, cfg: ClaimsConfig) -> PlannedWorld:
    """Return one world; each seed samples everything again."""
    base = claims_world()
    base = base.replace(seed=base.seed + seed)
    if name == BASE:
        return PlannedWorld(name, seed, "base", base)
    sweep = sweep_worlds(cfg)
    changes = CHANGES.get(name) or dict(zip(("kappa", "style"), sweep.get(name, ()), strict=False))
    kind: WorldKind = "scene" if name == NO_SCENE else "sweep" if name in sweep else "control"
    by_frames = base.replace(
        name=name.replace(".", "_"),
        entry="frames",
        broken="none",
        broken_share=0.0,
        train_takes=curve_worlds(cfg).get(name, cfg.frames_train_takes),
        test_takes=cfg.frames_test_takes,
        **changes,
    )
    return PlannedWorld(name, seed, kind, by_frames)


def shared(name: str, cfg: ClaimsConfig) -> str | None:
    """Return which control has the settings of a world of the sweep, for its seed; None: it is computed itself."""
    knobs = sweep_worlds(cfg)[name]
    for control in (FEATURE_SPACE, NO_INFORMATION, NO_STYLE):
        world = make(control, cfg.sweep_seed, cfg).world
        if (world.kappa, world.style) == knobs:
            return control
    return None


def options_of(world: PlannedWorld, root: Path, device: str) -> RunOptions:
    """Return where a world is computed; its broken takes are deliberate, so rejects do not stop it."""
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
        WorldError: the claims know no world of that name.
    """
    cfg = ClaimsConfig()
    names = [*CHANGES, *sweep_worlds(cfg), *curve_worlds(cfg)]
    name = (
        BASE
        if stored.name == claims_world().name
        else next((name for name in names if name.replace(".", "_") == stored.name), None)
    )
    if name is None:
        raise WorldError(f"the claims plan no world {stored.name!r}; they plan {', '.join([BASE, *names])}")
    return make(name, stored.seed - claims_world().seed, cfg).world


def chosen(cfg: ClaimsConfig, names: Sequence[str]) -> tuple[PlannedWorld, ...]:
    """Return the planned worlds called `names`, as `base` or `base-s0`; all of them where no name is given.

    Raises:
        InputError: no world is called so.
    """
    worlds = planned(cfg)
    known = {name for world in worlds for name in (world.name, world.folder)}
    unknown = sorted(set(names) - known)
    if unknown:
        names_only = sorted({world.name for world in worlds})
        raise InputError(
            f"no world is called {', '.join(unknown)}; the worlds are {', '.join(names_only)}, one seed of them is "
            f"called like {worlds[0].folder}"
        )
    return tuple(world for world in worlds if not names or {world.name, world.folder} & set(names))
