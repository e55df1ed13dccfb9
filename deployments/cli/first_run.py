"""How long stages would take that never ran below a root, as `plan` and `--dry-run` show it."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console

from deployments.cli.tables import say, time
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.planning.stated import StatedNeeds
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.sizes import world_sizes
from trajpilot_core.errors import InputError

ESTIMATED = ("features", "alignment", "predictor", "scorer", "attention")
"""Stages that encode or train, whose work can be counted beforehand."""


def show_first_run(
    console: Console, names: Sequence[str], stated: StatedNeeds, config: PipelineConfig, run: RunOptions
) -> None:
    """Say how long stages may take that were never timed here; probes the machine, which imports torch.

    Args:
        console: where to.
        names: stages that would compute and of which this root holds no time.
        stated: with the sizes of the corpus.
        config: of the run.
        run: where.
    """
    asked = [name for name in ESTIMATED if name in names]
    if not asked:
        return
    from trajpilot_core.studies.first_run import OFF_BY, first_run_seconds, probe_machine

    stated, described = _described(stated, config, run.data_root)
    device = resolve_device(run.device)
    rates = probe_machine(device)
    found = first_run_seconds(config, stated.sizes, rates)
    told = [f"{name} {time(found[name] / OFF_BY)} to {time(found[name] * OFF_BY)}" for name in asked if name in found]
    without = [name for name in names if name not in found]
    say(
        console,
        f"an estimate for what never ran here, on one {device} device, from a probe of this machine "
        f"({rates.product / 1e9:,.0f} GFLOP/s in a matrix product, {rates.training / 1e9:,.0f} in a training step) and "
        f"from {described}, every epoch counted: {', '.join(told) or 'nothing'}"
        + (f"; no estimate for {', '.join(without)}" if without else ""),
    )


def _described(stated: StatedNeeds, config: PipelineConfig, data_root: str) -> tuple[StatedNeeds, str]:
    """Return the best known sizes, and whose they are: a simulated world that was not ingested yet states its own."""
    if "segments" not in stated.sizes.assumed:
        return stated, "the sizes that stages before have found"
    from trajpilot_core.evaluation.ceiling import read_world_config

    try:
        world = read_world_config(data_root)
    except InputError:
        world = None  # the pre-flight reports it
    if world is None:
        return stated, "the paper's sizes, because ingest has not counted yours yet"
    return replace(stated, sizes=world_sizes(config, world)), "the sizes that the simulated world states"
