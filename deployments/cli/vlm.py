"""Commands `vlm`: training data of vision-language models (docs/vlm.md)."""

from pathlib import Path
from typing import Annotated, cast

import typer

from deployments.cli.inspect import MaybeData, MaybeRecipe, asked
from deployments.cli.options import File, Root, Set, check_corpus
from schemas.config import PipelineConfig, RunOptions
from schemas.vlm import CompletedVlm
from trajpilot_core.engine.execution.reuse import scratch_folder
from trajpilot_core.engine.key import resolve_stage
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.sink import Sink
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages import stages_of
from trajpilot_core.store.files import open_folder

asking = typer.Typer(help="Training data of vision-language models.", no_args_is_help=True)
Out = Annotated[Path, typer.Option("--out", help="New folder for the training data.")]


@asking.command(name="export-sft")
def export_sft(
    out: Out,
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    config_file: File = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Write training data for the recogniser of segments, in the format of LLaMA-Factory. They contain frames."""
    from trajpilot_core.vlm.training import TRAINER, write_training

    work = work_of(*asked(root, data and check_corpus(data), recipe, set_, "cpu", config_file))
    exported = write_training(work, out.absolute())
    for row in exported.rejects:
        typer.echo(f"{row.take}: {row.detail}", err=True)
    typer.echo(
        f"{exported.n_conversations:,} conversations of {exported.n_segments:,} training segments, "
        f"{exported.n_bytes / 1e6:,.1f} MB, in {out}"
    )
    typer.echo(f"with LLaMA-Factory, on four GPUs: FORCE_TORCHRUN=1 llamafactory-cli train {out / TRAINER}")


def work_of(config: PipelineConfig, options: RunOptions) -> Work[CompletedVlm]:
    """Return the whole work of the stage `vlm`, finished or not; nothing is written to the store.

    Raises:
        InputError: the settings have no row of a vision-language model.
        StoreError: a stage that it reads has not run.
    """
    if not config.vlm.rows:
        raise InputError("these settings have no row of a vision-language model; use --recipe vlm_zero_shot")
    stages = stages_of(config)
    resolved = resolve_stage(open_folder(options.root, options.protocols), stages["vlm"], config, options, stages)
    cfg = resolved.config
    assert isinstance(cfg, CompletedVlm)
    scratch = scratch_folder(options, "vlm-requests")
    scratch.mkdir(parents=True, exist_ok=True)
    runtime = Runtime(options.data_root, resolve_device(options.device), options.workers, scratch)
    no_sink = cast(Sink, None)  # training data are no output
    return Work(resolved.inputs, cfg, resolved.sources, no_sink, runtime)
