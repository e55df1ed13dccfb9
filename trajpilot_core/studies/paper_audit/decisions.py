"""What the code says of the quantities that the paper leaves open: the last column of the table in the page.

The table is its own source: each entry of the column names a setting, a place in the code, or a part that is not
built. Renewing it reads the value of the setting or constant again; a name that is gone is an error.
"""

import re
from importlib import import_module
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError

WORDS = {None: "none", True: "yes", False: "no"}
SETTING = re.compile(r"`([a-z_0-9.]+)`(?: .*)?")
LOCATION = re.compile(r"`([A-Za-z_0-9.]+)` in `([a-z_0-9/]+)\.py`(?:: .*)?")
MISSING = re.compile(r"\*\*not built\*\*: (.+)")


def renewed(cell: str, config: PipelineConfig) -> str:
    """Return the column of one decision with the values that configuration and code have now.

    Args:
        cell: entries that are divided by semicolons.
        config: whose values are printed.

    Raises:
        InputError: a setting or a name in the code is gone, or an entry is none of the three.
    """
    return "; ".join(_entry(part, config) for part in cell.split("; "))


def _entry(text: str, config: PipelineConfig) -> str:
    """Return one entry; that a part is not built is prose, which a test holds against the names of the modules."""
    if found := LOCATION.fullmatch(text):
        return location(found[2], found[1])
    if found := SETTING.fullmatch(text):
        return setting(config, found[1])
    if MISSING.fullmatch(text):
        return text
    raise InputError(f"{text!r} is no setting, place in the code or part that is not built; fix docs/reproduction.md")


def setting(config: PipelineConfig, path: str) -> str:
    """Print one field as it stands, with its alternatives where there are any.

    Raises:
        InputError: the configuration has no such field.
    """
    record: BaseModel = config
    value: object = config
    for name in path.split("."):
        if not isinstance(value, BaseModel) or name not in type(value).model_fields:
            raise InputError(f"the configuration has no {path}; fix the name in docs/reproduction.md")
        record, value = value, getattr(value, name)
    annotation = type(record).model_fields[name].annotation
    options = [str(o) for o in get_args(annotation) if o != value] if get_origin(annotation) is Literal else []
    text = f"`{path}` {in_words(value)}"
    return f"{text} (or {', '.join(options)})" if options else text


def location(module: str, name: str) -> str:
    """Print where a decision stands in the code, with the value of a constant.

    Args:
        module: path of the file without its suffix; below trajpilot_core, or in schemas.
        name: inside it, may be dotted.

    Raises:
        InputError: there is no such file or name.
    """
    dotted = module.replace("/", ".")
    try:
        found: object = import_module(dotted if dotted.startswith("schemas.") else f"trajpilot_core.{dotted}")
    except ModuleNotFoundError as error:
        raise InputError(f"there is no {module}.py; fix the place of {name} in docs/reproduction.md") from error
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{module}.py has no {name}; fix the name in docs/reproduction.md")
        found = getattr(found, part)
    text = f"`{name}` in `{module}.py`"
    return f"{text}: {in_words(found)}" if isinstance(found, int | float | str | tuple) else text


def in_words(value: object) -> str:
    """Print a value of the configuration."""
    if isinstance(value, tuple):
        return ", ".join(in_words(part) for part in value)
    return WORDS[value] if value is None or isinstance(value, bool) else str(value)
