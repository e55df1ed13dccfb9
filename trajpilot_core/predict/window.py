"""The query as one more planning window in addition to those of the corpus.

Three segments are added: Start, Goal, and one without look or motion that stands for every middle step, of which
nothing is known. Rows of the corpus keep their numbers, so that a bank built from the corpus alone serves the query.

Axes: S segments, C tokens, D feature width, H horizon.
"""

from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.observation import DOF, MOTIONS
from trajpilot_core.data.chains import trajectory_latents
from trajpilot_core.data.planning import NO_FOLD, SPLITS, PlanningData, WindowSet
from trajpilot_core.errors import InputError
from trajpilot_core.retrieval.bank import ChainView

WINDOW = "query"
NO_LABEL = 0
"""Label of the query's segments; no row reads it, because the truth is not known."""


def with_query(
    view: ChainView,
    features: NDArray[np.float16],
    motions: NDArray[np.float32] | None,
    horizon: int,
    take_id: str | None,
) -> ChainView:
    """Return a chain's view with the query's window as the last one of its horizon.

    Args:
        view: the corpus as the chain sees it.
        features: (2, C x D) of Start and Goal.
        motions: (2, 16, 6) raw, or None where there is no head motion.
        horizon: steps of the plan.
        take_id: the take of the corpus that the video is; None: a take of its own.

    Raises:
        InputError: the models know no such horizon.
    """
    data = view.data
    if horizon not in data.windows:
        known = sorted(data.windows)
        raise InputError(
            f"--horizon {horizon} is not one that the models were trained for: {known[0]} to {known[-1]}; "
            "choose one of them"
        )
    device = data.features.device
    looks = torch.from_numpy(features).view(2, *data.features.shape[1:])
    moves = torch.zeros(2, MOTIONS, DOF) if motions is None else torch.from_numpy(motions)
    grown, take = _with_take(data, take_id)
    extra = torch.cat([moves, torch.zeros(1, MOTIONS, DOF)]).to(device)
    added = replace(
        grown,
        segment_ids=(*data.segment_ids, f"{WINDOW}:start", f"{WINDOW}:goal", f"{WINDOW}:middle"),
        features=_grown(data.features, torch.cat([looks, torch.zeros_like(looks[:1])])),
        motions=_grown(data.motions, extra),
        labels=_grown(data.labels, torch.full((3,), NO_LABEL)),
        segment_take=_grown(data.segment_take, torch.full((3,), take)),
        windows=data.windows | {horizon: _with_window(data.windows[horizon], len(data.segment_ids), take)},
    )
    latents = torch.cat([view.latents, trajectory_latents(view.models.e_tau, extra)])
    return replace(view, data=added, latents=latents, readout=view.readout.with_takes(len(added.take_ids)))


def _with_take(data: PlanningData, take_id: str | None) -> tuple[PlanningData, int]:
    """Return the data with the query's take, and its number: that of the corpus, else a new, unknown one."""
    if take_id is not None:
        return data, data.take_ids.index(take_id)
    test = torch.tensor([SPLITS.index("test")])
    return replace(
        data,
        take_ids=(*data.take_ids, WINDOW),
        participants=(*data.participants, ""),
        captures=(*data.captures, WINDOW),
        take_split=_grown(data.take_split, test),
        fold=_grown(data.fold, torch.tensor([NO_FOLD])),
    ), len(data.take_ids)


def _with_window(windows: WindowSet, first: int, take: int) -> WindowSet:
    """Add the window Start, middles, Goal, whose segments begin at row `first`."""
    horizon = windows.segments.shape[1]
    segments = torch.tensor([[first, *[first + 2] * (horizon - 2), first + 1]])
    return replace(
        windows,
        window_ids=(*windows.window_ids, WINDOW),
        take=_grown(windows.take, torch.tensor([take])),
        split=_grown(windows.split, torch.tensor([SPLITS.index("test")])),
        segments=_grown(windows.segments, segments),
    )


def _grown(known: Tensor, more: Tensor) -> Tensor:
    """Add rows below."""
    return torch.cat([known, more.to(known.device, known.dtype)])
