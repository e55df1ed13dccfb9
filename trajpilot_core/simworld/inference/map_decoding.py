"""The most probable class sequence of a window, exactly: a search over prefixes of classes with an admissible bound.

A label is a class of its own, or shares one with labels of other nodes of the procedure, so a sequence of classes fixes
neither the task nor the positions: its probability is a sum over all sequences of labels in it, and over intents, and
no Viterbi finds the best one. A prefix is kept with its forward message per task, position and intent; what any
continuation can add is bounded, state by state, by the best class for that state alone. Layer by layer the prefixes
with the best bounds are kept; whatever was left out with a bound above the sequence found is searched again, wider.

Axes: W windows, M steps that are decoded, T tasks, P positions, A alternatives, G intents, N prefixes, V labels.
Source: docs/decisions/ceiling.md, docs/decisions/classes.md.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.simworld.inference.evidence import (
    Graph,
    Messages,
    Move,
    StepEvidence,
    VisibleSteps,
    arrive,
    leave,
    moves_between,
    sums_by_class,
)

WIDTHS = (4, 32, 256, 4096)
"""Prefixes kept per window and layer, in the first search and in those of the windows that it did not settle."""
ROUNDING = 1e-9
"""Relative difference below which two sequences count as equally probable."""
DIGITS = 12
"""Of a bound, relative to the next power of two."""
CELLS = 1 << 22
"""Numbers in the largest array of a search, about."""


class Sequences(NamedTuple):
    """The best sequence of every window."""

    classes: Codes
    """(W, M)."""
    probability: Array
    """(W,) its posterior probability."""
    is_proven: Mask
    """(W,): no other sequence is more probable; false where the widest search left a better bound open."""


@dataclass(frozen=True)
class DecodingProblem:
    """The decoding of W windows: the sequence of columns `targets` of their chains, all other steps summed out."""

    evidence: StepEvidence
    kinds: Codes
    """(W, M) first axis of the evidence."""
    steps: Codes
    """(W, M) second axis."""
    classes: Codes
    """(T, P, A) class of every label."""
    start: Array
    """(W, T, P, G) forward message to the first decoded step."""
    moves: tuple[tuple[Move, ...], ...]
    """M - 1: between neighbouring decoded steps."""
    rest: tuple[Array, ...]
    """M arrays (W, T, P, G): the most that any continuation after this step can have, per state."""
    total: Array
    """(W,) weight of all sequences."""

    def weight(self, windows: Codes, m: int) -> Array:
        """Return (N, T, P, A, G): the weights of decoded step `m` in `windows` (N,)."""
        return np.asarray(self.evidence.weight[self.kinds[windows, m], self.steps[windows, m]])

    def of_windows(self, rows: Codes) -> "DecodingProblem":
        """Return the problem of some of its windows, `rows` (N,)."""

        def cut(array: Array) -> Array:
            """Return the wanted rows of an array of shape (W, ...), or an array that all windows share."""
            return array[rows] if len(array) == len(self.total) else array

        return replace(
            self,
            kinds=self.kinds[rows],
            steps=self.steps[rows],
            start=self.start[rows],
            moves=tuple(tuple(Move(move.by, cut(move.weight)) for move in step) for step in self.moves),
            rest=tuple(rest[rows] for rest in self.rest),
            total=self.total[rows],
        )


class Prefixes(NamedTuple):
    """N prefixes of some layer; windows are numbered as in the problem."""

    window: Codes
    chosen: Codes
    """(N,) class of the layer's step."""
    message: Array
    """(N, T, P, G) weight of the prefix that ends in each state."""
    bound: Array
    """(N,)."""
    parent: Codes
    """Row of the layer before."""


def best_sequences(
    graph: Graph, evidence: StepEvidence, seen: VisibleSteps, messages: Messages, columns: Codes, classes: Codes
) -> Sequences:
    """Decode jointly the classes of the steps at `columns` (M,) of every window, rising; one that occurs twice gets one
    class. `classes` (V,) of the labels count from 0 on without a gap.

    Searches with the first of `WIDTHS`, and what that did not settle with the next one.
    """
    distinct, column = np.unique(columns, return_inverse=True)
    problem = problem_of(graph, evidence, seen, messages, distinct.tolist(), classes)
    n = len(problem.total)
    answers, value, proven = np.zeros((n, len(distinct)), np.int64), np.zeros(n), np.zeros(n, bool)
    open_ = np.arange(n)
    for width in WIDTHS:
        best, reached, left = search(problem.of_windows(open_), value[open_], width)
        better = reached > value[open_]
        answers[open_[better]], value[open_[better]] = best[better], reached[better]
        proven[open_] = left <= value[open_] * (1 + ROUNDING)
        open_ = np.flatnonzero(~proven)
        if not len(open_):
            break
    return Sequences(answers[:, column], value / problem.total, proven)


def problem_of(
    graph: Graph, evidence: StepEvidence, seen: VisibleSteps, messages: Messages, columns: list[int], classes: Codes
) -> DecodingProblem:
    """Collect what the search needs, bounds included, for the distinct `columns` and the `classes` (V,) of labels."""
    kinds, steps = seen.kind[:, columns], seen.steps[:, columns]
    moves = tuple(moves_between(graph, evidence, seen, first, last) for first, last in pairwise(columns))
    classes_TPA = classes.reshape(evidence.weight.shape[2:5])
    after = messages.backward[columns[-1]]
    rest = [after]
    for m in range(len(columns) - 1, 0, -1):
        at = kinds[:, m], steps[:, m]
        rest.append(largest_before(evidence.weight[at] * rest[-1][:, :, :, None], moves[m - 1], classes_TPA))
        after = arrive(after * evidence.total[at], moves[m - 1])
    start = messages.forward[columns[0]]
    total = (start * evidence.total[kinds[:, 0], steps[:, 0]] * after).sum(axis=(1, 2, 3))
    return DecodingProblem(evidence, kinds, steps, classes_TPA, start, moves, tuple(reversed(rest)), total)


def largest_before(weight_WTPAG: Array, moves: Sequence[Move], classes_TPA: Codes) -> Array:
    """Return (W, T, P, G): the most that one class of a step can have, seen from every state of the step before; the
    weight of a label includes the most that any continuation after it can have."""
    arrived = [move.weight[..., None, :] * np.roll(weight_WTPAG, -move.by, axis=2) for move in moves]
    # From a state, K moves and A alternatives lead to K x A labels, some of them of one class.
    by_label = np.concatenate([np.broadcast_to(part, weight_WTPAG.shape) for part in arrived], axis=3)
    of_label = np.concatenate([np.roll(classes_TPA, -move.by, axis=1) for move in moves], axis=2)
    is_same = (of_label[..., :, None] == of_label[..., None, :]).astype(np.float64)
    return np.asarray(np.einsum("wtpig,tpij->wtpjg", by_label, is_same, optimize=True).max(axis=3))


def search(problem: DecodingProblem, known: Array, width: int) -> tuple[Codes, Array, Array]:
    """Search with at most `width` prefixes per window and layer, some windows at a time.

    Args:
        known: (W,) weight of a sequence that is known already, 0 for none; prefixes bounded by it are dropped.

    Returns:
        (W, M) best classes, (W,) their weight (0 where nothing better than `known` was found), and (W,) the highest
        bound among the prefixes that had to be left out.
    """
    cells = width * math.prod(problem.evidence.weight.shape[2:])
    parts = np.array_split(np.arange(len(known)), max(1, math.ceil(len(known) * cells / CELLS)))
    results = [_search(problem.of_windows(rows), known[rows], width) for rows in parts if len(rows)]
    classes, reached, left = (np.concatenate(column) for column in zip(*results, strict=True))
    return classes, reached, left


def _search(problem: DecodingProblem, known: Array, width: int) -> tuple[Codes, Array, Array]:
    left, classes_TPA = np.zeros(len(known)), problem.classes
    window, arrived = np.arange(len(known)), problem.start
    layers: list[Prefixes] = []
    for m in range(len(problem.rest)):
        if m:
            moves = [Move(by, w if len(w) == 1 else w[window]) for by, w in problem.moves[m - 1]]
            arrived = leave(layers[-1].message, moves)
        weight = problem.weight(window, m)
        score = np.einsum("ntpg,ntpag->ntpa", arrived * problem.rest[m][window], weight)
        exact = sums_by_class(score.reshape(len(window), classes_TPA.size), classes_TPA.ravel())
        mantissa, exponent = np.frexp(exact)  # rounded, so that no rounding error decides between ties
        bound = np.ldexp(mantissa.round(DIGITS), exponent)
        row, chosen = np.nonzero(bound > known[window, None] * (1 + ROUNDING))
        kept = _widest_rows(window[row], bound[row, chosen], width, left)
        row, chosen = row[kept], chosen[kept]
        is_chosen = (classes_TPA == chosen[:, None, None, None]).astype(np.float64)
        message = arrived[row] * np.einsum("ntpag,ntpa->ntpg", weight[row], is_chosen)
        window = window[row]
        layers.append(Prefixes(window, chosen, message, bound[row, chosen], row))
    return *trace(layers, len(known)), left


def _widest_rows(windows: Codes, bound: Array, width: int, left: Array) -> Codes:
    """Return, rising, the rows (N,) with the `width` highest bounds of every window, ties to the earlier row; `left`
    (W,) learns the highest bound left out."""
    order = np.lexsort((-bound, windows))
    window = windows[order]
    is_kept = np.arange(len(window)) - np.searchsorted(window, window) < width
    out = order[~is_kept]
    np.maximum.at(left, windows[out], bound[out])
    return np.sort(order[is_kept])


def trace(layers: Sequence[Prefixes], n: int) -> tuple[Codes, Array]:
    """Return the (W, M) classes of the prefix with the highest bound in each of W = `n` windows, and (W,) its bound.

    Ties go to the smaller classes, the first step first. Both are 0 where nothing was found.
    """
    last = layers[-1]
    reached, best = np.zeros(n), np.zeros(n, np.int64)
    order = np.argsort(-last.bound, kind="stable")[::-1]
    reached[last.window[order]], best[last.window[order]] = last.bound[order], order
    is_found = reached > 0
    answers, row = np.zeros((n, len(layers)), np.int64), best[is_found]
    for m in range(len(layers) - 1, -1, -1):
        answers[is_found, m] = layers[m].chosen[row]
        row = layers[m].parent[row]
    return answers, reached
