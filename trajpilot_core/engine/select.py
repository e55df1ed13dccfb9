"""Which stages a run asks for."""

from collections.abc import Iterable

from schemas.config import RunOptions
from trajpilot_core.errors import InputError


def selected_of(stages: Iterable[str], run: RunOptions) -> list[str]:
    """Return the names of the stages that `run` asks for, in order.

    Args:
        stages: the names of all stages, in order.
        run: `only`, `from_stage` and `force`; a stage that is forced is not asked for by that alone.

    Raises:
        InputError: a name is not a stage, or what is asked for contradicts itself.
    """
    names = list(stages)
    if run.only and run.from_stage:
        raise InputError(
            f"only {', '.join(run.only)} and from {run.from_stage} exclude each other; give one of the two"
        )
    asked = [*run.only, *run.force, *([run.from_stage] if run.from_stage else [])]
    unknown = sorted(set(asked) - set(names))
    if unknown:
        raise InputError(f"no stage is called {', '.join(unknown)}; the stages are {', '.join(names)}")
    chosen = [name for name in names if name in run.only] if run.only else names
    if run.from_stage:
        chosen = names[names.index(run.from_stage) :]
    idle = [name for name in run.force if name not in chosen]
    if idle:
        raise InputError(f"force {', '.join(idle)}: this run asks only for {', '.join(chosen)}; ask for it, too")
    return chosen
