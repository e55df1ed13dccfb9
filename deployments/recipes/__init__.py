"""Named experiments, by name: the only list."""

from collections.abc import Callable

from deployments.recipes import paper, simulated
from schemas.config import PipelineConfig, RecipeName
from trajpilot_core.errors import InputError

RECIPES: dict[RecipeName, Callable[[], PipelineConfig]] = {
    "atomic": paper.atomic,
    "atomic_closed": paper.atomic_closed,
    "demo": simulated.demo,
    "demo_planners": simulated.demo_planners,
    "demo_closed": simulated.demo_closed,
    "demo_anticipation": simulated.demo_anticipation,
    "demo_keystep": simulated.demo_keystep,
    "demo_goalstep": simulated.demo_goalstep,
    "demo_egoper": simulated.demo_egoper,
    "demo_epic_kitchens": simulated.demo_epic_kitchens,
    "soak": simulated.soak,
    "keystep": paper.keystep,
    "goalstep": paper.goalstep,
    "egoper": paper.egoper,
    "atomic_anticipation": paper.atomic_anticipation,
    "epic_kitchens": paper.epic_kitchens,
    "basketball": paper.basketball,
    "demo_basketball": simulated.demo_basketball,
    "keystep_poses": paper.keystep_poses,
    "demo_poses": simulated.demo_poses,
    "laptop": paper.laptop,
    "atomic_latent": paper.atomic_latent,
    "demo_latent": simulated.demo_latent,
    "vlm_zero_shot": paper.vlm_zero_shot,
    "vlm_sft": paper.vlm_sft,
}


def recipe(name: str) -> PipelineConfig:
    """Return the configuration of a named experiment; `check_built` reports which of its stages can run.

    Raises:
        InputError: there is no such recipe.
    """
    named = {str(known): build for known, build in RECIPES.items()}
    if name not in named:
        raise InputError(f"no recipe is called {name!r}; the recipes are {', '.join(sorted(named))}")
    return named[name]()
