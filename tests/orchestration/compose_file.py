"""docker-compose.yml as Compose reads it: variables filled in, YAML anchors merged."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from checkout import CHECKOUT

FILE = CHECKOUT / "docker-compose.yml"
VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?:(?P<kind>:-|:\?)(?P<rest>[^}]*))?\}")


class MissingVariable(Exception):
    """A variable that the file requires is empty; the message is the file's own."""


def filled_in(text: str, variables: Mapping[str, str]) -> str:
    """Replace `${NAME}`, `${NAME:-default}` and `${NAME:?message}` as Compose does."""

    def value(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "$"
        given = variables.get(found["name"], "")
        if given or found["kind"] is None:
            return given
        if found["kind"] == ":?":
            raise MissingVariable(f"required variable {found['name']} is missing a value: {found['rest']}")
        return found["rest"]

    return VARIABLE.sub(value, text)


def fill(value: Any, variables: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return filled_in(value, variables)
    if isinstance(value, dict):
        return {key: fill(below, variables) for key, below in value.items()}
    return [fill(below, variables) for below in value] if isinstance(value, list) else value


def as_written(path: Path = FILE) -> dict[str, Any]:
    """Return the file with anchors merged and variables as they are written."""
    return dict(yaml.safe_load(path.read_text()))


def as_started(variables: Mapping[str, str], path: Path = FILE) -> dict[str, Any]:
    """Return the file as Compose starts it.

    Raises:
        MissingVariable: a required variable is empty.
    """
    return dict(fill(as_written(path), variables))
