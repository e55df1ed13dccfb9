"""Which stages a run asks for, and in which order: each after those that it reads, others next to it."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from schemas.config import RunOptions
from trajpilot_core.engine.key import producers
from trajpilot_core.engine.stage import AnyStage
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


def upstream(stages: Mapping[str, AnyStage], names: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return stage -> those of `names` whose entries it reads, both in the order of `names`.

    Args:
        stages: all stages by name.
        names: the stages that a run asks for; what the others wrote must be there already.

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

    One stage that runs a model at a time: torch has one random state and one number of threads for the whole process,
    so that two of them could change each other's numbers, and they would share one GPU.

    Args:
        waiting: stages that have not started.
        after: stage -> stages that must have ended before it starts (`upstream`).
        ended: stages that have ended, well or not.
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
