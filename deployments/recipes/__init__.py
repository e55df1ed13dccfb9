"""Named experiments, by name: each name of `RecipeName` is a function of `paper` or of `simulated`."""

from collections.abc import Callable
from typing import get_args

from deployments.recipes import paper, simulated
from schemas.config import PipelineConfig, RecipeName
from trajpilot_core.errors import InputError

RECIPES: dict[RecipeName, Callable[[], PipelineConfig]] = {
    name: getattr(paper if name in vars(paper) else simulated, name) for name in get_args(RecipeName)
}


def recipe(name: str) -> PipelineConfig:
    """Return the configuration of a named experiment.

    Raises:
        InputError: there is no such recipe.
    """
    named = {str(known): build for known, build in RECIPES.items()}
    if name not in named:
        raise InputError(f"no recipe is called {name!r}; the recipes are {', '.join(sorted(named))}")
    return named[name]()
