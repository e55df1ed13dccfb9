"""What a run changes in its recipe."""

from typing import Any, TypeVar

from schemas.base import Record

R = TypeVar("R", bound=Record)


def over(base: R, stated: R, prefill: R | None = None) -> R:
    """Return `base` with the fields that `stated` sets; a nested record sets only its own fields.

    A form sets every field, because it was filled in beforehand. So where `stated` is complete and `prefill` is what
    the form began with, only fields that differ from `prefill` count as set.
    """
    if prefill is not None and stated.model_dump() == prefill.model_dump():
        return base
    said = values(stated, only_stated=True)
    if prefill is not None and stated.model_dump(exclude_unset=True) == stated.model_dump():
        said = changed(values(prefill), said)
    return type(base).model_validate(merged(values(base), said))


def values(record: Record, *, only_stated: bool = False) -> dict[str, Any]:
    """Return the fields of a record and of those below it, or those that were stated; unlike a dump, also such as are
    not written at their default."""
    names = [name for name in type(record).model_fields if not only_stated or name in record.model_fields_set]
    found = {name: getattr(record, name) for name in names}
    return {
        name: values(value, only_stated=only_stated) if isinstance(value, Record) else value
        for name, value in found.items()
    }


def merged(base: dict[str, Any], said: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `said`; dictionaries are merged at every level."""
    both = dict(base)
    for name, value in said.items():
        below = both.get(name)
        both[name] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return both


def changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the part of `after` that differs from `before`, at every level."""
    found: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            below = changed(old, value)
            found.update({name: below} if below else {})
        elif name not in before or old != value:
            found[name] = value
    return found
