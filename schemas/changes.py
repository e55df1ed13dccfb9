"""What a run changes in its recipe, and how to say it."""

from typing import Any, TypeVar

from pydantic import JsonValue

from schemas.base import Record
from schemas.config import PipelineConfig

R = TypeVar("R", bound=Record)


class Change(Record):
    """One setting that differs."""

    setting: str
    """Dotted, as in `--set`."""
    before: JsonValue
    after: JsonValue

    def __str__(self) -> str:
        return f"{self.setting} {self.before} -> {self.after}"


def differences(before: PipelineConfig, after: PipelineConfig) -> tuple[Change, ...]:
    """Return every setting that has another value in `after`, in order of declaration."""
    old, new = flat(before.model_dump(mode="json")), flat(after.model_dump(mode="json"))
    names = [*old, *(name for name in new if name not in old)]
    return tuple(
        Change(setting=name, before=old.get(name), after=new.get(name))
        for name in names
        if old.get(name) != new.get(name)
    )


def over(base: R, stated: R, prefill: R | None = None) -> R:
    """Return `base` with what `stated` states; a nested record states only its own fields.

    A form states every field, because it was filled in beforehand. So where `stated` is complete and `prefill` is what
    the form began with, only what differs from `prefill` counts as stated.
    """
    said = stated.model_dump(exclude_unset=True)
    if prefill is not None and said == stated.model_dump():
        said = changed(prefill.model_dump(), said)
    return type(base).model_validate(merged(base.model_dump(), said))


def merged(base: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """Return `base` with what is said, dictionaries merged at every level."""
    both = dict(base)
    for name, value in said.items():
        below = both.get(name)
        both[name] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the part of `after` that is not the same in `before`, at every level."""
    found: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            below = changed(old, value)
            found.update({name: below} if below else {})
        elif name not in before or old != value:
            found[name] = value
    return found


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, JsonValue]:
    """Write nested settings with dotted names."""
    found: dict[str, JsonValue] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{name}."))
        else:
            found[f"{prefix}{name}"] = value
    return found
