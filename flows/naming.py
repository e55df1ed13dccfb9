"""What a run is called: its flow, recipe, choice of stages and root."""

from pathlib import Path

from prefect import runtime

from schemas.config import RunOptions


def run_name() -> str:
    """Name the present flow run by its parameter `run`."""
    stated = runtime.flow_run.parameters["run"]
    return named(str(runtime.flow_run.flow_name), RunOptions.model_validate(stated))


def named(flow: str, run: RunOptions) -> str:
    """Return what a run of a flow is called, e.g. `full-pipeline · demo, from scorer · runs/demo`."""
    chosen = [*(f"only {name}" for name in run.only), *([f"from {run.from_stage}"] if run.from_stage else [])]
    chosen += [f"force {name}" for name in run.force]
    return f"{flow} · {', '.join([run.recipe, *chosen])} · {short(run.root)}"


def short(root: str) -> str:
    """Return a root as people type it: relative where it lies below the working folder."""
    here, path = Path.cwd(), Path(root)
    return str(path.relative_to(here)) if path.is_absolute() and path.is_relative_to(here) else root
