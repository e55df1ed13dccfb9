"""Options that several commands share, and how a configuration is read."""

from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import ValidationError

from deployments.recipes import RECIPES
from schemas.config import PipelineConfig, RunOptions
from schemas.places import LOGIN_INSIDE, REFUSED, holds_login
from trajpilot_core.engine.planning.staleness import flat
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import NoJsonError, check_value, parse_json, shortened
from trajpilot_core.stages import EVERY_STAGE
from trajpilot_core.store.locations import resolved

Root = Annotated[str, typer.Option("--root", help="Folder for everything that is written.")]
Recipe = Annotated[str, typer.Option("--recipe", help=f"Named experiment: {', '.join(RECIPES)}.")]
Set = Annotated[list[str], typer.Option("--set", help="Change one setting: features.size_px=256 (repeatable).")]
Only = Annotated[list[str], typer.Option("--only", help=f"Run only this stage (repeatable): {', '.join(EVERY_STAGE)}.")]
From = Annotated[str | None, typer.Option("--from", help="Run this stage and all later ones.")]
Force = Annotated[list[str], typer.Option("--force", help="Recompute this stage (repeatable).")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Processes in parallel.")]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, or cuda:1 and so on.")]


def located(address: str) -> str:
    """Return the absolute path of a folder; an address is returned unchanged.

    Raises InputError: the address contains a login, which is not repeated; StoreError: the links of the folder form a
    loop, or its name is not UTF-8.
    """
    if holds_login(address):
        raise InputError(REFUSED)
    return address if "://" in address else str(resolved(address))


def local_root(root: str) -> Path:
    """Return the folder of a run, which its log and server need. Raises InputError: the root is in an object store."""
    address = located(root)
    if "://" in address:
        raise InputError(
            f"--root {address} is not a folder of this machine; give one, or deploy with that root and run on workers"
        )
    return Path(address)


def existing_root(root: str) -> str:
    """Return the address of the root of a run. Raises InputError: it is no address, and there is no such folder."""
    address = located(root)
    if "://" not in address and not Path(address).is_dir():
        raise InputError(f"--root {root} is not a folder; give the root of a run, such as runs/demo after `make demo`")
    return address


def check_corpus(data: str) -> str:
    """Reject a corpus that does not exist or does not answer before anything is started, by an InputError."""
    address = located(data)
    if "://" in address:
        from trajpilot_core.store.corpus_files import open_corpus

        open_corpus(address)
    elif not Path(address).is_dir():
        raise InputError(f"--data {data} is not a folder; give the folder of the download")
    return address


def change(config: PipelineConfig, changes: list[str]) -> PipelineConfig:
    """Return `config` with changes such as `features.size_px=256`.

    Raises InputError: a change names no setting, or has no value or one that is not allowed.
    """
    values = config.values()
    for wanted in changes:
        path, equals, text = wanted.partition("=")
        where = f"--set {shortened(wanted)}"
        *parents, leaf = path.split(".")
        place: Any = values
        for parent in parents:
            place = place.get(parent) if isinstance(place, dict) else None
        if not isinstance(place, dict) or leaf not in place:
            matches = get_close_matches(path, flat(values), cutoff=0.7)
            hint = f"did you mean {' or '.join(matches)}?" if matches else "`trajpilot config` lists all"
            raise InputError(f"{where}: no such setting; {hint}")
        if not equals:
            raise InputError(f"{where}: no value given; write --set {path}=VALUE")
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
        check_value(value, path)  # the text "inf" becomes a number only in validation
    return changed


def explain(error: ValidationError) -> str:
    """Return in one line which settings have which wrong values; an address that contains a login is not repeated."""
    faults = []
    for fault in error.errors():
        value = "" if fault["type"] == LOGIN_INSIDE else f" is {shortened(repr(fault['input']))}"
        faults.append(f"{'.'.join(map(str, fault['loc']))}{value}: {fault['msg']}")
    return "; ".join(faults)


def run_options(**values: object) -> RunOptions:
    """Build the run options; invalid ones give a readable error."""
    for name, value in values.items():
        check_value(value, name)
    try:
        return RunOptions.model_validate(values)
    except ValidationError as error:
        raise InputError(explain(error)) from None
