"""Options that several commands share, and how a configuration is read."""

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from deployments.recipes import RECIPES, recipe
from schemas.config import PipelineConfig, RunOptions
from schemas.places import LOGIN_INSIDE, REFUSED, holds_login
from trajpilot_core.command_line import shown
from trajpilot_core.engine.last_run import NAME
from trajpilot_core.engine.planning.differences import flat
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import NoJsonError, check_value, parse_json, parse_toml, read_text, shortened
from trajpilot_core.stages import EVERY_STAGE
from trajpilot_core.store.locations import resolved

Root = Annotated[str, typer.Option("--root", help="Everything that is written lies under this folder.")]
Data = Annotated[str, typer.Option("--data", help="Folder of the downloaded corpus.")]
Recipe = Annotated[str, typer.Option("--recipe", help=f"Named experiment: {', '.join(RECIPES)}.")]
Set = Annotated[list[str], typer.Option("--set", help="Change one thing: features.size_px=256 (repeatable).")]
File = Annotated[
    Path | None,
    typer.Option("--config", help="TOML file of settings, a table per group; --set comes after it.", exists=True),
]
Only = Annotated[list[str], typer.Option("--only", help=f"Run this stage only (repeatable): {', '.join(EVERY_STAGE)}.")]
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
CompileModels = Annotated[
    bool, typer.Option("--compile-models", help="On a GPU, compile the steps of small models (not measured).")
]
TrackerName = Annotated[
    str | None, typer.Option("--tracker", help="Send curves and figures to this tracker: wandb or trackio.")
]
Pretrained = Annotated[
    str | None,
    typer.Option(
        "--pretrained", help="Root of a finished run: its dev captures, folds and E_tau, and initial predictors."
    ),
]
MaxRejects = Annotated[float, typer.Option("--max-rejects", help="Share of damaged rows at which a stage fails.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, or cuda:1 and so on.")]
NO_VALUE = "null"
"""What stands for no value in a TOML file, which has no word for it."""
SUGGESTED = 3
ALIKE = 0.75
"""Likeness of two names from which on one is suggested for the other: one letter in four may be wrong."""


def located(address: str) -> str:
    """Write a folder out in full, so that it means the same from everywhere; an address stays as it is.

    Raises:
        InputError: a login stands in the address; it is not repeated.
        StoreError: the links of the folder lead in a circle, or its name is not UTF-8.
    """
    if holds_login(address):
        raise InputError(REFUSED)
    return address if "://" in address else str(resolved(address))


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


def configure(name: str, changes: list[str], file: Path | None = None) -> PipelineConfig:
    """Return the recipe `name` with the settings of a file, then with `changes` such as `features.size_px=256`.

    Raises:
        InputError: a change names no field, or a value that the field does not allow.
    """
    return change(recipe(name), changes, file)


def change(config: PipelineConfig, changes: list[str], file: Path | None = None) -> PipelineConfig:
    """Return `config` with the settings of a TOML file, then with changes such as `features.size_px=256`.

    Raises:
        InputError: the file is no TOML; a change names no field, no value, or one that the field does not allow.
    """
    values = config.values()
    for path, value in {} if file is None else settings_in(file).items():
        place, leaf = found_in(values, path, f"{file}, {shortened(path)}")
        place[leaf] = None if value == NO_VALUE else value
    for wanted in changes:
        path, equals, text = wanted.partition("=")
        where = f"--set {shortened(wanted)}"
        place, leaf = found_in(values, path, where)
        if not equals:
            raise InputError(f"{where}: {without_value(path, place[leaf])}")
        try:
            place[leaf] = parse_json(text, where)
        except NoJsonError:
            place[leaf] = text
        check_value(place[leaf], where)
    try:
        changed = PipelineConfig.model_validate(values)
    except ValidationError as error:
        raise InputError(explain(error)) from None
    for path, value in flat(changed.values()).items():
        check_value(value, path)  # "inf" as a text becomes a number only there
    return changed


def settings_in(file: Path) -> dict[str, Any]:
    """Return every setting that a TOML file states, by its whole name.

    Raises:
        InputError: the file cannot be read, is no TOML, or states a setting outside any table.
    """
    try:
        groups = parse_toml(read_text(file), f"--config {file}")
    except OSError as error:
        raise InputError(f"--config {file} cannot be read: {error.strerror}; give a file of settings") from None
    check_value(groups, f"--config {file}")
    loose = [name for name, value in groups.items() if not isinstance(value, dict)]
    if loose:
        raise InputError(f"{file}: {loose[0]} stands in no table; write [features] and below it size_px = 256")
    return flat(groups)


def found_in(values: dict[str, Any], path: str, wanted: str) -> tuple[dict[str, Any], str]:
    """Return the group that holds a setting, and the setting's name there.

    Raises:
        InputError: there is no such setting; `wanted` says who asks for it.
    """
    *parents, leaf = path.split(".")
    place: object = values
    for parent in parents:
        place = place.get(parent) if isinstance(place, dict) else None
    if not isinstance(place, dict) or leaf not in place:
        raise InputError(f"{wanted}: no such setting; {nearest(path, flat(values))}")
    return place, leaf


def nearest(path: str, settings: Mapping[str, object]) -> str:
    """Return which settings may have been meant, nearest first: of the same last name, else those that look alike."""
    same = [name for name in settings if name.rpartition(".")[2] == path.rpartition(".")[2]]
    found = get_close_matches(path, same or settings, SUGGESTED, 0.0 if same else ALIKE)
    return f"did you mean {' or '.join(found)}?" if found else "write for example --set features.size_px=256"


def without_value(path: str, value: object) -> str:
    """State how a value is given to a setting, or to one of a group."""
    if isinstance(value, dict) and value:
        return f"{path} is a group; write --set SETTING=VALUE for one of {', '.join(flat(value, f'{path}.'))}"
    return f"no value is given; write --set {path}=VALUE (it is {json.dumps(value, default=str)} now)"


def explain(error: ValidationError) -> str:
    """State in one line which setting has which wrong value; an address with a login in it is not repeated."""
    return "; ".join(map(fault, error.errors()))


def fault(found: ErrorDetails) -> str:
    """State in one line what is wrong with one setting."""
    value = "" if found["type"] == LOGIN_INSIDE else f" is {shortened(repr(found['input']))}"
    return f"{'.'.join(map(str, found['loc']))}{value}: {found['msg']}"


def run_options(**values: object) -> RunOptions:
    """Build the run options, with a readable error."""
    for name, value in values.items():
        check_value(value, name)
    try:
        return RunOptions.model_validate(values)
    except ValidationError as error:
        raise InputError(explain(error)) from None
