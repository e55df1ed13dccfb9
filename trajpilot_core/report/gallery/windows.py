"""Each window of the gallery: its rows of the store, steps, answers, the retrieved window, head paths."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.annotation import DOF, MOTIONS
from schemas.config import ReportConfig
from trajpilot_core.methods import METHODS, examined, in_order, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.drawing.charts import shortened
from trajpilot_core.report.gallery.pictures import Path, integrate
from trajpilot_core.report.tables.table import row_name
from trajpilot_core.store.reading import Inputs

HELPED, HURT, ALL_WRONG = "trajectory helped", "trajectory hurt", "all wrong"
CLASSES = (HELPED, HURT, ALL_WRONG)


@dataclass(frozen=True)
class GalleryWindows:
    """The windows of the gallery."""

    classes: Mapping[str, tuple[str, ...]]
    """Class -> window ids, in the sampled order."""
    sizes: Mapping[str, int]
    """Class -> number of its windows."""
    row: str = ""
    """The row that is compared with No-Traj; empty where nothing was sampled."""
    n_windows: int = 0
    """Number of all windows, those of no class included."""

    def window_ids(self) -> list[str]:
        """Return all sampled windows."""
        return [window for windows in self.classes.values() for window in windows]

    def share(self, name: str) -> float:
        """Return the share of a class among all windows, percent."""
        return 100.0 * self.sizes[name] / max(1, self.n_windows)

    @property
    def n_rest(self) -> int:
        """Number of windows of no class."""
        return self.n_windows - sum(self.sizes.values())


def draw(outcomes: pa.Table, cfg: ReportConfig) -> GalleryWindows:
    """Sample the windows of the gallery; `outcomes`: columns window_id, variant, mid_right."""
    shown = [row for row in METHODS if row.in_gallery]
    of_row = {row.id: outcomes.filter(pc.equal(outcomes["variant"], row.id)).sort_by("window_id") for row in shown}
    windows = of_row[REFERENCE]["window_id"]
    ids = np.array(windows.to_pylist(), dtype=object)
    right = {row: t["mid_right"].to_numpy() for row, t in of_row.items() if len(t) and t["window_id"].equals(windows)}
    moving = [row.id for row in shown if row.sees == "all_motion"]
    candidates = [row for row in dict.fromkeys((examined().id, *moving)) if row in right] if REFERENCE in right else []
    differing = (row for row in candidates if (right[row] != right[REFERENCE]).any())
    row = next(differing, candidates[0] if candidates else None)
    if row is None:
        return GalleryWindows({name: () for name in CLASSES}, dict.fromkeys(CLASSES, 0))
    gained = right[row] - right[REFERENCE]
    free = [members for row, members in right.items() if not method(row).uses_the_truth]
    inside = {HELPED: gained > 0, HURT: gained < 0, ALL_WRONG: (gained == 0) & (np.stack(free).max(axis=0) == 0)}
    members = {name: ids[inside[name]] for name in CLASSES}
    shares = [cfg.examples // 3 + (i < cfg.examples % 3) for i in range(3)]
    chosen = {
        name: tuple(
            members[name][np.random.default_rng([cfg.seed, i]).permutation(len(members[name]))[: shares[i]]].tolist()
        )
        for i, name in enumerate(CLASSES)
    }
    return GalleryWindows(chosen, {name: len(members[name]) for name in CLASSES}, row, len(ids))


NOT_RANKED = 5
MAX_LABEL = 160
"""Longer labels are cut in the gallery, characters."""
DRAW_COLUMNS = ("window_id", "variant", "mid_right")
CANDIDATE_COLUMNS = ("window_id", "take_id", "variant", "candidate")


@dataclass(frozen=True)
class GalleryStep:
    """One answer of one row at one position; `sign` and `state` repeat the colour."""

    text: str
    state: str
    """`hit`, `top5` or `miss`."""
    sign: str


@dataclass(frozen=True)
class Plan:
    """One row's answers on one window."""

    name: str
    steps: tuple[GalleryStep, ...]
    row: str = ""


@dataclass(frozen=True)
class RetrievedWindow:
    """The training window whose motion a row followed, or would have followed with an open gate."""

    told: str
    """How it was selected, in words."""
    window_id: str
    take_id: str
    take_name: str
    times_s: tuple[float, ...]
    labels: tuple[str, ...]


@dataclass(frozen=True)
class Example:
    """One window of the gallery, without pictures."""

    window_id: str
    take_id: str
    take_name: str
    title: str
    horizon: int
    times_s: tuple[float, ...]
    """Middle of every segment, seconds."""
    span_s: tuple[float, float]
    truth: tuple[str, ...]
    plans: tuple[Plan, ...]
    gate: str
    paths: tuple[Path, ...]
    unit: str
    retrieved: RetrievedWindow | None = None


def keep(table: pa.Table, column: str, values: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of a table whose `column` is one of `values`."""
    wanted = pa.array(sorted(set(values)), pa.string())
    return list(table.filter(pc.is_in(table[column], value_set=wanted)).to_pylist())


@dataclass(frozen=True)
class Facts:
    """The rows that the sampled windows need, by id."""

    outcomes: Mapping[tuple[str, str], dict[str, Any]]
    """(window, variant) -> row."""
    takes: Mapping[str, dict[str, Any]]
    segments: Mapping[str, dict[str, Any]]
    windows: Mapping[str, dict[str, Any]]
    motions: Mapping[str, dict[str, Any]]
    labels: Mapping[str, str]


def examples(gallery: GalleryWindows, facts: Facts) -> list[Example]:
    """Describe every sampled window, class by class."""
    return [_example(window, name, gallery, facts) for name in CLASSES for window in gallery.classes[name]]


def _example(window_id: str, name: str, gallery: GalleryWindows, facts: Facts) -> Example:
    window = facts.windows[window_id]
    segments = [facts.segments[s] for s in window["segment_ids"]]
    rows = {v: row for (w, v), row in facts.outcomes.items() if w == window_id}
    decides = rows.get(gallery.row, rows[REFERENCE])
    paths, unit = _paths(window, rows, facts)
    right, of_reference = decides["mid_right"], rows[REFERENCE]["mid_right"]
    did = "helped" if right > of_reference else "hurt" if right < of_reference else "changed nothing"
    steps = f"{row_name(decides['variant'])} {right} of {decides['horizon'] - 2} middle steps right"
    title = f"The trajectory {did}: {steps}, {row_name(REFERENCE)} {of_reference}"
    if name == ALL_WRONG:
        title = "All wrong: no row that does not see the truth has a middle step right"
    return Example(
        window_id,
        window["take_id"],
        facts.takes[window["take_id"]]["name"],
        title,
        window["horizon"],
        _middles(window, facts),
        (segments[0]["start_s"], segments[-1]["end_s"]),
        tuple(_label(i, facts) for i in decides["label_ids"]),
        tuple(_plan(variant, rows[variant], facts) for variant in in_order(rows)),
        _gate(rows.get(examined().id)),
        paths,
        unit,
        _retrieved(rows, facts),
    )


def _middles(window: Mapping[str, Any], facts: Facts) -> tuple[float, ...]:
    """Return the middle of every segment of a window, seconds."""
    entries = [facts.segments[segment] for segment in window["segment_ids"]]
    return tuple((segment["start_s"] + segment["end_s"]) / 2 for segment in entries)


def followed(rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, str] | None:
    """Return the retrieved window that is shown and its description: behind a gate, else without one; None: none.

    `rows`: row of the tables -> its outcome on one window, with its `candidate`.
    """
    for row in sorted((row for row in METHODS if row.follows), key=lambda row: row.gate is None):
        if row.id in rows and rows[row.id]["candidate"]:
            return rows[row.id]["candidate"], str(row.follows)
    return None


def _retrieved(rows: Mapping[str, Mapping[str, Any]], facts: Facts) -> RetrievedWindow | None:
    """Describe the retrieved window; None where no row followed one, or its segments are not known."""
    choice = followed(rows)
    window = facts.windows.get(choice[0]) if choice else None
    if choice is None or window is None or not all(segment in facts.segments for segment in window["segment_ids"]):
        return None
    labels = [facts.segments[segment].get("label_id") for segment in window["segment_ids"]]
    name = facts.takes.get(window["take_id"], {"name": window["take_id"]})["name"]
    texts = tuple(_label(str(label_id), facts) for label_id in labels)
    return RetrievedWindow(choice[1], choice[0], window["take_id"], name, _middles(window, facts), texts)


def _label(label_id: str, facts: Facts) -> str:
    """Return the text of a label, cut if very long."""
    return shortened(facts.labels.get(label_id, label_id), MAX_LABEL)


def _plan(variant: str, row: Mapping[str, Any], facts: Facts) -> Plan:
    """Compare one row's sequence with the truth, position by position."""
    steps = []
    for guess, truth, rank in zip(row["decoded_ids"], row["label_ids"], row["ranks"], strict=True):
        state, sign = ("hit", "✓") if guess == truth else ("top5", "5") if rank < NOT_RANKED else ("miss", "✗")
        steps.append(GalleryStep(_label(guess, facts), state, sign))
    return Plan(row_name(variant), tuple(steps), variant)


def _gate(row: Mapping[str, Any] | None) -> str:
    if row is None or row["gate"] is None:
        return "no gate"
    declared = examined().gate
    assert declared is not None
    did = f"open: {declared.open_means}" if row["opened"] else f"closed: the answer of {row_name(REFERENCE)} is used"
    return f"gate of {examined().name} {row['gate']:.2f}, {did}"


def _paths(
    window: Mapping[str, Any], rows: Mapping[str, Mapping[str, Any]], facts: Facts
) -> tuple[tuple[Path, ...], str]:
    """Integrate the middle motions of the window, and of those that rows followed: without a gate, then behind one."""
    wanted = [("true", "true", window["window_id"])]
    for row in sorted((row for row in METHODS if row.follows), key=lambda row: row.gate is not None):
        if row.id in rows and rows[row.id]["candidate"]:
            kind = "nearest" if row.gate is None else "chosen"
            wanted.append((kind, str(row.follows), rows[row.id]["candidate"]))
    paths, scales = [], set()
    for kind, name, window_id in wanted:
        entries = [facts.motions.get(s) for s in facts.windows.get(window_id, {"segment_ids": ()})["segment_ids"][1:-1]]
        known = [row for row in entries if row is not None]
        if not known or len(known) < len(entries):
            continue
        motions = np.array([row["motions"] for row in known], dtype=np.float64).reshape(-1, MOTIONS, DOF)
        paths.append(Path(kind, name, integrate(motions)))
        scales.add(known[0]["scale"])
    return tuple(paths), "m" if scales == {"metric"} else "(arbitrary scale)"


def draw_gallery(inputs: Inputs, cfg: ReportConfig) -> GalleryWindows:
    """Sample the windows of the gallery from the outcomes table."""
    return draw(inputs.table("outcomes", DRAW_COLUMNS), cfg)


def video_files(gallery: GalleryWindows, inputs: Inputs) -> dict[str, str]:
    """Return take id -> video file, relative to the data root, of every take whose frames are in the gallery.

    Empty for a take that was ingested without a video.
    """
    shown = keep(inputs.table("outcomes", CANDIDATE_COLUMNS), "window_id", gallery.window_ids())
    rows: dict[str, dict[str, dict[str, Any]]] = {}
    for row in shown:
        rows.setdefault(row["window_id"], {})[row["variant"]] = row
    candidates = [choice[0] for rows_of_window in rows.values() if (choice := followed(rows_of_window))]
    retrieved = keep(inputs.table("windows", ("window_id", "take_id")), "window_id", candidates)
    wanted = [row["take_id"] for row in (*shown, *retrieved)]
    takes = keep(inputs.table("takes", ("take_id", "video")), "take_id", wanted)
    return {row["take_id"]: row["video"] for row in sorted(takes, key=lambda row: row["take_id"])}


def load_facts(gallery: GalleryWindows, inputs: Inputs) -> Facts:
    """Read the rows that the sampled windows and their candidates need."""
    outcomes = keep(inputs.table("outcomes"), "window_id", gallery.window_ids())
    window_ids = [*gallery.window_ids(), *(row["candidate"] for row in outcomes if row["candidate"])]

    def by_id(name: str, columns: tuple[str, ...], ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Return the rows of a table with these values of its first column, by them."""
        return {row[columns[0]]: row for row in keep(inputs.table(name, columns), columns[0], ids)}

    windows = by_id("windows", ("window_id", "take_id", "horizon", "segment_ids"), window_ids)
    segment_ids = [s for window in windows.values() for s in window["segment_ids"]]
    labels = inputs.table("labels", ("label_id", "label")).to_pylist()
    return Facts(
        outcomes={(row["window_id"], row["variant"]): row for row in outcomes},
        takes=by_id("takes", ("take_id", "name"), [window["take_id"] for window in windows.values()]),
        segments=by_id("segments", ("segment_id", "take_id", "start_s", "end_s", "label_id"), segment_ids),
        windows=windows,
        motions=by_id("motions", ("segment_id", "scale", "motions"), segment_ids),
        labels={row["label_id"]: row["label"] for row in labels},
    )
