"""Commands `vlm`: requests to vision-language models as files, and their answers read back (docs/vlm.md)."""

from pathlib import Path
from typing import Annotated, cast

import typer

from deployments.cli.inspect import MaybeData, MaybeRecipe, asked
from deployments.cli.options import Device, File, Root, Set, check_corpus, located, run_options
from schemas.config import PipelineConfig, RunOptions
from schemas.vlm import VlmConfig
from trajpilot_core.engine.execution.scratch import scratch_folder
from trajpilot_core.engine.key import resolve_stage
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.stage import Runtime, Sink, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages import stages_of
from trajpilot_core.store.files import open_folder

asking = typer.Typer(help="Ask vision-language models on other machines, by files.", no_args_is_help=True)
Out = Annotated[Path, typer.Option("--out", help="New folder for files of requests, one folder for each model in it.")]
Files = Annotated[list[Path], typer.Argument(help="Files of results, as `vllm run-batch` writes them.")]


@asking.command()
def requests(
    out: Out,
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    config_file: File = None,
    set_: Set = [],  # noqa: B006
    device: Device = "cpu",
) -> None:
    """Write every request that has no answer yet. They show frames of the corpus: mind its licence."""
    from trajpilot_core.stages.vlm_batches import write_requests

    config, where = asked(root, data and check_corpus(data), recipe, set_, device, config_file)
    work = work_of(config, run_options(root=located(root), **where))
    written = write_requests(work, out)
    if not written.n_requests:
        typer.echo("every request has its answer; run the recipe")
        return
    typer.echo(
        f"{written.n_requests:,} requests, {written.n_bytes / 1e6:,.1f} MB, in {len(written.files)} files in {out}"
    )
    typer.echo("each folder is for one model; with vLLM, for each file:")
    typer.echo("vllm run-batch -i IN.jsonl -o OUT.jsonl --model MODEL")
    if written.n_waiting:
        typer.echo(f"{written.n_waiting:,} takes have more to ask once these are answered: collect, and write again")


@asking.command()
def collect(
    files: Files,
    data: MaybeData = None,
    root: Root = "runs",
    recipe: MaybeRecipe = None,
    config_file: File = None,
    set_: Set = [],  # noqa: B006
) -> None:
    """Read answers into the folder of answers; what cannot be read is named, and its request is written again."""
    from trajpilot_core.stages.vlm_batches import collect as read

    config, _ = asked(root, data and check_corpus(data), recipe, set_, "cpu", config_file)
    n_new, n_known, faults = read(files, config.vlm.answers)
    typer.echo(f"{n_new:,} new answers in {config.vlm.answers}, {n_known:,} were there")
    for text in faults[:10]:
        typer.echo(text, err=True)
    if faults:
        raise InputError(f"{len(faults):,} lines hold no answer (the first are above); ask their requests again")


def work_of(config: PipelineConfig, options: RunOptions) -> Work[VlmConfig]:
    """Return the whole work of the stage `vlm`, whatever of it is done; nothing is written to the store.

    Raises:
        InputError: the settings ask for no row of a vision-language model.
        StoreError: a stage that it reads has not run.
    """
    if not config.vlm.rows:
        raise InputError("these settings ask for no row of a vision-language model; use --recipe vlm_zero_shot")
    stages = stages_of(config)
    resolved = resolve_stage(open_folder(options.root, options.protocols), stages["vlm"], config, options, stages)
    cfg = resolved.config
    assert isinstance(cfg, VlmConfig)
    scratch = scratch_folder(options, "vlm-requests")
    scratch.mkdir(parents=True, exist_ok=True)
    runtime = Runtime(options.data_root, resolve_device(options.device), options.workers, scratch)
    return Work(resolved.inputs, cfg, resolved.sources, cast(Sink, NoSink()), runtime)


class NoSink:
    """Refuses to write: requests are no result."""

    def __getattr__(self, name: str) -> object:
        raise InputError(f"files of requests are no output of a stage; {name} is refused")
