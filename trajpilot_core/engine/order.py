"""Which stages a run includes and when each may start: after those that it reads, in parallel with others."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from schemas.config import RunOptions
from trajpilot_core.engine.key import producers
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError


def selected_of(stages: Iterable[str], run: RunOptions) -> list[str]:
    """Return the names of the stages that `run` selects, in order.

    Args:
        stages: the names of all stages, in order.
        run: `only`, `from_stage` and `force`; forcing a stage does not select it.

    Raises:
        InputError: a name is not a stage, or the options contradict each other.
    """
    names = list(stages)
    if run.only and run.from_stage:
        raise InputError(f"only {', '.join(run.only)} and from {run.from_stage} exclude each other; give one of them")
    requested = [*run.only, *run.force, *([run.from_stage] if run.from_stage else [])]
    unknown = sorted(set(requested) - set(names))
    if unknown:
        raise InputError(f"no stage is called {', '.join(unknown)}; the stages are {', '.join(names)}")
    chosen = [name for name in names if name in run.only] if run.only else names
    if run.from_stage:
        chosen = names[names.index(run.from_stage) :]
    idle = [name for name in run.force if name not in chosen]
    if idle:
        raise InputError(f"force {', '.join(idle)}: this run includes only {', '.join(chosen)}; select it, too")
    return chosen


def upstream(stages: Mapping[str, AnyStage], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return stage -> those of `names` whose entries it reads, both in the order of `names`.

    Args:
        stages: all stages by name.
        names: the stages of a run; the output of all others must exist already.

    Raises:
        StoreError: two stages declare one entry.
    """
    writer = producers(stages)
    read = {name: {writer.get(entry) for entry in stages[name].reads} for name in names}
    return {name: tuple(other for other in names if other in read[name]) for name in names}


def startable(
    waiting: Sequence[str],
    after: Mapping[str, Collection[str]],
    ended: Collection[str],
    running: Collection[str],
    limit: int,
    has_model: Callable[[str], bool],
) -> list[str]:
    """Return the stages that may start now, in the order of `waiting`.

    Only one stage with a model runs at a time: torch has one random state and one thread count per process, so two of
    them could change each other's numbers, and they would share one GPU.

    Args:
        waiting: stages that have not started.
        after: stage -> stages that must have ended before it starts (`upstream`).
        ended: stages that have ended, successfully or not.
        running: stages that run.
        limit: how many stages may run at a time.
        has_model: whether a model runs in a stage.
    """
    chosen: list[str] = []
    for name in waiting:
        busy = [*running, *chosen]
        if len(busy) >= limit:
            break
        is_blocked = any(other not in ended for other in after[name])
        if not is_blocked and not (has_model(name) and any(has_model(other) for other in busy)):
            chosen.append(name)
    return chosen
