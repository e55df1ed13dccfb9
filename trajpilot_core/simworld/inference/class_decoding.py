"""The most probable class sequence of a window, exactly: a search over prefixes of classes with an admissible bound.

Labels of different nodes of the procedure may share a class, so a sequence of classes fixes neither the task nor the
positions: its probability is a sum over all sequences of labels in it, and over intents. A prefix is kept with its
forward message per task, position and intent; what any continuation can add is bounded, state by state, by the best
class for that state alone. Layers, widths and proof are those of `map_decoding`.

Axes: W windows, M steps that are decoded, T tasks, P positions, A alternatives, G intents, N prefixes, V labels,
C classes. Source: docs/decisions/classes.md.
"""

import math
from dataclasses import replace
from functools import partial

import numpy as np

from trajpilot_core.arrays import Array, Codes
from trajpilot_core.simworld.inference.evidence import (
    Graph,
    Messages,
    Move,
    StepEvidence,
    VisibleSteps,
    leave,
    sums_by_class,
)
from trajpilot_core.simworld.inference.map_decoding import (
    ROUNDING,
    ClassPrefixes,
    DecodingProblem,
    Sequences,
    problem_of,
    trace,
    widening,
    widest_rows,
    windows_of,
)

CELLS = 1 << 22
"""Numbers in the largest array of a search, about."""


def best_class_sequences(
    graph: Graph, evidence: StepEvidence, seen: VisibleSteps, messages: Messages, columns: Codes, classes: Codes
) -> Sequences:
    """Decode jointly the classes of the steps at `columns` (M,) of every window, rising.

    Args:
        columns: a column that occurs twice gets one class.
        classes: (V,) class of every label, from 0 on without a gap.
    """
    distinct, column = np.unique(columns, return_inverse=True)
    classes_TPA = classes.reshape(evidence.weight.shape[2:5])
    labels = problem_of(graph, evidence, seen, messages, distinct.tolist())
    problem = replace(labels, rest=largest_rests(labels, classes_TPA))
    best = widening(problem, partial(search_classes, classes_TPA=classes_TPA))
    return best._replace(labels=best.labels[:, column])


def weight_of(problem: DecodingProblem, windows: Codes, m: int) -> Array:
    """Return (N, T, P, A, G): the weights of decoded step `m` in `windows` (N,)."""
    return np.asarray(problem.evidence.weight[problem.kinds[windows, m], problem.steps[windows, m]])


def largest_rests(problem: DecodingProblem, classes_TPA: Codes) -> tuple[Array, ...]:
    """Return M arrays (W, T, P, G): the most that any continuation by classes can have after this step, per state."""
    every = np.arange(len(problem.total))
    rest = [problem.rest[-1]]
    for m in range(len(problem.rest) - 1, 0, -1):
        weight_WTPAG, moves = weight_of(problem, every, m) * rest[-1][:, :, :, None], problem.moves[m - 1]
        arrived = [move.weight[..., None, :] * np.roll(weight_WTPAG, -move.by, axis=2) for move in moves]
        # From a state, K moves and A alternatives lead to K x A labels, some of them of one class.
        by_label = np.concatenate([np.broadcast_to(part, weight_WTPAG.shape) for part in arrived], axis=3)
        of_label = np.concatenate([np.roll(classes_TPA, -move.by, axis=1) for move in moves], axis=2)
        is_same = (of_label[..., :, None] == of_label[..., None, :]).astype(np.float64)
        summed = np.einsum("wtpig,tpij->wtpjg", by_label, is_same, optimize=True)
        rest.append(np.asarray(summed.max(axis=3)))
    return tuple(reversed(rest))


def search_classes(
    problem: DecodingProblem, known: Array, width: int, *, classes_TPA: Codes
) -> tuple[Codes, Array, Array]:
    """Search with at most `width` prefixes per window and layer, some windows at a time; as `map_decoding.search`."""
    cells = width * math.prod(problem.evidence.weight.shape[2:])
    parts = np.array_split(np.arange(len(known)), max(1, math.ceil(len(known) * cells / CELLS)))
    results = [_search(windows_of(problem, rows), known[rows], width, classes_TPA) for rows in parts if len(rows)]
    labels, reached, left = (np.concatenate(column) for column in zip(*results, strict=True))
    return labels, reached, left


def _search(problem: DecodingProblem, known: Array, width: int, classes_TPA: Codes) -> tuple[Codes, Array, Array]:
    """Search in all windows at once."""
    left = np.zeros(len(known))
    window, arrived = np.arange(len(known)), problem.start
    layers: list[ClassPrefixes] = []
    for m in range(len(problem.rest)):
        if m:
            moves = [Move(by, w if len(w) == 1 else w[window]) for by, w in problem.moves[m - 1]]
            arrived = leave(layers[-1].message, moves)
        weight = weight_of(problem, window, m)
        score = np.einsum("ntpg,ntpag->ntpa", arrived * problem.rest[m][window], weight)
        bound = sums_by_class(score.reshape(len(window), classes_TPA.size), classes_TPA.ravel())
        row, chosen = np.nonzero(bound > known[window, None] * (1 + ROUNDING))
        kept = widest_rows(window[row], bound[row, chosen], width, left)
        row, chosen = row[kept], chosen[kept]
        is_chosen = (classes_TPA == chosen[:, None, None, None]).astype(np.float64)
        message = arrived[row] * np.einsum("ntpag,ntpa->ntpg", weight[row], is_chosen)
        window = window[row]
        layers.append(ClassPrefixes(window, chosen, message, bound[row, chosen], row))
    return *trace(layers, [layer.chosen for layer in layers], len(known)), left
