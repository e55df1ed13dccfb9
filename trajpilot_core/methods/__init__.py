"""The rows of the tables, in the order in which they are printed: the only list. Imports no torch.

A new row is one file with its `Method` and one line here; tables, report, LaTeX, JSON, ceilings, checks and gallery
follow.
"""

from collections.abc import Iterable

from trajpilot_core.errors import MethodError
from trajpilot_core.methods import (
    anticipation,
    closed_controls,
    endpoint_traj,
    floors,
    goal_dropout,
    hmm,
    knn_labels,
    latent,
    no_traj,
    oracle,
    planners,
    pool_mean,
    scorer,
    shuffled,
    top1,
    viterbi,
    vlm,
)
from trajpilot_core.methods.base import Method

METHODS: list[Method] = [
    no_traj.METHOD,
    endpoint_traj.METHOD,
    scorer.SCORER,
    oracle.METHOD,
    *planners.ROWS,
    vlm.ZERO_SHOT,
    vlm.TUNED,
    scorer.PERMUTED,
    scorer.NO_LABELS,
    scorer.NO_MOTION,
    *latent.ROWS,
    *viterbi.ROWS,
    closed_controls.WITHOUT_PRIOR,
    closed_controls.GRAPH_ONLY,
    goal_dropout.NO_TRAJ,
    goal_dropout.ORACLE,
    hmm.HMM,
    hmm.HMM_MOTION,
    pool_mean.METHOD,
    knn_labels.METHOD,
    top1.METHOD,
    shuffled.METHOD,
    floors.PREVIOUS,
    floors.MAJORITY,
    vlm.UNTUNED,
    vlm.STUB,
    *anticipation.ROWS,
    *vlm.GOAL_FREE,
]

BUILT_IN = frozenset(one.id for one in METHODS)
"""What is listed beyond these are rows of plugins (`methods.plugged`)."""


def method(id_: str) -> Method:
    """Return the row of that id.

    Raises:
        MethodError: there is none: nothing is known of what it may see, nor what bounds it.
    """
    for one in METHODS:
        if one.id == id_:
            return one
    raise MethodError(
        f"no row of the tables is called {id_!r}; the rows are {', '.join(m.id for m in METHODS)} "
        "(trajpilot_core/methods)"
    )


def with_role(*roles: str) -> list[str]:
    """Return the ids of the rows that have one of the roles, in order."""
    return [one.id for one in METHODS if one.role in roles]


def charted() -> list[str]:
    """Return the ids of the main rows and of those of plugins, in order: what charts over the horizon show."""
    return [one.id for one in METHODS if one.role == "main" or (one.id not in BUILT_IN and not one.anticipates)]


def examined() -> Method:
    """Return the row whose gate is looked at window by window: the first with a gate that the gallery keeps."""
    return next(one for one in METHODS if one.gate is not None and one.in_gallery)


def in_order(ids: Iterable[str]) -> list[str]:
    """Sort ids of rows as the tables print them. Raises MethodError if one is no row."""
    place = {one.id: index for index, one in enumerate(METHODS)}
    return sorted({method(id_).id for id_ in ids}, key=place.__getitem__)
