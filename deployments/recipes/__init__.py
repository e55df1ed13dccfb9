"""Recipes by name (`RecipeName` lists functions of `paper` and `simulated`), and changes of a run on top of one."""

from collections.abc import Callable
from typing import Any, TypeVar, get_args

from deployments.recipes import paper, simulated
from schemas.base import Record
from schemas.config import PipelineConfig, RecipeName
from trajpilot_core.errors import InputError

R = TypeVar("R", bound=Record)
RECIPES: dict[str, Callable[[], PipelineConfig]] = {
    name: getattr(paper if name in vars(paper) else simulated, name) for name in get_args(RecipeName)
}


def recipe(name: str) -> PipelineConfig:
    """Return the configuration of a named experiment. Raises InputError: there is no such recipe."""
    if name not in RECIPES:
        raise InputError(f"no recipe is called {name!r}; the recipes are {', '.join(sorted(RECIPES))}")
    return RECIPES[name]()


def over(base: R, stated: R, prefill: R | None = None) -> R:
    """Return `base` with the fields that `stated` sets; a nested record sets only its own fields.

    A form sets every field, because it is prefilled. So if `stated` is complete and `prefill` is what the form started
    from, only fields that differ from `prefill` count as set.
    """
    if prefill is not None and stated.model_dump() == prefill.model_dump():
        return base
    changes = stated.values(only_set=True)
    if prefill is not None and stated.model_dump(exclude_unset=True) == stated.model_dump():
        changes = _changed(prefill.values(), changes)
    return type(base).model_validate(_merged(base.values(), changes))


def _merged(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """Return `base` updated with `changes`; dictionaries are merged at every level."""
    merged = dict(base)
    for name, value in changes.items():
        below = merged.get(name)
        merged[name] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return merged


def _changed(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """Return the part of `after` that differs from `before`, at every level."""
    changes: dict[str, Any] = {}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(old, dict) and isinstance(value, dict):
            below = _changed(old, value)
            changes.update({name: below} if below else {})
        elif name not in before or old != value:
            changes[name] = value
    return changes
