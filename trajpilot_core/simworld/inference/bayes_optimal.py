"""What can be known of the windows of a simulated world: the optimal decision of every metric, and how sure it is.

Axes: W windows, H positions, V labels. Source: docs/decisions/ceiling.md.
"""

from collections.abc import Sequence
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
)
from trajpilot_core.simworld.inference.map_decoding import Sequences, best_sequences
from trajpilot_core.simworld.inference.visible import (
    KINDS,
    InputKind,
    TakeSteps,
    WindowGroup,
    seen_by,
    take_steps,
    window_groups,
)
from trajpilot_core.simworld.world.truth import World

TAKES_AT_ONCE = 32


class Decisions(NamedTuple):
    """The best answers to windows of one horizon."""

    ranking: Codes
    """(W, H, 5) labels of every step by their marginal probability, -1 where there are fewer."""
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
    """(W, 2) of mid and full: no sequence is more probable."""


class Answered(NamedTuple):
    """Decisions on some windows, and the truth."""

    kind: InputKind
    rows: Codes
    """(W,) places in the list of windows that was asked about."""
    truth: Codes
    """(W, H) labels."""
    decisions: Decisions


def decide(graph: Graph, evidence: StepEvidence, seen: VisibleSteps) -> Decisions:
    """Make the optimal decision of every metric for windows of one shape."""
    messages = messages_of(graph, evidence, seen)
    rankings, chances = [], []
    for step in seen.targets:
        probability = marginal(evidence, seen, messages, step)
        best = ranked(probability)
        rankings.append(best)
        chances.append(np.where(best < 0, 0.0, np.take_along_axis(probability, np.maximum(best, 0), axis=1)))
    ranking, chance = np.stack(rankings, axis=1), np.stack(chances, axis=1)
    columns = np.array(seen.targets)
    full = best_sequences(graph, evidence, seen, messages, columns)
    if len(columns) == 3:
        mid = Sequences(ranking[:, 1, :1], chance[:, 1, 0], np.ones_like(full.is_proven))
    else:
        mid = best_sequences(graph, evidence, seen, messages, columns[1:-1])
    proven = np.stack([mid.is_proven, full.is_proven], axis=1)
    return Decisions(ranking, chance, mid.labels, mid.probability, full.labels, full.probability, proven)


def answers(world: World, segments: pa.Table, windows: pa.Table, kinds: Sequence[InputKind] = KINDS) -> list[Answered]:
    """Decide on windows of any split, for every kind of input.

    Args:
        world: the world that the tables come from.
        segments: the segments table; takes of which no window is asked for cost nothing.
        windows: rows with take_id and segment_ids.
        kinds: what is seen (see `visible.seen_by`).

    Raises:
        InputError: the tables are not of this world.
    """
    listed = windows.select(["take_id", "segment_ids"]).to_pylist()
    graph = graph_of(world)
    wanted = pa.array(sorted({row["take_id"] for row in listed}), pa.string())
    takes = take_steps(world, segments.filter(pc.is_in(segments["take_id"], value_set=wanted)))
    found = []
    for first in range(0, len(takes), TAKES_AT_ONCE):
        part = takes[first : first + TAKES_AT_ONCE]
        inside = {take.take_id for take in part}
        rows = np.array([i for i, row in enumerate(listed) if row["take_id"] in inside])
        evidence = evidence_of(world, graph, [take.take for take in part])
        truth = np.concatenate([[take.take.segments[step].label for step in take.step] for take in part])
        for group in window_groups(part, [listed[i]["segment_ids"] for i in rows]):
            decided = decide_kinds(world, graph, evidence, part, group, kinds)
            found += [Answered(kind, rows[group.rows], truth[group.segments], best) for kind, best in decided.items()]
    return found


def decide_kinds(
    world: World,
    graph: Graph,
    evidence: StepEvidence,
    takes: Sequence[TakeSteps],
    group: WindowGroup,
    kinds: Sequence[InputKind],
) -> dict[InputKind, Decisions]:
    """Decide on windows of one shape for every kind of input; pixels of a moving head show no_traj its motion too."""
    still = world.config.enters_by_features()
    found: dict[InputKind, Decisions] = {}
    for kind in kinds:
        twin = "endpoint_traj" if kind == "no_traj" else "no_traj"
        if not still and kind != "oracle" and twin in found:
            found[kind] = found[twin]
        else:
            found[kind] = decide(graph, evidence, seen_by(takes, group, kind, still))
    return found
