"""With what and on what the claims were computed: the machine, the code, the sizes of worlds and models."""

import os
import platform
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

from schemas.claims import RecipeSize, WorldSize
from schemas.config import PipelineConfig
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld

CPUINFO = Path("/proc/cpuinfo")
CHECKOUT = Path(__file__).parents[4]
PACKAGE = "trajpilot"


def machine() -> str:
    """Return processor, cores, memory and system, and no host name."""
    cores = len(os.sched_getaffinity(0))
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    system = f"{platform.system()}, Python {platform.python_version()}"
    return f"{processor(CPUINFO)}, {cores} cores, {memory:.0f} GiB memory, {system}"


def processor(cpuinfo: Path) -> str:
    """Return the model of the processor; its architecture where the system does not name the model."""
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    named = [value.strip() for key, _, value in (line.partition(":") for line in lines) if key.strip() == "model name"]
    return named[0] if named else platform.machine()


def version(checkout: Path = CHECKOUT) -> str:
    """Return the version of this project, and the commit of its checkout where it runs from one."""
    try:
        number = metadata.version(PACKAGE)
    except metadata.PackageNotFoundError:
        number = "not installed"
    commit = commit_of(checkout)
    return f"{number}, commit {commit[:12]}" if commit else number


def commit_of(checkout: Path) -> str:
    """Return the commit that is checked out; empty where the folder is no checkout."""
    git = checkout / ".git"
    head = git / "HEAD"
    if not head.is_file():
        return ""
    name = head.read_text(encoding="utf-8").strip()
    if not name.startswith("ref: "):
        return name
    name = name.removeprefix("ref: ")
    if (git / name).is_file():
        return (git / name).read_text(encoding="utf-8").strip()
    packed = git / "packed-refs"
    lines = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else []
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")


def world_sizes(worlds: Sequence[PlannedWorld]) -> tuple[WorldSize, ...]:
    """Return the size of every world; its seeds are equally large."""
    return tuple(
        WorldSize(
            world=name,
            entry=world.entry,
            train_takes=world.train_takes,
            test_takes=world.test_takes,
            labels=world.n_labels(),
            segments=world.segments,
        )
        for name, world in {planned.name: planned.world for planned in worlds}.items()
    )


def recipe_size(config: PipelineConfig) -> RecipeSize:
    """Read the sizes of the models off the recipe."""
    alignment, predictor, scorer = config.alignment, config.predictor, config.scorer
    frames = f"{config.features.n_frames} frames of {config.features.size_px} px"
    weights = "given weights" if config.features.checkpoint else "random weights"
    return RecipeSize(
        encoder=f"{config.features.model}, {weights}, {frames}; by latents none",
        text_encoder=config.text_bank.encoder,
        learned_on=learned_on(config),
        alignment=(alignment.width, alignment.layers, alignment.train.epochs),
        predictor=(predictor.width, predictor.layers, predictor.train.epochs),
        scorer=(scorer.width, scorer.layers, scorer.train.epochs),
        candidates=scorer.candidates,
    )


def learned_on(config: PipelineConfig) -> str:
    """Return which training takes the scorers learn on (D 28)."""
    alignment = config.alignment
    if alignment.folds == 1:
        share = f"{100 * alignment.holdout_share:g} %"
        return f"{share} of the training takes, held out: E_tau and predictors never see them"
    each = "together all training takes" if alignment.fold_share is None else f"each {100 * alignment.fold_share:g} %"
    return f"{alignment.folds} folds of the training takes ({each}), cross-fitted: each by models that never see it"
