"""Two toy stages, one whole and one sharded by take, declared as a real stage file declares its own."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from schemas.arrow import arrow_schema
from schemas.base import Record
from schemas.config import FeatureConfig, IngestConfig, PipelineConfig, RunOptions
from schemas.rejects import RejectCode, reject
from trajpilot_core.stages.execute import Outcome, execute
from trajpilot_core.stages.stage import Inputs, Source, Stage, Work

WIDTH = 8


class Row(Record):
    """Row of the toy's tables."""

    take_id: str
    number: int


VECTORS = arrow_schema(Row, vector=pa.list_(pa.float16(), WIDTH))


def read_takes(work: Work) -> None:
    """Whole stage: one row per line of takes.txt; the line `bad` is a reject."""
    config: IngestConfig = work.config
    names = (Path(work.runtime.data_root) / "takes.txt").read_text().split()
    good = [name for name in names if name != "bad"]
    rejects = [reject("toy_ingest", RejectCode.VIDEO_MISSING, "bad", "no video") for name in names if name == "bad"]
    numbers = [len(name) * config.min_horizon for name in good]
    work.sink.table("toy_takes", pa.table({"take_id": good, "number": numbers}, schema=arrow_schema(Row)))
    work.sink.model("toy_model", {"w": np.arange(6, dtype=np.float32).reshape(2, 3)}, {"b": "2", "a": "1", "c": "3"})
    work.sink.document("toy.html", b"<p>toy</p>")
    work.sink.reject(rejects)
    work.sink.count(len(names), len(good))


def ingest_sources(inputs: Inputs, config: Record, data_root: str) -> list[Source]:
    """One source, the list of takes."""
    return [Source("", ("takes.txt",))]


def read_vectors_of_takes(work: Work) -> None:
    """Sharded stage: a vector per number in the take's file; the word `bad` costs one row."""
    for source in work.pending:
        work.sink.shard(source.shard, *vectors_of(source, work.runtime.data_root))


def vectors_of(source: Source, data_root: str) -> tuple[pa.Table, list, int]:
    """Table, rejects and rows in of one take."""
    words = (Path(data_root) / source.files[0]).read_text().split()
    good = [int(word) for word in words if word != "bad"]
    rejects = [
        reject("toy_vectors", RejectCode.DECODE_FAILED, source.shard, "bad word") for word in words if word == "bad"
    ]
    rows = [{"take_id": source.shard, "number": n, "vector": np.full(WIDTH, n % 100, np.float16)} for n in good]
    return pa.Table.from_pylist(rows, schema=VECTORS), rejects, len(words)


def vector_sources(inputs: Inputs, config: Record, data_root: str) -> list[Source]:
    """One source per take."""
    takes = inputs.table("toy_takes", ["take_id"]).column("take_id").to_pylist()
    return [Source(take, (f"{take}.txt",), {"take": take}) for take in takes]


def read_sum(work: Work) -> None:
    """Whole stage downstream: the sum of all vectors."""
    vectors = work.inputs.vectors("toy_vectors", "vector")
    work.sink.table("toy_sum", pa.table({"sum": [float(vectors.astype(np.float64).sum())]}))
    work.sink.count(len(vectors), len(vectors))


INGEST = Stage(
    "toy_ingest", (), ("toy_takes", "toy_model", "toy.html"), "ingest", read_takes, 1, "toy", sources=ingest_sources
)
VECTOR = Stage(
    "toy_vectors", ("toy_takes",), ("toy_vectors",), "features", read_vectors_of_takes, 1, "toy", "take", vector_sources
)
SUM = Stage("toy_sum", ("toy_vectors", "toy_vectors.rejects"), ("toy_sum",), "evaluation", read_sum, 1, "toy")
TOYS = {stage.name: stage for stage in (INGEST, VECTOR, SUM)}


def toys_with(stage: Stage, **changes: object) -> dict[str, Stage]:
    """All toys, one of them changed."""
    return {**TOYS, stage.name: replace(stage, **changes)}


def write_corpus(folder: Path, takes: int = 4, rows: int = 3) -> Path:
    """Write takes.txt and one file of numbers per take."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"take{k}" for k in range(takes)]
    (folder / "takes.txt").write_text("\n".join(names))
    for k, name in enumerate(names):
        (folder / f"{name}.txt").write_text(" ".join(str(100 * k + row) for row in range(rows)))
    return folder


def options(root: Path, corpus: Path, **changes: object) -> RunOptions:
    """Run options of a toy run."""
    return RunOptions(
        **{"root": str(root), "data_root": str(corpus), "device": "cpu", "max_reject_ratio": 0.5, **changes}
    )


def run_toys(
    run: RunOptions, stages: dict[str, Stage] = TOYS, config: PipelineConfig | None = None, until: str = "toy_sum"
) -> dict[str, Outcome]:
    """Run the toys in order."""
    done: dict[str, Outcome] = {}
    for stage in stages.values():
        done[stage.name] = execute(stage, config or PipelineConfig(), run, stages)
        if stage.name == until:
            break
    return done


def tree_bytes(root: Path, skip: Callable[[Path], bool] = lambda path: False) -> dict[str, bytes]:
    """Every artifact's bytes by its path below the root, side files left out."""
    files = sorted(path for path in (root / "artifacts").rglob("*") if path.is_file())
    named = {str(path.relative_to(root)): path for path in files if path.name != "occasion.json" and not skip(path)}
    return {name: path.read_bytes() for name, path in named.items() if "/.tmp-" not in name}


def features_config(**changes: object) -> PipelineConfig:
    """Pipeline config with changes to the toy vector stage's sub-record."""
    return PipelineConfig(features=FeatureConfig(**changes))


def hostile_names() -> list[str]:
    """200 names that try to be paths, tricks or nothing at all."""
    fixed = [
        "", ".", "..", "../x", "../../x", "/etc/x", "//x", "a/../../x", "a\0b", "x" * 300, "C:\\x", "\\\\host\\x",
        "..\\x", "a\\..\\..\\x", "~", "~/x", "-rf", "a b", "a\nb", "a\tb", "CON:", "x:y", "x|y", "x*", "x?", "<x>",
        '"x"', "тake", "．．/x", "‥/x", "a\u202eb", "\ud800", "é", "e\u0301", ".hidden", ".lock", ".tmp-1", "%2e%2e/x",
        "..%2fx", "$HOME", "`x`",
    ]  # fmt: skip
    chance = random.Random(0)
    parts = ["..", ".", "/", "\\", "a", "\0", "etc", "~", "∕", "x" * 120]
    return fixed + ["".join(chance.choices(parts, k=chance.randint(2, 7))) + "/" for _ in range(200 - len(fixed))]
