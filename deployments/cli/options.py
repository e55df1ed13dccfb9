"""Options that several commands share, and how a configuration is read."""

import json
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from deployments.recipes import recipe
from schemas.config import PipelineConfig, RunOptions
from schemas.places import LOGIN_INSIDE, REFUSED, holds_login
from trajpilot_core.command_line import shown
from trajpilot_core.engine.last_run import NAME
from trajpilot_core.errors import InputError

Root = Annotated[str, typer.Option("--root", help="Everything that is written lies under this folder.")]
Data = Annotated[str, typer.Option("--data", help="Folder of the downloaded corpus.")]
Recipe = Annotated[str, typer.Option("--recipe", help="Named experiment: atomic (the paper's main one) or demo.")]
Set = Annotated[list[str], typer.Option("--set", help="Change one thing: features.size_px=256 (repeatable).")]
Only = Annotated[list[str], typer.Option("--only", help="Run this stage only (repeatable).")]
From = Annotated[str | None, typer.Option("--from", help="Run this stage and all after it.")]
Force = Annotated[list[str], typer.Option("--force", help="Recompute this stage (repeatable).")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes side by side.")]
AtOnce = Annotated[
    int | None,
    typer.Option("--stages-at-once", min=1, max=16, help="Stages side by side; else as many as the machine allows."),
]
CheckpointS = Annotated[
    float, typer.Option("--checkpoint-s", min=0, help="Seconds between checkpoints of a training; 0: after each epoch.")
]
IgnoreNeeds = Annotated[
    bool, typer.Option("--ignore-needs", help="Begin stages that state more memory or disk than this machine has.")
]
CompileModels = Annotated[
    bool, typer.Option("--compile-models", help="On a GPU, compile the steps of small models (not measured).")
]
Pretrained = Annotated[
    str | None,
    typer.Option(
        "--pretrained", help="Root of a finished run: its dev captures, folds and E_tau, and initial predictors."
    ),
]
MaxRejects = Annotated[float, typer.Option("--max-rejects", help="Share of damaged rows at which a stage fails.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, or cuda:1 and so on.")]
SUGGESTED = 3
ALIKE = 0.75
"""Likeness of two names from which on one is suggested for the other: one letter in four may be wrong."""


def located(address: str) -> str:
    """Write a folder out in full, so that it means the same from everywhere; an address stays as it is.

    Raises:
        InputError: a login stands in the address; it is not repeated.
    """
    if holds_login(address):
        raise InputError(REFUSED)
    return address if "://" in address else str(Path(address).resolve())


def local_root(root: str) -> Path:
    """Return the folder of a run that is started here: its log and its server need one on this machine.

    Raises:
        InputError: an address of an object store.
    """
    address = located(root)
    if "://" in address:
        raise InputError(
            f"--root {address} is no folder of this machine; give one, or deploy with that root and run by the server"
        )
    return Path(address)


def roots_below(root: str) -> str:
    """Name the folders just below a folder that hold a run, in brackets, for a user who gave no --root."""
    notes = [] if "://" in root else sorted(Path(root).glob(f"*/{NAME}"))
    found = [shown(note.parent) for note in notes[:SUGGESTED]]
    return f" ({' or '.join(f'--root {address}' for address in found)})" if found else ""


def check_corpus(data: str) -> str:
    """Refuse a corpus that is not there, or whose object store does not answer, before anything is started.

    Raises:
        InputError: what was found.
    """
    address = located(data)
    if "://" in address:
        from trajpilot_core.store.corpus_files import open_corpus

        open_corpus(address)
    elif not Path(address).is_dir():
        raise InputError(f"--data {data} is no folder; give the folder of the download")
    return address


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
        InputError: a change names no field, no value, or one that the field does not allow.
    """
    values = config.model_dump()
    for wanted in changes:
        path, equals, text = wanted.partition("=")
        *parents, leaf = path.split(".")
        place: object = values
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not isinstance(place, dict) or leaf not in place:
            raise InputError(f"--set {wanted}: no such setting; {nearest(path, settings_of(values))}")
        if not equals:
            raise InputError(f"--set {wanted}: {without_value(path, place[leaf])}")
        place[leaf] = read_value(text)
    try:
        return PipelineConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(explain(error)) from None


def settings_of(values: dict[str, Any], above: str = "") -> dict[str, object]:
    """Return every setting by its whole name, such as `features.size_px`, with its value."""
    found: dict[str, object] = {}
    for name, value in values.items():
        found |= settings_of(value, f"{above}{name}.") if isinstance(value, dict) and value else {above + name: value}
    return found


def nearest(path: str, settings: dict[str, object]) -> str:
    """Return which settings may have been meant, nearest first: of the same last name, else those that look alike."""
    same = [name for name in settings if name.rpartition(".")[2] == path.rpartition(".")[2]]
    found = get_close_matches(path, same or settings, SUGGESTED, 0.0 if same else ALIKE)
    return f"did you mean {' or '.join(found)}?" if found else "write for example --set features.size_px=256"


def without_value(path: str, value: object) -> str:
    """State how a value is given to a setting, or to one of a group."""
    if isinstance(value, dict) and value:
        return f"{path} is a group; write --set SETTING=VALUE for one of {', '.join(settings_of(value, f'{path}.'))}"
    return f"no value is given; write --set {path}=VALUE (it is {json.dumps(value, default=str)} now)"


def explain(error: ValidationError) -> str:
    """State in one line which setting has which wrong value; an address with a login in it is not repeated."""
    return "; ".join(map(fault, error.errors()))


def fault(found: ErrorDetails) -> str:
    """State in one line what is wrong with one setting."""
    value = "" if found["type"] == LOGIN_INSIDE else f" is {found['input']!r}"
    return f"{'.'.join(map(str, found['loc']))}{value}: {found['msg']}"


def run_options(**values: object) -> RunOptions:
    """Build the run options, with a readable error."""
    try:
        return RunOptions.model_validate(values)
    except ValidationError as error:
        raise InputError(explain(error)) from None
