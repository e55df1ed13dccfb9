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
        InputError: a name is not a stage.
    """
    names = list(stages)
    asked = [*run.only, *run.force, *([run.from_stage] if run.from_stage else [])]
    unknown = sorted(set(asked) - set(names))
    if unknown:
        raise InputError(f"no stage is called {', '.join(unknown)}; the stages are {', '.join(names)}")
    if run.only:
        return [name for name in names if name in run.only]
    return names[names.index(run.from_stage) :] if run.from_stage else names
