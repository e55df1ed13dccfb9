"""The guard on what a row sees: what it says it does not see is exchanged, and its answers must not change.

Axes: P windows of one horizon H, one a take; M middle steps. Source: docs/decisions/methods.md.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from trajpilot_core.errors import LeakError
from trajpilot_core.methods.base import SEEN, STEPS, Answers, Method, Seen, Sight, WindowStep
from trajpilot_core.methods.batch import WindowBatch
from trajpilot_core.retrieval.bank import TRAIN, ChainView

PROBES = 16
"""Windows that are looked at, of as many takes: those of one take share segments."""
STRIDE = 7919
"""Between the training segments that stand in: prime, so that neighbours differ."""


def probe_rows(take_N: Tensor, rows: Tensor) -> Tensor:
    """Return `rows` cut to shape (P,): the first window of each of the first takes.

    Args:
        take_N: (N,) long, take of every window of the horizon.
        rows: long of shape (n,), windows that are scored.
    """
    seen: dict[int, int] = {}
    for row, take in zip(rows.tolist(), take_N[rows].tolist(), strict=True):
        seen.setdefault(take, row)
    return torch.tensor(list(seen.values())[:PROBES], dtype=torch.long, device=rows.device)


def stand_ins(view: ChainView, n: int) -> Tensor:
    """Return long of shape (n,): segments of training takes; none of a window that is scored."""
    data = view.data
    rows = (data.take_split[data.segment_take] == TRAIN).nonzero()[:, 0]
    return rows[(torch.arange(n, device=rows.device) * STRIDE) % len(rows)]


def unseen_parts(view: ChainView, segments_PH: Tensor, seen: Seen) -> list[tuple[Tensor, Tensor]]:
    """Return what (P, H) windows do not show, as (S, ...) tensors of the view and long rows of them: labels never."""
    every, steps = torch.unique(segments_PH), {"start": slice(0, 1), "mids": slice(1, -1), "goal": slice(-1, None)}

    def rows(shown: frozenset[WindowStep]) -> Tensor:
        """Return the segments, long of shape (n,), of the steps that are not shown."""
        hidden_steps = [segments_PH[:, steps[one]].flatten() for one in STEPS if one not in shown]
        found: Tensor = torch.unique(torch.cat([every[:0], *hidden_steps]))
        return found

    data, looks, moves = view.data, rows(seen.pixels), rows(seen.motion)
    parts = [(data.labels, every), (data.features, looks)]
    if data.own_labels is not None:
        parts.append((data.own_labels, every))
    return [*parts, (view.latents, moves), (view.states, moves), (data.motions, moves)]


@contextmanager
def hidden(view: ChainView, segments_PH: Tensor, sees: Sight) -> Iterator[None]:
    """Exchange what `sees` does not show of the (P, H) windows for that of training segments, and put it back.

    The tensors of the view are changed in place: at paper scale a copy for every row of the tables would not fit.
    """
    parts = [] if sees == "truth" else unseen_parts(view, segments_PH, SEEN[sees])
    with torch.inference_mode():
        kept = [tensor[rows].clone() for tensor, rows in parts]
        for tensor, rows in parts:
            tensor[rows] = tensor[stand_ins(view, len(rows))]
    try:
        yield
    finally:
        with torch.inference_mode():
            for (tensor, rows), before in zip(parts, kept, strict=True):
                tensor[rows] = before


def check_sight(
    methods: Sequence[Method], view: ChainView, make: Callable[[Tensor], WindowBatch], rows: Tensor
) -> None:
    """Ask every row that a model here answers twice: with everything, and without what it says it does not see.

    Args:
        view: the final chain; its tensors are changed for the moment of the second question.
        make: from windows of shape (P,) to what rows are made from; asked afresh, so that retrieval is checked as well.
        rows: long of shape (P,), windows of one horizon, each of another take.

    Raises:
        LeakError: a row answers otherwise: it sees more than it declares.
    """
    whole = make(rows)
    asked = [one for one in methods if one.answer is not None]
    for sees in dict.fromkeys(one.sees for one in asked):
        with hidden(view, whole.segments, sees):
            blind = make(rows)
            second = {one.id: one.answer(blind) for one in asked if one.sees == sees and one.answer is not None}
        for one in asked:
            if one.sees == sees and one.answer is not None and not same(one.answer(whole), second[one.id]):
                raise LeakError(
                    f"the row {one.name!r} says that it sees {sees!r} of a window, but it answers otherwise when only "
                    f"what that leaves out is exchanged (H={whole.segments.shape[1]}, {len(rows)} windows looked at); "
                    f"correct `sees` and the ceiling in its file, or what it reads: trajpilot_core/methods, id {one.id}"
                )


def same(one: Answers | None, other: Answers | None) -> bool:
    """Return whether two answers are equal to the last bit."""
    if one is None or other is None:
        return one is other
    pairs = [(one.ids, other.ids), (one.scores, other.scores)]
    optional = ((one.gate, other.gate), (one.decoded, other.decoded))
    pairs += [(a, b) for a, b in optional if a is not None and b is not None]
    return all(torch.equal(a, b) for a, b in pairs)
