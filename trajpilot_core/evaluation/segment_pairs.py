"""Pairs of segments of four kinds, one of each kind for each drawn segment: linear in the segments.

Source: paper, appendix on diagnostics; docs/decisions/diagnostics.md. Axes: S segments, R of one split, A anchors.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from schemas.diagnostics import DiagnosticsConfig
from trajpilot_core.arrays import Codes, Mask

ADJACENT, FAR = "adjacent_same_recording", "far_same_recording"
SAME_ACTION, RANDOM = "same_action_other_recording", "random_other_recording"
KINDS = (ADJACENT, FAR, SAME_ACTION, RANDOM)
"""In the order of the paper's table. Another recording is another capture: two takes of one share the room."""
TRIES = 32
"""Draws of a partner before a segment is left without one."""


@dataclass(frozen=True)
class SegmentPlaces:
    """Where S segments lie, each (S,): take, capture, run within the take, position in the take, label."""

    take: Codes
    capture: Codes
    run: Codes
    """A lost segment starts a new one."""
    position: Codes
    label: Codes


@dataclass(frozen=True)
class Choice:
    """For each anchor the places of `order` from `begin` to `end` without those from `hole` to `hole_end`."""

    order: Codes
    """(R,) rows of segments."""
    begin: Codes
    end: Codes
    hole: Codes
    hole_end: Codes

    def drawn(self, fits: Callable[[Codes, Codes], Mask], anchors: Codes, generator: np.random.Generator) -> Codes:
        """Return (A,) one row each, drawn among those that fit; -1 where none was found."""
        n_hole = self.hole_end - self.hole
        n_left = self.end - self.begin - n_hole
        partner, left = np.full(len(anchors), -1, np.int64), np.flatnonzero(n_left > 0)
        for _ in range(TRIES):
            place = self.begin[left] + (generator.random(len(left)) * n_left[left]).astype(np.int64)
            place += np.where(place >= self.hole[left], n_hole[left], 0)
            good = fits(anchors[left], self.order[place])
            partner[left[good]] = self.order[place[good]]
            left = left[~good]
        return partner


def drawn_pairs(
    at: SegmentPlaces, rows: Codes, cfg: DiagnosticsConfig, generator: np.random.Generator
) -> dict[str, tuple[Codes, Codes]]:
    """Return kind -> (P,) rows of the first and (P,) rows of the second segments of pairs.

    adjacent: the next segment of the run. far: a later one of the take, `far_steps` places on or more, of another
    label. same action: another capture, the same label. random: another capture, another label.

    Args:
        at: all segments.
        rows: (R,) of one split; no pair leaves it.
        cfg: at most `pairs` segments are drawn.
        generator: draws them and their partners.
    """
    anchors = np.sort(generator.permutation(rows)[: cfg.pairs])
    whole = Choice(rows, *_everywhere(anchors, len(rows)))
    partners = {
        ADJACENT: _next(at, rows, anchors),
        FAR: _later(at, rows, anchors, cfg.far_steps).drawn(
            lambda one, two: at.label[one] != at.label[two], anchors, generator
        ),
        SAME_ACTION: _same_label(at, rows, anchors).drawn(lambda one, two: one != two, anchors, generator),
        RANDOM: whole.drawn(
            lambda one, two: (at.capture[one] != at.capture[two]) & (at.label[one] != at.label[two]), anchors, generator
        ),
    }
    return {kind: (anchors[partner >= 0], partner[partner >= 0]) for kind, partner in partners.items()}


def _everywhere(anchors: Codes, n: int) -> tuple[Codes, Codes, Codes, Codes]:
    nowhere = np.zeros(len(anchors), np.int64)
    return nowhere, np.full(len(anchors), n, np.int64), nowhere, nowhere


def _next(at: SegmentPlaces, rows: Codes, anchors: Codes) -> Codes:
    """Return the next segment of the run, -1 where there is none."""
    keys, order = _sorted(at.take, at.position, rows)
    wanted = _key(at.take[anchors], at.position[anchors] + 1)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found = (keys[place] == wanted) & (at.run[order[place]] == at.run[anchors])
    return np.where(found, order[place], -1)


def _later(at: SegmentPlaces, rows: Codes, anchors: Codes, steps: int) -> Choice:
    """Choose among the segments of the take that begin `steps` places later or more."""
    keys, order = _sorted(at.take, at.position, rows)
    begin = np.searchsorted(keys, _key(at.take[anchors], at.position[anchors] + steps))
    end = np.searchsorted(at.take[order], at.take[anchors], side="right")
    begin = np.minimum(begin, end)
    return Choice(order, begin, end, end, end)


def _same_label(at: SegmentPlaces, rows: Codes, anchors: Codes) -> Choice:
    """Choose among the segments of the label that are of another capture."""
    keys, order = _sorted(at.label, at.capture, rows)
    own = _key(at.label[anchors], at.capture[anchors])
    begin, end = (np.searchsorted(at.label[order], at.label[anchors], side=side) for side in ("left", "right"))
    hole, hole_end = (np.searchsorted(keys, own, side=side) for side in ("left", "right"))
    return Choice(order, begin, end, hole, hole_end)


def _sorted(first: Codes, second: Codes, rows: Codes) -> tuple[Codes, Codes]:
    """Return (R,) keys of rows in rising order, and the (R,) rows in that order."""
    keys = _key(first[rows], second[rows])
    order = np.argsort(keys, kind="stable")
    return keys[order], rows[order]


def _key(first: Codes, second: Codes) -> Codes:
    """Join two numbers below 2^31 to one that sorts by the first, then by the second."""
    return (first << 32) + second
