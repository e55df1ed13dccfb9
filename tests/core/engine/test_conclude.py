"""A stage whose shards are trainings ends with what these have written: it reads their models and tables, verified."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from schemas.config import PipelineConfig, RunOptions
from schemas.training import PredictorConfig
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.stage import Source, Stage, Work
from trajpilot_core.errors import InputError, StoreError, TrainingError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import Inputs, read_entry_table

TRAINED: list[str] = []
CRASHES: set[str] = set()
"""Trainings that crash, once."""


def sources(inputs: Inputs, config: PredictorConfig, data_root: str) -> list[Source]:
    return [Source(f"final/s{seed}/traj") for seed in range(config.heads)]


def train(work: Work[PredictorConfig]) -> None:
    assert not work.trained, "nothing is known of other trainings"
    for source in work.pending:
        if source.shard in CRASHES:
            CRASHES.remove(source.shard)
            raise TrainingError(f"{source.shard} crashed")
        TRAINED.append(source.shard)
        with work.sink.training(source.shard) as share:
            share.model("toys", source.shard, {"w": np.frombuffer(source.shard.encode(), np.uint8)})
            share.models("toys", {})
            share.table("toy_curves", pa.table({"of": [source.shard]}))


def conclude(work: Work[PredictorConfig]) -> None:
    scores = [
        int(one.models("toys").read(name)["w"].sum()) + len(one.table("toy_curves")["of"][0].as_py())
        for name, one in work.trained.items()
    ]
    work.sink.models("toys", {})
    work.sink.table("toy_scores", pa.table({"score": scores}))
    work.sink.count(len(scores), len(scores))


TOY = Stage(
    name="toy_trainings",
    reads=(),
    writes=("toys", "toy_curves", "toy_scores"),
    config=PredictorConfig,
    run=train,
    version=1,
    summary="",
    shard_by="training",
    sources=sources,
    conclude=conclude,
    outside_shards=("heads",),
)


def run(root: Path, heads: int) -> Outcome:
    config = PipelineConfig(predictor=PredictorConfig(heads=heads))
    return execute(TOY, config, RunOptions(root=str(root), device="cpu"), {TOY.name: TOY})


def test_the_end_reads_every_training_also_those_that_were_there_before_a_crash(tmp_path: Path) -> None:
    TRAINED.clear()
    CRASHES.add("final/s2/traj")
    with pytest.raises(TrainingError, match="final/s2/traj crashed"):
        run(tmp_path, 4)
    assert run(tmp_path, 4).message() == "reused 2, computed 2, removed 0, rejected 0"
    assert [f"final/s{seed}/traj" for seed in range(4)] == TRAINED
    folder = open_folder(str(tmp_path))
    scores = read_entry_table(folder, current_manifest(folder, TOY.name), "toy_scores")["score"].to_pylist()
    assert scores == [sum(name.encode()) + len(name) for name in TRAINED]


def test_a_video_that_changes_while_a_training_reads_it_ends_the_stage(tmp_path: Path) -> None:
    """Planted: a file that is written to during the training."""
    (tmp_path / "corpus").mkdir()
    video = tmp_path / "corpus" / "video.mp4"
    video.write_bytes(b"as it was hashed")

    def reading(work: Work[PredictorConfig]) -> None:
        video.write_bytes(b"another one, and longer")
        train(work)

    toy = replace(TOY, run=reading, sources=lambda *_: [Source("final/s0/traj", ("video.mp4",))])
    options = RunOptions(root=str(tmp_path / "root"), data_root=str(tmp_path / "corpus"), device="cpu")
    with pytest.raises(InputError, match=r"video.mp4 changed while toy_trainings read it"):
        execute(toy, PipelineConfig(), options, {toy.name: toy})
    video.write_bytes(b"at rest")
    execute(replace(toy, run=train), PipelineConfig(), options, {toy.name: toy})


def test_a_damaged_model_is_not_scored(tmp_path: Path) -> None:
    """Planted: a byte of a model that was written before."""
    run(tmp_path, 2)
    (damaged, *_) = sorted(tmp_path.rglob("*.safetensors"))
    damaged.chmod(0o644)
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\0")
    with pytest.raises(StoreError):
        run(tmp_path, 3)
