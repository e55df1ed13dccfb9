"""The guard on what a row sees: everything outside its declared sight is exchanged, and its answers must not change.

Axes: P windows of one horizon H, one a take; M middle steps. Source: docs/decisions/methods.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from trajpilot_core.errors import LeakError
from trajpilot_core.methods.base import SEEN, STEPS, Answers, Method, Seen, WindowStep
from trajpilot_core.methods.batch import WindowBatch
from trajpilot_core.retrieval.bank import TRAIN, ChainView

PROBES = 16
"""Windows that are checked, of as many takes: those of one take share segments."""
STRIDE = 7919
"""Distance between the training segments that replace others: prime, so that neighbours differ."""
ExchangedRows = Sequence[tuple[Tensor, Tensor]]
"""Tensors (S, ...) with the rows, long, that are exchanged."""


class DeclaredSight(Protocol):
    """A row of a table that declares what it sees."""

    @property
    def id(self) -> str:
        """Id of the row."""

    @property
    def name(self) -> str:
        """Name, as printed."""

    @property
    def sees(self) -> str:
        """Declared sight."""


RowT = TypeVar("RowT", bound=DeclaredSight)
AnswerT = TypeVar("AnswerT")


def refuse_leaks(
    rows: Sequence[RowT],
    answers: Callable[[Sequence[RowT], bool], Mapping[str, AnswerT]],
    are_equal: Callable[[AnswerT, AnswerT], bool],
    what: str,
    file: str,
) -> None:
    """Compare every row's answers with those that it gives when everything outside its declared sight is exchanged.

    Args:
        answers: row id -> answer of some rows; where the second argument is true, all have one sight, and everything
            outside of it is exchanged.
        are_equal: of two answers of one row.
        what: what is answered, for the error.
        file: where the rows are declared, for the error.

    Raises:
        LeakError: the answers of a row differ: it sees more than it declares.
    """
    whole = answers(rows, False)
    for sees in dict.fromkeys(row.sees for row in rows):
        group = [row for row in rows if row.sees == sees]
        blind = answers(group, True)
        for row in group:
            if not are_equal(whole[row.id], blind[row.id]):
                raise LeakError(
                    f"the row {row.name!r} declares that it sees {sees!r}, but its answer changes when everything else "
                    f"is exchanged ({what}); correct `sees`, and the ceiling where it has one, or what the row reads: "
                    f"{file}, id {row.id}"
                )


def probe_rows(take_N: Tensor, rows: Tensor) -> Tensor:
    """Return (P,), long: of the scored windows `rows` (n,) the first one of each of the first P takes.

    `take_N` is the take of every window.
    """
    seen: dict[int, int] = {}
    for row, take in zip(rows.tolist(), take_N[rows].tolist(), strict=True):
        seen.setdefault(take, row)
    return torch.tensor(list(seen.values())[:PROBES], dtype=torch.long, device=rows.device)


def spread(rows: Tensor, n: int) -> Tensor:
    """Return n of some rows, long of shape (n,), spread over them."""
    return rows[(torch.arange(n, device=rows.device) * STRIDE) % len(rows)]


def stand_ins(view: ChainView, n: int) -> Tensor:
    """Return long of shape (n,): segments of training takes; none of a window that is scored."""
    data = view.data
    return spread((data.take_split[data.segment_take] == TRAIN).nonzero()[:, 0], n)


def unseen_parts(view: ChainView, segments_PH: Tensor, seen: Seen) -> ExchangedRows:
    """Return the rows of the view's tensors that (P, H) windows do not show; labels are never shown."""
    every, steps = torch.unique(segments_PH), {"start": slice(0, 1), "mids": slice(1, -1), "goal": slice(-1, None)}

    def hidden_rows(shown: frozenset[WindowStep]) -> Tensor:
        """Return the segments, long of shape (n,), of the steps that are not shown."""
        hidden_steps = [segments_PH[:, steps[step]].flatten() for step in STEPS if step not in shown]
        segments: Tensor = torch.unique(torch.cat([every[:0], *hidden_steps]))
        return segments

    data, looks, moves = view.data, hidden_rows(seen.pixels), hidden_rows(seen.motion)
    parts = [(data.labels, every), (data.features, looks)]
    if data.own_labels is not None:
        parts.append((data.own_labels, every))
    return [*parts, (view.latents, moves), (view.states, moves), (data.motions, moves)]


@contextmanager
def exchanged(parts: ExchangedRows, stand_in: Callable[[int], Tensor]) -> Iterator[None]:
    """Replace rows of tensors by the rows `stand_in(number of rows)`, long, for a block.

    In place: at paper scale copies would not fit the memory.
    """
    with torch.inference_mode():
        kept = [tensor[rows].clone() for tensor, rows in parts]
        for tensor, rows in parts:
            tensor[rows] = tensor[stand_in(len(rows))]
    try:
        yield
    finally:
        with torch.inference_mode():
            for (tensor, rows), before in zip(parts, kept, strict=True):
                tensor[rows] = before


def check_sight(
    methods: Sequence[Method], view: ChainView, make: Callable[[Tensor], WindowBatch], rows: Tensor
) -> None:
    """Check that every row that a model here answers sees no more than it declares.

    Args:
        view: the final chain; its tensors are changed during the check.
        make: windows (P,) -> their batch; called again after the exchange, so that retrieval is checked as well.
        rows: long of shape (P,), windows of one horizon, each of another take.

    Raises:
        LeakError: a row sees more.
    """
    whole = make(rows)

    def answers(group: Sequence[Method], is_blind: bool) -> dict[str, Answers | None]:
        sees = group[0].sees if is_blind else "truth"
        parts = [] if sees == "truth" else unseen_parts(view, whole.segments, SEEN[sees])
        with exchanged(parts, lambda n: stand_ins(view, n)):
            batch = make(rows) if is_blind else whole
            return {row.id: row.answer(batch) for row in group if row.answer is not None}

    what = f"H={whole.segments.shape[1]}, {len(rows)} windows checked"
    answered = [row for row in methods if row.answer is not None]
    refuse_leaks(answered, answers, same, what, "trajpilot_core/methods")


def same(one: Answers | None, other: Answers | None) -> bool:
    """Return whether two answers are equal to the last bit."""
    if one is None or other is None:
        return one is other
    pairs = [(one.ids, other.ids), (one.scores, other.scores)]
    optional = ((one.gate, other.gate), (one.decoded, other.decoded))
    pairs += [(a, b) for a, b in optional if a is not None and b is not None]
    return all(torch.equal(a, b) for a, b in pairs)
