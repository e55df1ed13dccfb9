"""What prompts contain: frames named by their content, the bank, labels of other scenarios, training sequences.

Samples follow from digests of the seed and of the sample's purpose: neither order nor process matters.
"""

import hashlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.rejects import Reject, RejectCode, reject
from schemas.vlm import CompletedVlm
from trajpilot_core.arrays import Image
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.store.reading import Inputs
from trajpilot_core.video.decode import frame_times_s
from trajpilot_core.video.isolate import local_copies, run_jobs

NAME = "vlm"


@dataclass(frozen=True)
class AskedWindow:
    """One test window that requests are made for."""

    window_id: str
    horizon: int
    segment_ids: tuple[str, ...]


@dataclass(frozen=True)
class PromptMaterial:
    """The texts that requests of all takes share."""

    bank: tuple[str, ...]
    """Texts of all labels in alphabetical order: an order by frequency would reveal which are likely."""
    labels_of: Mapping[str, tuple[str, ...]]
    """Scenario -> labels of its training takes, in alphabetical order."""
    sequences_of: Mapping[tuple[str, int], tuple[tuple[str, ...], ...]]
    """(scenario, horizon) -> labels of its training windows."""
    scenario_of: Mapping[str, str]
    """Take -> scenario."""

    @cached_property
    def training_labels(self) -> tuple[str, ...]:
        """Labels of all training takes, in alphabetical order."""
        return tuple(sorted(set().union(*self.labels_of.values())))

    @cached_property
    def labels_outside(self) -> Mapping[str, tuple[str, ...]]:
        """Scenario -> labels of the training takes of all others, in alphabetical order."""
        known = self.labels_of.items()
        others = {scenario: [labels for name, labels in known if name != scenario] for scenario, _ in known}
        return {scenario: tuple(sorted(set().union(*labels))) for scenario, labels in others.items()}

    @cached_property
    def training_sequences(self) -> frozenset[tuple[str, ...]]:
        """Label sequences of all training windows."""
        return frozenset(labels for windows in self.sequences_of.values() for labels in windows)

    def exemplars(self, segment_id: str, scenario: str, n: int, seed: int) -> tuple[str, ...]:
        """Return labels of training takes of other scenarios as examples of style."""
        others = self.labels_outside.get(scenario, self.training_labels)
        return tuple(others[at] for at in sampled(f"{seed}:{segment_id}", len(others), n))

    def sequences(self, window: AskedWindow, scenario: str, n: int, seed: int) -> tuple[tuple[str, ...], ...]:
        """Return training sequences of the scenario with the window's length."""
        known = self.sequences_of.get((scenario, window.horizon), ())
        return tuple(known[at] for at in sampled(f"{seed}:{window.window_id}", len(known), n))


def sampled(name: str, size: int, n: int) -> list[int]:
    """Return n different indices below `size`, or all of them, in an order that follows from the name."""
    indices: dict[int, None] = {}
    number = 0
    while len(indices) < min(n, size):
        digest = hashlib.sha256(f"{name}:{number}".encode()).digest()
        indices[int.from_bytes(digest[:8], "big") % size] = None
        number += 1
    return list(indices)


def load_material(inputs: Inputs) -> PromptMaterial:
    """Read takes, labels, segments and windows; of test takes only the scenario."""
    takes = inputs.table("takes", ["take_id", "split", "scenario"]).to_pylist()
    training = frozenset(row["take_id"] for row in takes if row["split"] == "train")
    scenario_of = {row["take_id"]: row["scenario"] for row in takes}
    segments = of_takes(inputs.table("segments", ["segment_id", "take_id", "label_id"]), training)
    text = {row["label_id"]: row["label"] for row in inputs.table("labels", ["label_id", "label"]).to_pylist()}
    label_of = {row["segment_id"]: text[row["label_id"]] for row in segments.to_pylist()}
    labels: dict[str, set[str]] = defaultdict(set)
    for row in segments.to_pylist():
        labels[scenario_of[row["take_id"]]].add(text[row["label_id"]])
    sequences: dict[tuple[str, int], list[tuple[str, ...]]] = defaultdict(list)
    windows = of_takes(inputs.table("windows", ["window_id", "take_id", "horizon", "segment_ids"]), training)
    for row in sorted(windows.to_pylist(), key=lambda row: row["window_id"]):
        key = scenario_of[row["take_id"]], row["horizon"]
        sequences[key].append(tuple(label_of[segment] for segment in row["segment_ids"]))
    return PromptMaterial(
        bank=tuple(sorted(set(text.values()))),
        labels_of={name: tuple(sorted(known)) for name, known in labels.items()},
        sequences_of={key: tuple(known) for key, known in sequences.items()},
        scenario_of=scenario_of,
    )


def of_takes(table: pa.Table, takes: frozenset[str]) -> pa.Table:
    """Return the rows of these takes."""
    return table.filter(pc.is_in(table["take_id"], value_set=pa.array(sorted(takes), pa.string())))


def windows_to_ask(inputs: Inputs, per_horizon: int | None, seed: int) -> dict[str, list[AskedWindow]]:
    """Return take -> its test windows that requests are made for, in order of their ids: a sample of `per_horizon`
    windows of each horizon; None: all.

    Only windows whose segments all have features and motion count, as for every other row.
    """
    usable = set.intersection(
        *(set(inputs.table(name, ["segment_id"])["segment_id"].to_pylist()) for name in ("features", "motions"))
    )
    table = inputs.table("windows", ["window_id", "take_id", "split", "horizon", "segment_ids"])
    rows = table.filter(pc.equal(table["split"], "test")).to_pylist()
    rows = [row for row in rows if usable.issuperset(row["segment_ids"])]
    kept = {row["window_id"] for row in rows}
    if per_horizon is not None:
        kept = subset([(row["window_id"], row["horizon"]) for row in rows], per_horizon, seed)
    windows: dict[str, list[AskedWindow]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: row["window_id"]):
        if row["window_id"] in kept:
            window = AskedWindow(row["window_id"], row["horizon"], tuple(row["segment_ids"]))
            windows[row["take_id"]].append(window)
    return dict(windows)


def subset(windows: Sequence[tuple[str, int]], per_horizon: int, seed: int) -> set[str]:
    """Return the ids of this many windows of each horizon: the first by sha256 of seed and id."""
    by_horizon: dict[int, list[str]] = defaultdict(list)
    for window_id, horizon in windows:
        by_horizon[horizon].append(window_id)
    return {
        window_id
        for ids in by_horizon.values()
        for window_id in sorted(ids, key=lambda id_: hashlib.sha256(f"{seed}:{id_}".encode()).hexdigest())[:per_horizon]
    }


@dataclass(frozen=True)
class TakeFrames:
    """Frames of the segments of one take."""

    of_segment: Mapping[str, tuple[str, ...]]
    """Segment -> digests of its frames, in order of time; without the segments that could not be decoded."""
    images: Mapping[str, Image]
    """Digest -> (S, S, 3) RGB."""
    rejects: tuple[Reject, ...]
    """Segments that could not be decoded, with zero units each."""


def digest_of(frame: Image) -> str:
    """Return the sha256 of a frame's size and RGB bytes."""
    return hashlib.sha256(f"{frame.shape}:".encode() + np.ascontiguousarray(frame).tobytes()).hexdigest()


def take_frames(
    video: str,
    fps: float,
    segments: Sequence[tuple[str, float, float]],
    cfg: CompletedVlm,
    data_root: str,
    scratch: Path,
) -> TakeFrames:
    """Decode the frames of segments (id, start and end in seconds) of one take's video in a child process."""
    job = {
        "kind": "clips",
        "video": video,
        "path": video,
        "times_s": [frame_times_s(start, end, fps, cfg.n_frames).tolist() for _, start, end in segments],
        "size_px": cfg.size_px,
        "resize": "antialiased",
        "max_off_s": None,
    }
    around = local_copies(open_corpus(data_root), scratch)
    of_segment: dict[str, tuple[str, ...]] = {}
    images: dict[str, Image] = {}
    rejects = []
    for event in run_jobs([job], workers=1, timeout_s=cfg.decode_timeout_s, ahead=4, around=around):
        if event.frames is not None:
            named = tuple(digest_of(frame) for frame in event.frames)
            of_segment[segments[event.values["segment"]][0]] = named
            images.update(zip(named, event.frames, strict=True))
        elif event.kind in ("fault", "failed"):
            at = event.values.get("segment")
            name = None if at is None else segments[at][0]
            code, detail = RejectCode(event.values["code"]), event.values["detail"]
            rejects.append(reject(NAME, code, "", detail, n_units=0, segment=name, source_file=video))
    return TakeFrames(of_segment, images, tuple(rejects))
