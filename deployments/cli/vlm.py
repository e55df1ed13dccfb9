"""Commands `vlm`: requests to vision-language models as files, their answers, and training data (docs/vlm.md)."""

from pathlib import Path
from typing import Annotated, cast

import typer

from deployments.cli.inspect import MaybeData, MaybeRecipe, asked
from deployments.cli.options import Device, Root, Set, check_corpus
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

asking = typer.Typer(help="Query vision-language models on other machines through files.", no_args_is_help=True)
Out = Annotated[Path, typer.Option("--out", help="New folder for request files, with a subfolder per model.")]


@asking.command()
def requests(
    out: Out,
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    set_: Set = [],  # noqa: B006
    device: Device = "cpu",
) -> None:
    """Write every request that has no answer yet. Requests contain frames of the corpus: mind its licence."""
    from trajpilot_core.stages.vlm import write_requests

    work = work_of(*asked(root, data and check_corpus(data), recipe, set_, device))
    files, n_waiting = write_requests(work, out)
    if not files.digests:
        typer.echo("every request has an answer; run the recipe")
        return
    typer.echo(f"{len(files.digests):,} requests, {files.n_bytes / 1e6:,.1f} MB, in {len(files.paths)} files in {out}")
    typer.echo("one folder per model; with vLLM, for each file:")
    typer.echo("vllm run-batch -i IN.jsonl -o OUT.jsonl --model MODEL")
    if n_waiting:
        typer.echo(f"{n_waiting:,} takes have further requests after these: collect, then write again")


@asking.command()
def collect(
    files: Annotated[list[Path], typer.Argument(help="Result files, as written by `vllm run-batch`.")],
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Read answers into the folder of answers; unreadable lines are listed, and their requests are written again."""
    from trajpilot_core.stages.vlm import collect as read

    config, _ = asked(root, data and check_corpus(data), recipe, set_, "cpu")
    n_new, n_known, faults = read(files, config.vlm.answers)
    typer.echo(f"{n_new:,} new answers in {config.vlm.answers}, {n_known:,} already there")
    for text in faults[:10]:
        typer.echo(text, err=True)
    if faults:
        raise InputError(f"{len(faults):,} lines contain no answer (the first are above); send their requests again")


@asking.command(name="export-sft")
def export_sft(
    out: Out,
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Write training data for the recogniser of segments, in the format of LLaMA-Factory. They contain frames."""
    from trajpilot_core.vlm.training import TRAINER, write_training

    work = work_of(*asked(root, data and check_corpus(data), recipe, set_, "cpu"))
    exported = write_training(work, out.absolute())
    for row in exported.rejects:
        typer.echo(f"{row.take}: {row.detail}", err=True)
    typer.echo(f"{exported.n_conversations:,} conversations of {exported.n_segments:,} training segments in {out}")
    typer.echo(f"with LLaMA-Factory, on four GPUs: FORCE_TORCHRUN=1 llamafactory-cli train {out / TRAINER}")


def work_of(config: PipelineConfig, options: RunOptions) -> Work[CompletedVlm]:
    """Return the whole work of the stage `vlm`, finished or not; nothing is written to the store.

    Raises InputError: the settings have no row of a vision-language model; StoreError: a stage that it reads has not
    run.
    """
    if not config.vlm.rows:
        raise InputError("these settings have no row of a vision-language model; use --recipe vlm_zero_shot")
    stages = stages_of(config)
    resolved = resolve_stage(open_folder(options.root), stages["vlm"], config, options, stages)
    cfg = resolved.config
    assert isinstance(cfg, CompletedVlm)
    scratch = scratch_folder(options, "vlm-requests")
    scratch.mkdir(parents=True, exist_ok=True)
    runtime = Runtime(options.data_root, resolve_device(options.device), options.workers, scratch)
    no_sink = cast(Sink, None)  # requests and training data are not outputs
    return Work(resolved.inputs, cfg, resolved.sources, no_sink, runtime)
