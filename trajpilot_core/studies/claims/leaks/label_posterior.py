"""What the latents that a segment shows reveal of its label and its take's intent: exact inference, by segment.

Source: docs/decisions/claims-checks.md (probes); the inference is that of the ceilings (docs/decisions/ceiling.md).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.simworld.inference.evidence import VisibleSteps, evidence_of, graph_of, messages_of
from trajpilot_core.simworld.world.truth import TakeTruth, World

TAKES_AT_ONCE = 32


class Shown(NamedTuple):
    """First and last step of the take whose latents N segments show."""

    appearance: Codes | None
    """(N, 2) of appearance and object position; None: segments show none."""
    motion: Codes | None
    """(N, 2) of head motion; None: segments show none."""


def joint_beliefs(world: World, takes: Sequence[TakeTruth], take: Codes, at: Codes, shown: Shown) -> Array:
    """Return the exact joint posterior over the label and the intent of N segments; the operator is known.

    Args:
        world: its model and parameters.
        takes: truths; task, intent and labels are not looked at. Those of no segment cost nothing.
        take: (N,) index into `takes` of each segment.
        at: (N,) its true step.
        shown: what is seen.

    Returns:
        (N, V, G) for V labels and G intents; each segment sums to 1.
    """
    found = np.empty((len(take), len(world.labels), world.config.intents))
    graph, wanted = graph_of(world), np.unique(take)
    for first in range(0, len(wanted), TAKES_AT_ONCE):
        some = wanted[first : first + TAKES_AT_ONCE]
        part, rows = [takes[i] for i in some], np.flatnonzero(np.isin(take, some))
        own = np.searchsorted(some, take[rows])
        seen = _seen(part, own, at[rows], Shown(*(None if s is None else s[rows] for s in shown)))
        evidence = evidence_of(world, graph, part)
        messages, own_step = messages_of(graph, evidence, seen), seen.targets[0]
        around = messages.forward[own_step] * messages.backward[own_step]
        mass = around[:, :, :, None] * evidence.weight[seen.kind[:, own_step], seen.steps[:, own_step]]
        found[rows] = (mass / mass.sum(axis=(1, 2, 3, 4), keepdims=True)).reshape(len(rows), *found.shape[1:])
    return found


def _seen(takes: Sequence[TakeTruth], take: Codes, at: Codes, shown: Shown) -> VisibleSteps:
    """Lay out the steps around (N,) segments, as far as any of them shows."""
    spans = np.stack([np.stack([at, at], axis=1), *(span for span in shown if span is not None)])
    before, behind = int((at - spans[..., 0]).max()), int((spans[..., 1] - at).max())
    step = at[:, None] + np.arange(-before, behind + 1)
    n_steps = np.array([len(truth.segments) for truth in takes])
    base = np.cumsum(n_steps) - n_steps
    inside = (step >= 0) & (step < n_steps[take][:, None])
    row = np.where(inside, base[take][:, None] + step, -1)
    return VisibleSteps(row, _covered(step, shown.appearance), _covered(step, shown.motion), (before,))


def _covered(step: Codes, span: Codes | None) -> Mask:
    """Return (N, S): true where a step lies between the first and the last of its (N, 2) span."""
    if span is None:
        return np.zeros(step.shape, bool)
    return np.asarray((step >= span[:, :1]) & (step <= span[:, 1:]))
