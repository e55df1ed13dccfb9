"""The open quantities as configuration and code settle them today: values are read when the page is rendered."""

from importlib import import_module, resources
from importlib.resources.abc import Traversable
from typing import Literal, get_args, get_origin

from pydantic import BaseModel

from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError
from trajpilot_core.reproduction.decision_list import PARTS, Decision, Part

OWN = "reproduction"
WORDS = {None: "none", True: "yes", False: "no"}


def answer(decision: Decision, config: PipelineConfig, words: frozenset[str]) -> list[str]:
    """Return what configuration and code say of one decision, one entry each.

    Args:
        decision: which.
        config: whose values are printed.
        words: of `module_words`.

    Raises:
        InputError: a setting or a name in the code is gone.
    """
    told = [setting(config, path) for path in decision.settings] + [place(code) for code in decision.code]
    return told + [f"**not built**: {part}" for part in decision.needs if not is_built(part, words)]


def setting(config: PipelineConfig, path: str) -> str:
    """Print one field as it stands, with its alternatives where there are any.

    Raises:
        InputError: the configuration has no such field.
    """
    record: BaseModel = config
    value: object = config
    for name in path.split("."):
        if not isinstance(value, BaseModel) or name not in type(value).model_fields:
            raise InputError(f"the configuration has no {path}; mend the path in reproduction/decision_list.py")
        record, value = value, getattr(value, name)
    annotation = type(record).model_fields[name].annotation
    options = [str(o) for o in get_args(annotation) if o != value] if get_origin(annotation) is Literal else []
    told = f"`{path}` {in_words(value)}"
    return f"{told} (or {', '.join(options)})" if options else told


def place(reference: str) -> str:
    """Print where a decision stands in the code, with the value of a constant.

    Args:
        reference: `module:name`, the name may be dotted.

    Raises:
        InputError: there is no such name.
    """
    module, name = reference.split(":")
    found: object = import_module(module)
    for part in name.split("."):
        if not hasattr(found, part):
            raise InputError(f"{module} has no {name}; mend the reference in reproduction/decision_list.py")
        found = getattr(found, part)
    told = f"`{name}` in `{module.removeprefix('trajpilot_core.').replace('.', '/')}.py`"
    return f"{told}: {in_words(found)}" if isinstance(found, int | float | str | tuple) else told


def module_words() -> frozenset[str]:
    """Return the words of the names of all modules and packages of the core, this package left out."""
    return frozenset(word for stem in _stems(resources.files("trajpilot_core")) for word in stem.split("_"))


def is_built(part: Part, words: frozenset[str]) -> bool:
    """Return whether a module is named as one that builds the part."""
    return not words.isdisjoint(PARTS[part])


def in_words(value: object) -> str:
    """Print a value of the configuration."""
    if isinstance(value, tuple):
        return ", ".join(in_words(part) for part in value)
    return WORDS[value] if value is None or isinstance(value, bool) else str(value)


def _stems(folder: Traversable) -> list[str]:
    found = []
    for entry in folder.iterdir():
        if entry.is_dir() and entry.name not in (OWN, "__pycache__"):
            found += [entry.name, *_stems(entry)]
        elif entry.name.endswith(".py"):
            found.append(entry.name.removesuffix(".py"))
    return found
