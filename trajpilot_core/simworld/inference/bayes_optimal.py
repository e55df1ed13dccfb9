"""What can be known of the windows of a simulated world: the optimal decision of every metric, and how sure it is.

Answers are classes of labels, each label alone unless a map or the tables join some: the probability of a class is the
sum over its labels, and that of a sequence of classes the sum over all sequences of labels in it. Axes: W windows, H
positions, V labels. Source: docs/decisions/ceiling.md, docs/decisions/classes.md.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.simworld.inference.evidence import (
    Graph,
    StepEvidence,
    VisibleSteps,
    evidence_of,
    graph_of,
    marginal,
    messages_of,
    ranked,
    sums_by_class,
)
from trajpilot_core.simworld.inference.map_decoding import Sequences, best_sequences
from trajpilot_core.simworld.inference.visible import (
    KINDS,
    KINDS_WITHOUT_GOAL,
    SAME_IN_PIXELS,
    InputKind,
    seen_by,
    steps_of,
    take_steps,
    window_groups,
)
from trajpilot_core.simworld.world.truth import World

TAKES_AT_ONCE = 32


class Decisions(NamedTuple):
    """The best answers to windows of one horizon."""

    ranking: Codes
    """(W, H, 5) classes of every step by their marginal probability, -1 where there are fewer."""
    chance: Array
    """(W, H, 5) those probabilities."""
    mid: Codes
    """(W, H - 2) the most probable sequence of the steps between Start and Goal."""
    mid_chance: Array
    """(W,)."""
    full: Codes
    """(W, H) the most probable sequence of all steps."""
    full_chance: Array
    """(W,)."""
    is_proven: Mask
    """(W, 2) of mid and full, (W, 3) where there is `after`, too: no sequence is more probable."""
    after: Codes | None = None
    """(W, H - 1) the most probable sequence of the steps after Start; only without a goal."""
    after_chance: Array | None = None
    """(W,)."""


class Answered(NamedTuple):
    """Decisions on some windows, and the truth."""

    kind: InputKind
    rows: Codes
    """(W,) places in the list of windows that was asked about."""
    truth: Codes
    """(W, H) classes, as in the decisions."""
    decisions: Decisions


def class_codes(label_ids: Sequence[str], classes: Mapping[str, str]) -> Codes:
    """Return (V,) the class of every label (V,) of the tables, from 0 on in the order of first labels.

    Labels may share a name, and so a class; one that `classes` does not name is a class of its own.
    """
    number: dict[str, int] = {}
    return np.array([number.setdefault(classes.get(name, name), len(number)) for name in label_ids], np.int64)


def decide(
    graph: Graph, evidence: StepEvidence, seen: VisibleSteps, classes: Codes, *, has_goal: bool = True
) -> Decisions:
    """Make the optimal decision of every metric for windows of one shape and `classes` (V,) of `class_codes`.

    Where `has_goal`, the sequence of the steps after Start alone is not decided.
    """
    messages = messages_of(graph, evidence, seen)
    rankings, chances = [], []
    for step in seen.targets:
        probability = sums_by_class(marginal(evidence, seen, messages, step), classes)
        best = ranked(probability)
        rankings.append(best)
        chances.append(np.where(best < 0, 0.0, np.take_along_axis(probability, np.maximum(best, 0), axis=1)))
    ranking, chance = np.stack(rankings, axis=1), np.stack(chances, axis=1)
    columns = np.array(seen.targets)
    full = best_sequences(graph, evidence, seen, messages, columns, classes)
    if len(columns) == 3:
        mid = Sequences(ranking[:, 1, :1], chance[:, 1, 0], np.ones_like(full.is_proven))
    else:
        mid = best_sequences(graph, evidence, seen, messages, columns[1:-1], classes)
    after = None if has_goal else best_sequences(graph, evidence, seen, messages, columns[1:], classes)
    proven = np.stack([part.is_proven for part in (mid, full, after) if part is not None], axis=1)
    decisions = Decisions(ranking, chance, mid.classes, mid.probability, full.classes, full.probability, proven)
    return decisions if after is None else decisions._replace(after=after.classes, after_chance=after.probability)


def answers(
    world: World,
    segments: pa.Table,
    windows: pa.Table,
    kinds: Sequence[InputKind] = KINDS,
    classes: Mapping[str, str] | None = None,
) -> list[Answered]:
    """Decide on windows of any split, for every kind of input.

    Args:
        segments: the segments table; takes of which no window is asked for cost nothing.
        windows: rows with take_id and segment_ids.
        classes: label id -> class, where answers are classes; steps that the tables give one name share a class anyway.

    Raises InputError: the tables are not of this world.
    """
    codes = class_codes(steps_of(world).label_ids(world), classes or {})
    listed = windows.select(["take_id", "segment_ids"]).to_pylist()
    graph = graph_of(world)
    wanted = pa.array(sorted({row["take_id"] for row in listed}), pa.string())
    takes = take_steps(world, segments.filter(pc.is_in(segments["take_id"], value_set=wanted)))
    answered = []
    for first in range(0, len(takes), TAKES_AT_ONCE):
        part = takes[first : first + TAKES_AT_ONCE]
        inside = {take.take_id for take in part}
        rows = np.array([i for i, row in enumerate(listed) if row["take_id"] in inside])
        evidence = evidence_of(world, graph, [take.take for take in part])
        truth = codes[np.concatenate([[take.take.segments[step].label for step in take.step] for take in part])]
        for group in window_groups(part, [listed[i]["segment_ids"] for i in rows]):
            decided: dict[InputKind, Decisions] = {}
            for kind in kinds:
                same = SAME_IN_PIXELS.get(kind, kind)
                if same not in decided:
                    seen, has_goal = seen_by(part, group, same), same not in KINDS_WITHOUT_GOAL
                    decided[same] = decide(graph, evidence, seen, codes, has_goal=has_goal)
                answered.append(Answered(kind, rows[group.rows], truth[group.segments], decided[same]))
    return answered
