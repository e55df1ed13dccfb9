"""A small corpus on disk in the layout of an Ego-Exo4D download, to be damaged by tests, and a way to ingest it."""

import functools
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np
import pyarrow as pa

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.stages.ingest import run, sources
from trajpilot_core.stages.stage import Runtime, Source, Work
from trajpilot_core.video.probe import VideoProbe

FPS = 30
SMALL = IngestConfig(dev_min=1)
Json = dict[str, Any]


def describe(text: str, timestamp: object, **changes: object) -> Json:
    """Return one description of the wearer that passes all filters, unless `changes` say otherwise."""
    return {
        "text": text,
        "timestamp": timestamp,
        "subject": "C",
        "ego_visible": True,
        "unsure": False,
        "best_exo": None,
        **changes,
    }


def annotate(descriptions: Sequence[object], uid: str = "a1", **changes: object) -> Json:
    """Return one annotator's pass."""
    given = {"annotation_uid": uid, "annotator_id": f"who-{uid}", "rejected": False, "reject_reason": None}
    return {**given, "descriptions": list(descriptions), **changes}


def steps(n: int = 6, start_s: float = 1.0, step_s: float = 1.5) -> list[Json]:
    """Return `n` descriptions, evenly spaced."""
    return [describe(f"C does step {i}.", start_s + i * step_s) for i in range(n)]


def take_record(uid: str, name: str, capture: str, **changes: object) -> Json:
    """Return a record of takes.json with the fields of the release."""
    camera = {"cam_id": "aria02", "is_ego": True, "device_type": "aria"}
    rgb = {"cam_id": "aria02", "stream_id": "214-1", "relative_path": "frame_aligned_videos/aria02_214-1.mp4"}
    return {
        "root_dir": f"takes/{name}", "take_name": name, "take_uid": uid, "participant_uid": 657, "is_dropped": False,
        "best_exo": None, "task_id": 4001, "task_name": "Remove a Wheel", "parent_task_name": "Bike Repair",
        "task_start_sec": None, "duration_sec": 12.0, "timesync_start_idx": 4, "timesync_end_idx": 365,
        "validated": True, "capture_uid": f"uid-{capture}", "has_trimmed_trajectory": True,
        "capture": {
            "root_dir": f"captures/{capture}", "capture_name": capture,
            "cameras": [{"cam_id": "cam01", "is_ego": False}, camera, {"cam_id": "gp01", "is_ego": True}],
        },
        "frame_aligned_videos": {
            "aria02": {"rgb": rgb, "slam-left": {"relative_path": None}},
            "collage": {"0": {"relative_path": "x.mp4"}}, "best_exo": {"0": {"relative_path": None}},
        },
        **changes,
    }  # fmt: skip


@functools.cache
def video_bytes(duration_s: float = 12.0, uneven: bool = False, start_s: float = 0.0) -> bytes:
    """Return a real mp4 of 64 x 64 pixels at 30 frames a second."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "video.mp4"
        with av.open(str(path), "w") as container:
            stream = container.add_stream("libx264", rate=FPS, options={"preset": "ultrafast", "crf": "40"})
            stream.width = stream.height = 64
            for index in range(round(duration_s * FPS)):
                if uneven and index % 7 in (3, 4):
                    continue
                frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), index % 255, np.uint8))
                frame.pts = index + round(start_s * FPS)
                container.mux(stream.encode(frame))
            container.mux(stream.encode())
        return path.read_bytes()


@dataclass
class EgoExoCorpus:
    """Documents of a corpus, in memory until `write`; tests change them first, or the files afterwards."""

    root: Path
    takes: list[object] = field(default_factory=list)
    splits: dict[str, object] = field(default_factory=dict)
    train: dict[str, object] = field(default_factory=dict)
    val: dict[str, object] = field(default_factory=dict)

    def add(
        self,
        name: str,
        split: str,
        annotations: object = None,
        *,
        capture: str | None = None,
        video: bytes | None = b"",
        trajectory: bool = True,
        **changes: object,
    ) -> Json:
        """Add a take of the released split, its documents and its files; video None: leave it out."""
        record = take_record(f"uid-{name}", name, capture or f"capture-{name}", **changes)
        self.takes.append(record)
        self.splits[f"uid-{name}"] = split
        {"train": self.train, "val": self.val}[split][f"uid-{name}"] = annotations or [annotate(steps())]
        if video is not None:
            write(self.video(name), video or video_bytes())
        if trajectory:
            write(self.root / f"takes/{name}/trajectory/closed_loop_trajectory.csv", b"tracking_timestamp_us\n")
            write(self.root / f"takes/{name}/trajectory/online_calibration.jsonl", b"{}\n")
        write(self.root / f"captures/{capture or f'capture-{name}'}/timesync.csv", b"aria02_214-1_pts\n")
        return record

    def video(self, name: str) -> Path:
        """Return where the head video of a take lies."""
        return self.root / f"takes/{name}/frame_aligned_videos/downscaled/448/aria02_214-1.mp4"

    def write(self) -> Path:
        """Write all documents and return the root."""
        write_json(self.root / "takes.json", self.takes)
        write_json(self.root / "annotations/splits.json", {"take_uid_to_split": self.splits})
        for split, annotations in (("train", self.train), ("val", self.val)):
            document = {"ds": "test", "annotations": annotations}
            write_json(self.root / f"annotations/atomic_descriptions_{split}.json", document)
        return self.root


def healthy(root: Path, n_train: int = 3, n_test: int = 1) -> EgoExoCorpus:
    """Return a corpus of whole takes with six descriptions each, not written yet."""
    corpus = EgoExoCorpus(root)
    for index in range(n_train):
        corpus.add(f"train_{index}", "train")
    for index in range(n_test):
        corpus.add(f"test_{index}", "val")
    return corpus


def write(path: Path, content: bytes) -> None:
    """Write a file and its folders."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def write_json(path: Path, document: object) -> None:
    """Write a JSON document; lone surrogates survive as escapes."""
    write(path, json.dumps(document).encode())


@dataclass
class RecordingSink:
    """Keeps what a stage hands over, and refuses rows that do not balance, as the store does."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    n_in: int = -1
    n_out: int = -1

    def table(self, name: str, table: pa.Table) -> None:
        self.tables[name] = table

    def reject(self, rejects: Iterable[Reject]) -> None:
        self.rejects += rejects

    def count(self, n_in: int, n_out: int) -> None:
        self.n_in, self.n_out = n_in, n_out
        lost = sum(row.n_units for row in self.rejects)
        assert n_in == n_out + lost, f"{n_in} in, {n_out} out, {lost} lost"
        assert n_out == self.tables["segments"].num_rows

    def codes(self) -> Mapping[str, int]:
        """Return code -> units lost; codes that cost nothing are there with 0."""
        found: dict[str, int] = {}
        for row in self.rejects:
            found[row.code] = found.get(row.code, 0) + row.n_units
        return found

    def rows(self, name: str) -> list[Json]:
        return self.tables[name].to_pylist()

    def of(self, code: RejectCode) -> list[Reject]:
        return [row for row in self.rejects if row.code is code]

    def model(self, *_: object) -> None:
        raise AssertionError("ingest writes no model")

    document = shard = model


def ingest(root: Path | str, config: IngestConfig = SMALL) -> RecordingSink:
    """Run the stage over a corpus and return what it handed over."""
    sink = RecordingSink()
    with tempfile.TemporaryDirectory() as scratch:
        runtime = Runtime(str(root), "cpu", 1, Path(scratch))
        run(Work(None, config, (), sink, runtime))  # type: ignore[arg-type]
    return sink


def list_sources(root: Path | str, config: IngestConfig = SMALL) -> Source:
    """Return what the stage declares to read from outside the store."""
    (source,) = sources(None, config, str(root))  # type: ignore[arg-type]
    return source


def pretend_probe(duration_s: float = 12.0) -> Any:
    """Return a stand-in for `probe_many` that opens nothing, for properties over many corpora."""
    found = VideoProbe(round(duration_s * FPS), float(FPS), duration_s, 64, 64, 0, False)
    return lambda paths, workers, timeout_s, told: [found for _ in paths]
