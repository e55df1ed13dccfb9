"""The rows of the tables, in the order in which they are printed: the only list. Imports no torch.

A new row is a `Method` in a file of this folder and one line here; tables, report, LaTeX, JSON, ceilings, checks and
gallery use this list.
"""

from collections.abc import Iterable

from trajpilot_core.errors import MethodError
from trajpilot_core.methods import anticipation, latent, planners, predictors, retrieved, scorer, viterbi, vlm
from trajpilot_core.methods.base import Method

METHODS: list[Method] = [
    predictors.NO_TRAJ,
    predictors.ENDPOINT_TRAJ,
    scorer.SCORER,
    predictors.ORACLE,
    *planners.ROWS,
    vlm.ZERO_SHOT,
    vlm.TUNED,
    scorer.PERMUTED,
    scorer.NO_LABELS,
    scorer.NO_MOTION,
    *latent.ROWS,
    *viterbi.ROWS,
    predictors.WITHOUT_PRIOR,
    predictors.GRAPH_ONLY,
    predictors.NO_TRAJ_GOAL_DROPOUT,
    predictors.ORACLE_GOAL_DROPOUT,
    viterbi.HMM,
    viterbi.HMM_MOTION,
    retrieved.POOL_MEAN,
    retrieved.KNN_LABELS,
    retrieved.TOP1,
    predictors.SHUFFLED,
    retrieved.PREVIOUS,
    retrieved.MAJORITY,
    vlm.UNTUNED,
    *anticipation.ROWS,
    *vlm.GOAL_FREE,
]

BUILT_IN = frozenset(row.id for row in METHODS)
"""All other listed rows are from plugins (`methods.plugged`)."""


def method(id_: str) -> Method:
    """Return the row of that id.

    Raises:
        MethodError: there is none, so its sight and its upper bound are unknown.
    """
    for row in METHODS:
        if row.id == id_:
            return row
    raise MethodError(
        f"no row of the tables is called {id_!r}; the rows are {', '.join(m.id for m in METHODS)} "
        "(trajpilot_core/methods)"
    )


def with_role(*roles: str) -> list[str]:
    """Return the ids of the rows that have one of the roles, in order."""
    return [row.id for row in METHODS if row.role in roles]


def charted() -> list[str]:
    """Return the ids of the main rows and of those of plugins, in order, as charts over the horizon show them."""
    return [row.id for row in METHODS if row.role == "main" or (row.id not in BUILT_IN and not row.anticipates)]


def examined() -> Method:
    """Return the row whose gate is shown window by window: the first with a gate that the gallery keeps."""
    return next(row for row in METHODS if row.gate is not None and row.in_gallery)


def in_order(ids: Iterable[str]) -> list[str]:
    """Sort ids of rows as the tables print them. Raises MethodError for an unknown id."""
    place = {row.id: index for index, row in enumerate(METHODS)}
    return sorted({method(id_).id for id_ in ids}, key=place.__getitem__)
