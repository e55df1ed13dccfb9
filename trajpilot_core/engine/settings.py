"""Every setting: default, allowed values, description, what it makes stale; those of a root's last run."""

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue
from pydantic_core import to_jsonable_python

from schemas.base import Record, bounds
from schemas.config import PipelineConfig, RecipeName, RunOptions
from trajpilot_core.engine.key import producers
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import read_sealed, seal

NAME = "last.json"


@dataclass(frozen=True)
class ListedSetting:
    """One setting of a configuration."""

    path: str
    """As `--set` names it: `features.size_px`."""
    value: JsonValue
    default: JsonValue
    """Value in the paper's main experiment."""
    allowed: str
    """Bounds, choices or kind in words."""
    about: str
    """Description in one line, with its source if any."""
    stages: tuple[str, ...]
    """Stages that read it, and all downstream of them: at most these run again when it changes."""

    @property
    def is_changed(self) -> bool:
        """Return whether it differs from the default."""
        return self.value != self.default


def settings_of(config: PipelineConfig, stages: Mapping[str, AnyStage]) -> list[ListedSetting]:
    """Return every setting of a configuration, group by group.

    An optional group that is absent (`alignment.pretrained`) counts as one setting with the value None.
    """
    defaults = values_of(PipelineConfig())
    stale = {group: made_stale(group, stages) for group in PipelineConfig.model_fields}
    listed = []
    for path, record, name, value in _leaves(config):
        about = " ".join((type(record).model_fields[name].description or "").split())
        allowed, group = in_words(_properties(type(record))[name]), path.partition(".")[0]
        listed.append(ListedSetting(path, value, defaults.get(path), allowed, about, stale[group]))
    return listed


def values_of(config: PipelineConfig) -> dict[str, JsonValue]:
    """Return every setting by its full name, also those that a digest omits at their defaults."""
    return {path: value for path, _, _, value in _leaves(config)}


def _leaves(record: Record, above: str = "") -> Iterator[tuple[str, Record, str, JsonValue]]:
    """Yield, for every setting below a record, its path, its record, its name there and its value as JSON."""
    for name in type(record).model_fields:
        inner = getattr(record, name)
        if isinstance(inner, Record):
            yield from _leaves(inner, f"{above}{name}.")
        else:
            yield f"{above}{name}", record, name, to_jsonable_python(inner)


@functools.cache
def _properties(record: type[Record]) -> dict[str, Any]:
    return dict(record.model_json_schema()["properties"])


def in_words(schema: dict[str, Any]) -> str:
    """Return the allowed values of a setting in words: choices, or kind with bounds."""
    parts = schema.get("anyOf", [schema])
    kinds = [kind for part in parts if (kind := _kind_of(part))]
    return ", ".join(text for text in (" or ".join(dict.fromkeys(kinds)), bounds(schema)) if text)


def _kind_of(schema: dict[str, Any]) -> str:
    """Return the kind of a value, or its choices."""
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "const" in schema:
        return str(schema["const"])
    if schema.get("type") == "array":
        inside = _kind_of(schema["items"]) if isinstance(schema.get("items"), dict) else ""
        return f"list of {inside}" if inside else "list"
    if "$ref" in schema:
        return "group"
    names = {"integer": "whole number", "boolean": "true | false", "string": "text", "object": "table"}
    kind = str(schema.get("type", ""))
    return names.get(kind, kind)


def made_stale(group: str, stages: Mapping[str, AnyStage]) -> tuple[str, ...]:
    """Return the stages that use a group of settings and every stage downstream, in order."""
    writer = producers(stages)
    stale = {name for name, stage in stages.items() if stage.section == group}
    for name, stage in stages.items():
        if any(writer.get(entry) in stale for entry in stage.reads):
            stale.add(name)
    return tuple(name for name in stages if name in stale)


class LastRun(Record):
    """The last run of a root; nothing depends on it."""

    config: PipelineConfig
    data_root: str
    device: str
    recipe: RecipeName
    """Recipe that `config` started from."""


def remember_run(config: PipelineConfig, run: RunOptions) -> None:
    """Write the settings and options of this run to the root."""
    note = LastRun(config=config, data_root=run.data_root, device=run.device, recipe=run.recipe)
    open_folder(run.root).replace(NAME, seal(note))


def recall_run(root: str) -> LastRun | None:
    """Return the last run of a root; None where none was noted, or an older version wrote it."""
    try:
        return read_sealed(open_folder(root), LastRun, NAME)
    except StoreError:
        return None
