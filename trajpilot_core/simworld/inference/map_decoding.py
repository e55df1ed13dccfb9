"""The most probable label sequence of a window, exactly: a search over prefixes with an admissible bound.

A sequence of labels fixes the task and the positions, but not the intent: its probability is a sum over intents, so
no Viterbi finds the best one. A prefix is kept with its forward message per intent; what any continuation can add
is bounded, intent by intent, by the best continuation for that intent alone. Layer by layer the prefixes with the
best bounds are kept; whatever was left out with a bound above the sequence found is searched again, wider.

Axes: W windows, M steps that are decoded, T tasks, P positions, A alternatives, G intents, N prefixes.
Source: docs/decisions/ceiling.md.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
    moves_between,
)

WIDTHS = (4, 32, 256, 4096)
"""Prefixes kept per window and layer, in the first search and in those of the windows that it did not settle."""
ROUNDING = 1e-9
"""Relative difference below which two sequences count as equally probable."""


class Sequences(NamedTuple):
    """The best sequence of every window."""

    labels: Codes
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
    start: Array
    """(W, T, P, G) forward message to the first decoded step."""
    moves: tuple[tuple[Move, ...], ...]
    """M - 1: between neighbouring decoded steps."""
    rest: tuple[Array, ...]
    """M arrays (W, T, P, G): the most that any continuation after this step can have, per intent."""
    total: Array
    """(W,) weight of all sequences."""


SearchAtWidth = Callable[[DecodingProblem, Array, int], tuple[Codes, Array, Array]]
"""Problem, known (W,), width -> what `search` returns."""


class Prefixes(NamedTuple):
    """N prefixes of some layer; windows are numbered as in the problem."""

    window: Codes
    task: Codes
    position: Codes
    message: Array
    """(N, G) weight of the prefix under each intent."""
    bound: Array
    """(N,)."""
    parent: Codes
    """Row of the layer before."""
    alternative: Codes


class ClassPrefixes(NamedTuple):
    """N prefixes of some layer, where labels have classes; windows are numbered as in the problem."""

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
    graph: Graph, evidence: StepEvidence, seen: VisibleSteps, messages: Messages, columns: Codes
) -> Sequences:
    """Decode jointly the steps at `columns` (M,) of every window, rising; a column that occurs twice gets one label."""
    distinct, column = np.unique(columns, return_inverse=True)
    best = widening(problem_of(graph, evidence, seen, messages, distinct.tolist()), search)
    return best._replace(labels=best.labels[:, column])


def widening(problem: DecodingProblem, find: SearchAtWidth) -> Sequences:
    """Search with the first of `WIDTHS`, and what that did not settle with the next one."""
    n = len(problem.total)
    labels = np.zeros((n, len(problem.rest)), np.int64)
    value, proven = np.zeros(n), np.zeros(n, bool)
    open_ = np.arange(n)
    for width in WIDTHS:
        part = problem if len(open_) == n else windows_of(problem, open_)
        best, reached, left = find(part, value[open_], width)
        better = reached > value[open_]
        labels[open_[better]], value[open_[better]] = best[better], reached[better]
        proven[open_] = left <= value[open_] * (1 + ROUNDING)
        open_ = np.flatnonzero(~proven)
        if not len(open_):
            break
    return Sequences(labels, value / problem.total, proven)


def problem_of(
    graph: Graph, evidence: StepEvidence, seen: VisibleSteps, messages: Messages, columns: list[int]
) -> DecodingProblem:
    """Collect what the search needs, bounds included, for the distinct `columns`."""
    kinds, steps = seen.kind[:, columns], seen.steps[:, columns]
    moves = tuple(moves_between(graph, evidence, seen, first, last) for first, last in itertools.pairwise(columns))
    end = messages.backward[columns[-1]]
    rest, after = [end], end
    for m in range(len(columns) - 1, 0, -1):
        at = kinds[:, m], steps[:, m]
        most = rest[-1] * evidence.largest[at]  # as `arrive`, with the largest in place of the sum
        rest.append(np.max([move.weight * np.roll(most, -move.by, axis=2) for move in moves[m - 1]], axis=0))
        after = arrive(after * evidence.total[at], moves[m - 1])
    start = messages.forward[columns[0]]
    total = (start * evidence.total[kinds[:, 0], steps[:, 0]] * after).sum(axis=(1, 2, 3))
    return DecodingProblem(evidence, kinds, steps, start, moves, tuple(reversed(rest)), total)


def windows_of(problem: DecodingProblem, rows: Codes) -> DecodingProblem:
    """Return the problem of some of its windows."""

    def cut(array: Array) -> Array:
        """Return the wanted rows of an array of shape (W, ...), or an array that all windows share."""
        return array[rows] if len(array) == len(problem.total) else array

    moves = tuple(tuple(Move(move.by, cut(move.weight)) for move in step) for step in problem.moves)
    return DecodingProblem(
        problem.evidence,
        problem.kinds[rows],
        problem.steps[rows],
        problem.start[rows],
        moves,
        tuple(rest[rows] for rest in problem.rest),
        problem.total[rows],
    )


def search(problem: DecodingProblem, known: Array, width: int) -> tuple[Codes, Array, Array]:
    """Search with at most `width` prefixes per window and layer.

    Args:
        known: (W,) weight of a sequence that is known already, 0 for none; prefixes bounded by it are dropped.

    Returns:
        (W, M) best labels, (W,) their weight (0 where nothing better than `known` was found), and (W,) the highest
        bound among the prefixes that had to be left out.
    """
    left = np.zeros(len(known))
    most = problem.evidence.largest[problem.kinds[:, 0], problem.steps[:, 0]] * problem.rest[0]
    bound = (problem.start * most).sum(axis=-1)
    places = window, task, position = np.nonzero(bound > known[:, None, None] * (1 + ROUNDING))
    none = np.zeros(len(window), np.int64)
    first = Prefixes(window, task, position, problem.start[places], bound[places], none, none)
    layers = [choose(problem, widest(first, width, left), 0, known, width, left)]
    for m in range(1, len(problem.rest)):
        moved = advance(problem, layers[-1], m, known, width, left)
        layers.append(choose(problem, moved, m, known, width, left))
    _, _, n_positions, n_alternatives, _ = problem.evidence.weight.shape[1:]
    chosen = [(layer.task * n_positions + layer.position) * n_alternatives + layer.alternative for layer in layers]
    return *trace(layers, chosen, len(known)), left


def advance(problem: DecodingProblem, before: Prefixes, m: int, known: Array, width: int, left: Array) -> Prefixes:
    """Return the positions to which prefixes can move for decoded step `m`, its label still open.

    `known` and `left` have shape (W,).
    """
    most = problem.evidence.largest[problem.kinds[:, m], problem.steps[:, m]] * problem.rest[m]
    n_positions, parts = most.shape[2], []
    for move in problem.moves[m - 1]:
        at = tuple(
            np.minimum(index, size - 1)
            for index, size in zip((before.window, before.task, before.position), move.weight.shape[:3], strict=True)
        )
        message = before.message * move.weight[at]
        position = (before.position + move.by) % n_positions
        bound = (message * most[before.window, before.task, position]).sum(axis=-1)
        kept = np.flatnonzero(bound > known[before.window] * (1 + ROUNDING))
        parts.append(
            Prefixes(before.window[kept], before.task[kept], position[kept], message[kept], bound[kept], kept, kept * 0)
        )
    joined = (np.concatenate([part[i] for part in parts]) for i in range(len(Prefixes._fields)))
    return widest(Prefixes._make(joined), width, left)


def choose(problem: DecodingProblem, moved: Prefixes, m: int, known: Array, width: int, left: Array) -> Prefixes:
    """Return the prefixes with every alternative of decoded step `m`; `known` and `left` have shape (W,)."""
    window, task, position = moved.window, moved.task, moved.position
    weight = problem.evidence.weight[problem.kinds[window, m], problem.steps[window, m], task, position]
    message = moved.message[:, None] * weight
    bound = (message * problem.rest[m][window, task, position][:, None]).sum(axis=-1)
    row, alternative = np.nonzero(bound > known[window][:, None] * (1 + ROUNDING))
    chosen = Prefixes(
        window[row],
        task[row],
        position[row],
        message[row, alternative],
        bound[row, alternative],
        moved.parent[row],
        alternative,
    )
    return widest(chosen, width, left)


def widest(prefixes: Prefixes, width: int, left: Array) -> Prefixes:
    """Keep the `width` highest bounds of every window; `left`, shape (W,), learns the highest one left out."""
    kept = widest_rows(prefixes.window, prefixes.bound, width, left)
    return prefixes if len(kept) == len(prefixes.window) else Prefixes._make(column[kept] for column in prefixes)


def widest_rows(windows: Codes, bound: Array, width: int, left: Array) -> Codes:
    """Return, rising, the rows with the `width` highest bounds of every window.

    Args:
        windows: (N,) window of every row.
        left: (W,), learns the highest bound left out.
    """
    order = np.lexsort((-bound, windows))
    window = windows[order]
    is_kept = np.arange(len(window)) - np.searchsorted(window, window) < width
    out = order[~is_kept]
    np.maximum.at(left, windows[out], bound[out])
    return np.sort(order[is_kept])


def trace(layers: Sequence[Prefixes | ClassPrefixes], chosen: Sequence[Codes], n: int) -> tuple[Codes, Array]:
    """Return the (W, M) answers of the prefix with the highest bound in each of W = `n` windows, and (W,) its bound.

    Both are 0 where nothing was found.

    Args:
        layers: M layers of prefixes.
        chosen: the answer of every prefix of every layer.
    """
    last = layers[-1]
    reached, best = np.zeros(n), np.zeros(n, np.int64)
    order = np.argsort(last.bound, kind="stable")
    reached[last.window[order]], best[last.window[order]] = last.bound[order], order
    is_found = reached > 0
    answers, row = np.zeros((n, len(layers)), np.int64), best[is_found]
    for m in range(len(layers) - 1, -1, -1):
        answers[is_found, m] = chosen[m][row]
        row = layers[m].parent[row]
    return answers, reached
