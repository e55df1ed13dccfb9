"""Options that several commands share, and how a configuration is read."""

import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from deployments.recipes import recipe
from schemas.config import PipelineConfig, RunOptions
from schemas.places import LOGIN_INSIDE, REFUSED, holds_login
from trajpilot_core.errors import InputError

Root = Annotated[str, typer.Option("--root", help="Everything that is written lies under this folder.")]
Data = Annotated[str, typer.Option("--data", help="Folder of the downloaded corpus.")]
Recipe = Annotated[str, typer.Option("--recipe", help="Named experiment: atomic (the paper's main one) or demo.")]
Set = Annotated[list[str], typer.Option("--set", help="Change one thing: features.size_px=256 (repeatable).")]
Only = Annotated[list[str], typer.Option("--only", help="Run this stage only (repeatable).")]
From = Annotated[str | None, typer.Option("--from", help="Run this stage and all after it.")]
Force = Annotated[list[str], typer.Option("--force", help="Recompute this stage (repeatable).")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes side by side.")]
MaxRejects = Annotated[float, typer.Option("--max-rejects", help="Share of damaged rows at which a stage fails.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu or cuda.")]


def located(place: str) -> str:
    """Write a folder out in full, so that it means the same from everywhere; an address stays as it is.

    Raises:
        InputError: a login stands in the address; it is not repeated.
    """
    if holds_login(place):
        raise InputError(REFUSED)
    return place if "://" in place else str(Path(place).resolve())


def local_root(root: str) -> Path:
    """Return the folder of a run that is started here: its log and its server need one on this machine.

    Raises:
        InputError: an address of an object store.
    """
    place = located(root)
    if "://" in place:
        raise InputError(
            f"--root {place} is no folder of this machine; give one, or deploy with that root and run by the server"
        )
    return Path(place)


def check_corpus(data: str) -> str:
    """Refuse a corpus folder that is not there before anything is started."""
    place = located(data)
    if "://" not in place and not Path(place).is_dir():
        raise InputError(f"--data {data} is no folder; give the folder of the download")
    return place


def read_value(text: str) -> object:
    """Read a value of --set: JSON where it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def configure(name: str, changes: list[str]) -> PipelineConfig:
    """Return the recipe `name` with `changes` such as `features.size_px=256`.

    Raises:
        InputError: a change names no field, or a value that the field does not allow.
    """
    return change(recipe(name), changes)


def change(config: PipelineConfig, changes: list[str]) -> PipelineConfig:
    """Return `config` with changes such as `features.size_px=256`.

    Raises:
        InputError: a change names no field, or a value that the field does not allow.
    """
    values = config.model_dump()
    for wanted in changes:
        path, equals, text = wanted.partition("=")
        *parents, leaf = path.split(".")
        place: object = values
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not equals or not isinstance(place, dict) or leaf not in place:
            raise InputError(f"--set {wanted}: no such setting; write for example --set features.size_px=256")
        place[leaf] = read_value(text)
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(explain(error)) from None


def explain(error: ValidationError) -> str:
    """Say in one line which setting has which wrong value; an address with a login in it is not repeated."""
    return "; ".join(map(fault, error.errors()))


def fault(found: ErrorDetails) -> str:
    """Say in one line what is wrong with one setting."""
    value = "" if found["type"] == LOGIN_INSIDE else f" is {found['input']!r}"
    return f"{'.'.join(map(str, found['loc']))}{value}: {found['msg']}"


def run_options(**values: object) -> RunOptions:
    """Build the run options, with a readable error."""
    try:
        return RunOptions.model_validate(values)
    except ValidationError as error:
        raise InputError(explain(error)) from None
