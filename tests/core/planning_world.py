"""A small procedure graph as the tables that the training stages read, and an in-memory store. No video, no files.

Tasks of ordered steps with interchangeable alternatives. A take follows one task; its intent decides most alternatives.
Head motion carries the label, appearance carries task and step well and the alternative hardly at all, so that the true
trajectories must help and endpoints alone cannot.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.observation import controls_schema, features_schema, text_bank_schema
from schemas.rejects import Reject
from trajpilot_core.encoders.bag_of_words import BagOfWords
from trajpilot_core.errors import StoreError
from trajpilot_core.stages.stage import Runtime, Work


@dataclass(frozen=True)
class WorldSize:
    tasks: int = 3
    steps: int = 8
    alternatives: int = 3
    train: int = 20
    dev: int = 6
    test: int = 4
    segments: int = 10
    feature_width: int = 32
    tokens: int = 1
    text_width: int = 32
    motion_strength: float = 1.0
    max_horizon: int = 8


@dataclass
class Memory:
    """The store's two sides in memory: what a stage reads, and what it wrote."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    models: dict[str, tuple[dict[str, NDArray[np.generic]], dict[str, str]]] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    counts: tuple[int, int] = (0, 0)

    def table(self, name: str, what: Sequence[str] | pa.Table | None = None) -> Any:
        """Read (columns or nothing given) or write (a table given)."""
        if isinstance(what, pa.Table):
            self.tables[name] = what
            return None
        if name not in self.tables:
            raise StoreError(f"no table {name}")
        return self.tables[name] if what is None else self.tables[name].select(list(what))

    def model(
        self, name: str, tensors: Mapping[str, Any] | None = None, metadata: Mapping[str, str] | None = None
    ) -> Any:
        if tensors is None:
            return self.models[name]
        self.models[name] = (dict(tensors), dict(metadata or {}))
        return None

    def document(self, name: str, content: bytes | None = None) -> Any:
        raise StoreError(f"no document {name}")

    def reject(self, rejects: Iterable[Reject]) -> None:
        self.rejects += list(rejects)

    def count(self, n_in: int, n_out: int) -> None:
        self.counts = (n_in, n_out)

    def shard(self, shard: str, table: pa.Table, rejects: Sequence[Reject], n_in: int) -> None:
        raise StoreError("not a sharded stage")


def run_stage(stage: Any, config: Any, memory: Memory, scratch: Path, workers: int = 1) -> None:
    """Run a stage on the tables in memory, as the executor would."""
    runtime = Runtime(data_root="", device="cpu", workers=workers, scratch=scratch)
    stage.run(Work(inputs=memory, config=config, pending=(), sink=memory, runtime=runtime))


def planning_world(size: WorldSize, seed: int = 0) -> Memory:
    """Return the tables takes, segments, labels, windows, controls, features and text_bank."""
    rng = np.random.default_rng(seed)
    labels = [f"t{t} s{s} a{a}" for t in range(size.tasks) for s in range(size.steps) for a in range(size.alternatives)]
    rows = _rows(size, rng)
    memory = Memory()
    memory.table("takes", pa.Table.from_pylist(rows["takes"]))
    memory.table("segments", pa.Table.from_pylist(rows["segments"]))
    memory.table("windows", pa.Table.from_pylist(rows["windows"]))
    memory.table("labels", pa.table({"label_id": labels, "label": [_text(label) for label in labels]}))
    memory.table("text_bank", _bank(labels, size))
    ids = np.array([labels.index(row["label_id"]) for row in rows["segments"]])
    memory.table("controls", _controls(rows["segments"], ids, len(labels), size, rng))
    memory.table("features", _features(rows["segments"], ids, size, rng))
    return memory


def fit_tables(memory: Memory, held_out: Sequence[str] = ()) -> None:
    """Add a folds table of the cheap mode by hand."""
    train = sorted(row["take_id"] for row in memory.table("takes").to_pylist() if row["split"] == "train")
    memory.table("folds", pa.table({"take_id": train, "fold": [0 if take in held_out else -1 for take in train]}))


def _text(label_id: str) -> str:
    task, step, alternative = label_id.split()
    return f"do {task}{step} with {task}{step}{alternative} near {task}"


def _rows(size: WorldSize, rng: np.random.Generator) -> dict[str, list[dict[str, JsonValue]]]:
    takes, segments, windows = [], [], []
    splits = ["train"] * size.train + ["dev"] * size.dev + ["test"] * size.test
    for number, split in enumerate(splits):
        take_id = f"egoexo4d:{number:04d}"
        takes.append({"take_id": take_id, "participant": f"p{number}", "capture": f"c{number}", "split": split})
        task, intent = rng.integers(size.tasks), rng.integers(size.alternatives)
        first = rng.integers(size.steps)
        mine = []
        for position in range(size.segments):
            free = rng.random() > 0.8
            alternative = rng.integers(size.alternatives) if free else intent
            label = f"t{task} s{(first + position) % size.steps} a{alternative}"
            mine.append(f"{take_id}:{position:04d}")
            segments.append({"segment_id": mine[-1], "take_id": take_id, "label_id": label, "split": split})
        for h in range(3, size.max_horizon + 1):
            for at in range(size.segments - h + 1):
                window = {"window_id": f"{take_id}:h{h}:{at:04d}", "take_id": take_id, "split": split, "horizon": h}
                windows.append(window | {"segment_ids": mine[at : at + h]})
    return {"takes": takes, "segments": segments, "windows": windows}


def _vectors(table: Mapping[str, Any], column: str, values: NDArray[Any], schema: pa.Schema) -> pa.Table:
    width = values.shape[1]
    lists = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), width)
    return pa.table({**table, column: lists}, schema=schema)


def _bank(labels: Sequence[str], size: WorldSize) -> pa.Table:
    encoder = BagOfWords(size.text_width)
    texts = [_text(label) for label in labels]
    table = {"label_id": list(labels), "label": texts, "encoder": [encoder.digest] * len(labels)}
    return _vectors(table, "vector", encoder.embed(texts), text_bank_schema(size.text_width))


def _controls(
    segments: Sequence[Mapping[str, Any]], ids: NDArray[Any], n: int, size: WorldSize, rng: np.random.Generator
) -> pa.Table:
    gesture = rng.normal(size=(n, 16 * 6)) * size.motion_strength
    values = (gesture[ids] + rng.normal(size=(len(ids), 16 * 6))).astype(np.float32) * 0.02
    table = {
        "segment_id": [s["segment_id"] for s in segments], "take_id": [s["take_id"] for s in segments],
        "source": ["aria"] * len(ids), "frame": ["camera"] * len(ids), "scale": ["metric"] * len(ids),
        "coverage": [1.0] * len(ids), "quality": [1.0] * len(ids), "max_gap_s": [0.001] * len(ids),
    }  # fmt: skip
    return _vectors(table, "controls", values, controls_schema())


def _features(
    segments: Sequence[Mapping[str, Any]], ids: NDArray[Any], size: WorldSize, rng: np.random.Generator
) -> pa.Table:
    d, steps = size.feature_width, ids // size.alternatives
    look, scene = rng.normal(size=(size.tasks * size.steps, d)), rng.normal(size=(4, d))
    parts = [
        look[steps, None] + rng.normal(size=(len(ids), 1, 4)) @ scene + 0.3 * rng.normal(size=(len(ids), 1, d))
        for _ in range(size.tokens)
    ]
    values = np.concatenate(parts, axis=1).reshape(len(ids), -1).astype(np.float16)
    table = {
        "segment_id": [s["segment_id"] for s in segments], "take_id": [s["take_id"] for s in segments],
        "encoder": ["none"] * len(ids), "frame_times_s": [[0.0]] * len(ids),
    }  # fmt: skip
    return _vectors(table, "vector", values, features_schema(values.shape[1], size.tokens))
