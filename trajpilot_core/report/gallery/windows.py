"""Which windows the gallery shows, by a fixed rule, and what is known about each.

Rule: windows fall into three classes by the plan of `methods.examined` of the first seed: `gate wrong` (it opened, and
fewer middle steps are right than in the fallback), `success` (all middle steps right), `failure` (the rest). Equal
shares of every class are drawn at random by the seed of the report, whatever they look like. A class with too few is
not filled up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import ReportConfig
from schemas.observation import DOF, MOTIONS
from trajpilot_core.methods import METHODS, examined, in_order
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.drawing.svg import shortened
from trajpilot_core.report.gallery.paths import Path, integrate
from trajpilot_core.report.tables.names import row_name

CLASSES = ("success", "failure", "gate wrong")
TITLES = {
    "success": "success: every middle step right",
    "failure": "failure: a middle step is wrong",
    "gate wrong": "gate wrong: it opened, and the fallback had more steps right",
}
NOT_RANKED = 5
MAX_LABEL = 160
"""Longer labels are cut in the gallery, characters."""


@dataclass(frozen=True)
class GalleryWindows:
    """The windows of the gallery."""

    classes: Mapping[str, tuple[str, ...]]
    """Class -> window ids, in the order of the draw."""
    sizes: Mapping[str, int]
    """Class -> windows that it holds."""

    def window_ids(self) -> list[str]:
        """All windows drawn."""
        return [window for windows in self.classes.values() for window in windows]


@dataclass(frozen=True)
class GalleryStep:
    """One answer of one row at one position: `sign` and `state` say the same as the colour."""

    text: str
    state: str
    """`hit`, `top5` or `miss`."""
    sign: str


@dataclass(frozen=True)
class Plan:
    """One row's answers on one window."""

    name: str
    steps: tuple[GalleryStep, ...]


@dataclass(frozen=True)
class Example:
    """One window of the gallery, without pictures."""

    window_id: str
    take_id: str
    take_name: str
    title: str
    horizon: int
    start_s: float
    goal_s: float
    span_s: tuple[float, float]
    truth: tuple[str, ...]
    plans: tuple[Plan, ...]
    gate: str
    paths: tuple[Path, ...]
    unit: str


def draw(outcomes: pa.Table, cfg: ReportConfig) -> GalleryWindows:
    """Draw the windows of the gallery.

    Args:
        outcomes: columns window_id, horizon, variant, mid_right, opened.
        cfg: number of examples and seed.
    """
    gated, plain = (
        outcomes.filter(pc.equal(outcomes["variant"], id_)).sort_by("window_id") for id_ in (examined().id, REFERENCE)
    )
    if gated.num_rows == 0 or not gated["window_id"].equals(plain["window_id"]):
        return GalleryWindows({name: () for name in CLASSES}, dict.fromkeys(CLASSES, 0))
    right, fallback = (t["mid_right"].to_numpy() for t in (gated, plain))
    opened = pc.fill_null(gated["opened"], False).to_numpy()
    wrong = opened & (right < fallback)
    success = ~wrong & (right == gated["horizon"].to_numpy() - 2)
    ids = np.array(gated["window_id"].to_pylist(), dtype=object)
    held = {"success": ids[success], "failure": ids[~wrong & ~success], "gate wrong": ids[wrong]}
    shares = [cfg.examples // 3 + (i < cfg.examples % 3) for i in range(3)]
    chosen = {
        name: tuple(held[name][np.random.default_rng([cfg.seed, i]).permutation(len(held[name]))[: shares[i]]].tolist())
        for i, name in enumerate(CLASSES)
    }
    return GalleryWindows(chosen, {name: len(held[name]) for name in CLASSES})


def keep(table: pa.Table, column: str, values: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a table whose `column` is one of `values`."""
    wanted = pa.array(sorted(set(values)), pa.string())
    return list(table.filter(pc.is_in(table[column], value_set=wanted)).to_pylist())


@dataclass(frozen=True)
class Facts:
    """The rows that the drawn windows need, by id."""

    outcomes: Mapping[tuple[str, str], dict[str, Any]]
    """(window, variant) -> row."""
    takes: Mapping[str, dict[str, Any]]
    segments: Mapping[str, dict[str, Any]]
    windows: Mapping[str, dict[str, Any]]
    motions: Mapping[str, dict[str, Any]]
    labels: Mapping[str, str]


def examples(drawn: GalleryWindows, facts: Facts) -> list[Example]:
    """Describe every drawn window, class by class."""
    return [_example(window, name, facts) for name in CLASSES for window in drawn.classes[name]]


def _example(window_id: str, name: str, facts: Facts) -> Example:
    """Describe one window."""
    window = facts.windows[window_id]
    segments = [facts.segments[s] for s in window["segment_ids"]]
    rows = {v: row for (w, v), row in facts.outcomes.items() if w == window_id}
    gated = rows[examined().id]
    first, last = segments[0], segments[-1]
    take = facts.takes[window["take_id"]]
    paths, unit = _paths(window, rows, facts)
    return Example(
        window_id,
        window["take_id"],
        take["name"],
        TITLES[name],
        window["horizon"],
        (first["start_s"] + first["end_s"]) / 2,
        (last["start_s"] + last["end_s"]) / 2,
        (first["start_s"], last["end_s"]),
        tuple(_label(i, facts) for i in gated["label_ids"]),
        tuple(_plan(variant, rows[variant], facts) for variant in in_order(rows)),
        _gate(gated),
        paths,
        unit,
    )


def _label(label_id: str, facts: Facts) -> str:
    """Return the text of a label, cut if very long."""
    return shortened(facts.labels.get(label_id, label_id), MAX_LABEL)


def _plan(variant: str, row: Mapping[str, Any], facts: Facts) -> Plan:
    """Compare one row's sequence with the truth, position by position."""
    steps = []
    for guess, truth, rank in zip(row["decoded_ids"], row["label_ids"], row["ranks"], strict=True):
        state, sign = ("hit", "✓") if guess == truth else ("top5", "5") if rank < NOT_RANKED else ("miss", "✗")
        steps.append(GalleryStep(_label(guess, facts), state, sign))
    return Plan(row_name(variant), tuple(steps))


def _gate(row: Mapping[str, Any]) -> str:
    """State what the gate did."""
    if row["gate"] is None:
        return "this row has no gate"
    declared = examined().gate
    assert declared is not None
    did = f"open: {declared.open_means}" if row["opened"] else f"closed: the {row_name(REFERENCE)} answer stands"
    return f"gate {row['gate']:.2f}, {did}"


def _paths(
    window: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], facts: Facts
) -> tuple[tuple[Path, ...], str]:
    """Integrate the middle motions of the window, and of those that rows followed: without a gate, then behind one."""
    wanted = [("true", "true", window["window_id"])]
    for one in sorted((one for one in METHODS if one.follows), key=lambda one: one.gate is not None):
        if one.id in rows and rows[one.id]["candidate"]:
            kind = "nearest" if one.gate is None else "chosen"
            wanted.append((kind, str(one.follows), rows[one.id]["candidate"]))
    paths, scales = [], set()
    for kind, name, window_id in wanted:
        held = [facts.motions.get(s) for s in facts.windows.get(window_id, {"segment_ids": ()})["segment_ids"][1:-1]]
        found = [row for row in held if row is not None]
        if not found or len(found) < len(held):
            continue
        motions = np.array([row["motions"] for row in found], dtype=np.float64).reshape(-1, MOTIONS, DOF)
        paths.append(Path(kind, name, integrate(motions)))
        scales.add(found[0]["scale"])
    return tuple(paths), "m" if scales == {"metric"} else "(arbitrary scale)"
