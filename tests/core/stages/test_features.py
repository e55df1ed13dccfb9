"""The stage `features`: a vector for every segment, whatever its batch, or a reject that says why not."""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from video_fixture import write_video

from schemas.annotation import Segment, Take, features_schema
from schemas.arrow import table_of
from schemas.config import FeatureConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.encoders.video import embed
from trajpilot_core.encoders.video.embed import load_embedder
from trajpilot_core.encoders.video.tiny import write_tiny_checkpoint
from trajpilot_core.encoders.video.vjepa import SIZES, VjepaEncoder
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import CheckpointError
from trajpilot_core.stages.features import STAGE, sources
from trajpilot_core.store import corpus_files
from trajpilot_core.video import isolate

CONFIG = FeatureConfig(model="tiny", size_px=64, batch=4, precision="fp32", resize="swscale", decode_timeout_s=60)
LENGTH_S = 4.0


@dataclass
class Tables:
    """Inputs that hold two tables."""

    takes: list[Take]
    segments: list[Segment]

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        table = table_of(Take, self.takes) if name == "takes" else table_of(Segment, self.segments)
        return table.select(list(columns)) if columns else table

    def models(self, name: str) -> Any:
        raise AssertionError(name)

    def document(self, name: str) -> bytes:
        raise AssertionError(name)


@dataclass
class Shards:
    """Sink that keeps shards and checks rows in = rows out + units lost."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    rejects: dict[str, list[Reject]] = field(default_factory=dict)

    def shard(self, shard: str, table: pa.Table, rejects: Sequence[Reject], n_in: int) -> None:
        assert shard not in self.tables
        assert n_in == table.num_rows + sum(reject.n_units for reject in rejects)
        self.tables[shard], self.rejects[shard] = table, list(rejects)

    def codes(self, shard: str) -> list[RejectCode]:
        return [reject.code for reject in self.rejects[shard]]


def take(name: str, fps: float = 15.0) -> Take:
    return Take(
        take_id=f"t:{name}",
        corpus="t",
        name=name,
        split="train",
        scenario="s",
        participant=None,
        capture=name,
        video=f"{name}.mp4",
        trajectory=None,
        timesync=None,
        calibration=None,
        camera="c",
        timesync_start=None,
        timesync_end=None,
        duration_s=LENGTH_S,
        fps=fps,
        n_frames=int(LENGTH_S * fps),
    )


def segment(name: str, position: int, start_s: float, end_s: float, label: str = "a") -> Segment:
    return Segment(
        segment_id=f"t:{name}:{position:04d}",
        take_id=f"t:{name}",
        split="train",
        position=position,
        run=0,
        start_s=start_s,
        end_s=end_s,
        anchor_s=(start_s + end_s) / 2,
        raw_text=label,
        label=label,
        label_id=label,
        annotation_uid="u",
        annotator="1",
    )


def corpus(root: Path, names: Sequence[str] = ("a", "b", "c")) -> Tables:
    """Three short takes of five segments, each of another colour."""
    colours = {"a": (220, 40, 40), "b": (40, 220, 40), "c": (40, 40, 220)}
    for name in names:
        colour = colours.get(name, (90, 90, 90))
        write_video(root / f"{name}.mp4", int(LENGTH_S * 15), fps=15, colour=colour, keyframe=30)
    return plain(names)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus")
    corpus(path)
    return path


def features(root: Path, tables: Tables, scratch: Path, cfg: FeatureConfig = CONFIG, workers: int = 1) -> Shards:
    sink = Shards()
    pending = tuple(sources(tables, cfg, str(root)))
    work = Work(tables, cfg, pending, sink, Runtime(str(root), "cpu", workers, scratch))  # type: ignore[arg-type]
    STAGE.run(work)
    assert set(sink.tables) == {source.shard for source in pending}
    return sink


def whole(shards: Shards) -> pa.Table:
    return pa.concat_tables([shards.tables[name] for name in sorted(shards.tables)])


def vectors(table: pa.Table) -> np.ndarray[Any, Any]:
    return np.array(table["vector"].to_pylist(), np.float32)


def plain(names: Sequence[str] = ("a", "b", "c")) -> Tables:
    spans = [(at * 0.75, at * 0.75 + 0.7) for at in range(5)]
    return Tables([take(n) for n in names], [segment(n, at, *span) for n in names for at, span in enumerate(spans)])


def test_every_segment_gets_a_vector_and_its_frame_times(root: Path, tmp_path: Path) -> None:
    table = whole(features(root, plain(), tmp_path))
    assert table.schema.equals(features_schema(SIZES["tiny"].width))
    assert table.num_rows == 15
    assert np.isfinite(vectors(table)).all()
    times_s = np.array(table["frame_times_s"].to_pylist())
    assert times_s.shape == (15, 16)
    wanted = np.array([np.linspace(s.start_s, s.end_s - 1 / 15, 16) for s in plain().segments])
    assert np.abs(times_s - wanted).max() <= 0.5 / 15 + 1e-3
    assert len(set(table["encoder"].to_pylist())) == 1


def test_a_vector_does_not_depend_on_batch_neighbours_or_workers(root: Path, tmp_path: Path) -> None:
    """Bit-equal on one machine, whatever shares the batch and whichever decoder is faster."""
    reference = whole(features(root, plain(), tmp_path))
    for batch, workers in ((4, 2), (1, 2), (7, 1)):
        again = whole(features(root, plain(), tmp_path, CONFIG.replace(batch=batch), workers))
        assert again.equals(reference), (batch, workers)
    alone = features(root, plain(["b"]), tmp_path).tables["t:b"]
    assert alone.equals(reference.filter(pa.array([t == "t:b" for t in reference["take_id"].to_pylist()])))


def test_temporal_tokens_average_to_the_pooled_vector(root: Path, tmp_path: Path) -> None:
    pooled = vectors(whole(features(root, plain(["a"]), tmp_path)))
    table = whole(features(root, plain(["a"]), tmp_path, CONFIG.replace(tokens="temporal")))
    temporal = vectors(table)
    assert temporal.shape == (5, 8 * SIZES["tiny"].width)
    assert (table.schema.metadata or {})[b"tokens"] == b"8"
    np.testing.assert_allclose(temporal.reshape(5, 8, -1).mean(axis=1), pooled, atol=4e-3)


def test_the_last_quarter_of_a_hierarchical_vector_is_the_vector(root: Path, tmp_path: Path) -> None:
    width = SIZES["tiny"].width
    plainly = vectors(whole(features(root, plain(["a"]), tmp_path)))
    deep = vectors(whole(features(root, plain(["a"]), tmp_path, CONFIG.replace(hierarchical=True))))
    assert deep.shape == (5, 4 * width)
    np.testing.assert_allclose(deep[:, -width:], plainly, atol=2e-3)
    assert np.abs(deep[:, :width] - plainly).max() > 0.1
    both = vectors(whole(features(root, plain(["a"]), tmp_path, CONFIG.replace(hierarchical=True, tokens="temporal"))))
    np.testing.assert_allclose(both.reshape(5, 8, -1).mean(axis=1), deep, atol=4e-3)


def test_release_2_0_has_no_hierarchy(tmp_path: Path) -> None:
    encoder = VjepaEncoder(dataclasses.replace(SIZES["tiny"], release="2.0"))
    torch.save({"encoder": encoder.state_dict()}, tmp_path / "old.pt")
    cfg = CONFIG.replace(checkpoint=str(tmp_path / "old.pt"), hierarchical=True)
    with pytest.raises(CheckpointError, match=r"V-JEPA 2\.0.*hierarchical=false"):
        load_embedder(cfg, "cpu", tmp_path)


def test_the_antialiased_filter_is_another_encoder_and_nearly_the_same_vector(root: Path, tmp_path: Path) -> None:
    default = whole(features(root, plain(["a"]), tmp_path))
    other = whole(features(root, plain(["a"]), tmp_path, CONFIG.replace(resize="antialiased")))
    assert other["encoder"][0] != default["encoder"][0]
    a, b = vectors(default), vectors(other)
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert (cosine > 0.98).all()
    assert (a != b).any()


def test_the_compiled_encoder_is_asked_for_by_a_setting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recorded only: what the compiler makes of it is measured in docs/decisions/vjepa.md."""
    asked: list[str] = []
    monkeypatch.setattr(VjepaEncoder, "compile_blocks", lambda self: asked.append("compiled"))
    load_embedder(CONFIG, "cpu", tmp_path)
    assert asked == []
    load_embedder(CONFIG.replace(compile=True), "cpu", tmp_path)
    assert asked == ["compiled"]


def test_a_checkpoint_on_disk_is_the_same_door(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "own.pt"
    write_tiny_checkpoint(path, seed=7)
    cfg = CONFIG.replace(checkpoint=str(path))
    own, default = whole(features(root, plain(["a"]), tmp_path, cfg)), whole(features(root, plain(["a"]), tmp_path))
    assert own["encoder"][0] != default["encoder"][0]
    assert not np.allclose(vectors(own), vectors(default), atol=1e-2)
    assert str(path) in sources(plain(["a"]), cfg, str(root))[0].files


def test_a_shard_is_keyed_by_times_not_by_labels() -> None:
    one, moved = plain(["a"]), plain(["a"])
    relabelled = Tables(one.takes, [s.replace(label="z", label_id="z", raw_text="z") for s in one.segments])
    moved.segments[0] = moved.segments[0].replace(end_s=0.6)
    (key,), (same,), (other,) = (sources(tables, CONFIG, "") for tables in (one, relabelled, moved))
    assert key == same
    assert key != other


def test_a_take_without_segments_is_an_empty_shard(root: Path, tmp_path: Path) -> None:
    shards = features(root, Tables(plain().takes, []), tmp_path)
    assert [table.num_rows for table in shards.tables.values()] == [0, 0, 0]
    assert all(table.schema.equals(features_schema(SIZES["tiny"].width)) for table in shards.tables.values())


def test_videos_of_a_remote_corpus_are_copied_and_the_copies_removed(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    local = features(root, plain(), tmp_path)
    opened = corpus_files.open_corpus
    monkeypatch.setattr(corpus_files, "open_corpus", lambda where: dataclasses.replace(opened(where), is_local=False))
    tables = plain(["a", "b", "c", "gone"])
    remote = features(root, tables, tmp_path)
    assert remote.codes("t:gone") == [RejectCode.VIDEO_MISSING]
    assert all(remote.tables[name].equals(local.tables[name]) for name in local.tables)
    assert list((tmp_path / "videos").iterdir()) == []


def test_one_bad_video_costs_one_take(root: Path, tmp_path: Path) -> None:
    raw = (root / "a.mp4").read_bytes()
    (tmp_path / "a.mp4").write_bytes(raw)
    alone = features(root, plain(["a"]), tmp_path / "scratch").tables["t:a"]
    for content, code in (
        (None, RejectCode.VIDEO_MISSING),
        (b"no video at all", RejectCode.WRONG_TYPE),
        (raw[: len(raw) // 2], RejectCode.DECODE_FAILED),
        (b"", RejectCode.DECODE_FAILED),
    ):
        if content is not None:
            (tmp_path / "bad.mp4").write_bytes(content)
        shards = features(tmp_path, plain(["a", "bad"]), tmp_path / "scratch")
        assert shards.codes("t:bad") == [code]
        assert shards.rejects["t:bad"][0].n_units == 5
        assert shards.tables["t:a"].equals(alone), code


def test_dropped_frames_cost_the_segments_that_need_them(root: Path, tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", 60, fps=15, skip=range(25, 29), keyframe=30)
    shards = features(tmp_path, plain(["a"]), tmp_path)
    assert shards.codes("t:a") == [RejectCode.FRAME_MISMATCH]
    assert shards.rejects["t:a"][0].segment == "t:a:0002"
    assert shards.tables["t:a"].num_rows == 4
    assert features(tmp_path, plain(["a"]), tmp_path, CONFIG.replace(max_off_s=0.2)).tables["t:a"].num_rows == 5


def test_a_segment_after_the_end_of_the_video_is_rejected(root: Path, tmp_path: Path) -> None:
    tables = plain(["a"])
    tables.segments.append(segment("a", 5, 3.8, 4.6))
    shards = features(root, tables, tmp_path)
    assert shards.codes("t:a") == [RejectCode.FRAME_MISMATCH]
    assert shards.tables["t:a"].num_rows == 5


@pytest.mark.parametrize("how", ["crash", pytest.param("hang", marks=pytest.mark.slow)])
def test_a_decoder_that_dies_costs_its_take_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Planted: the child kills itself, or sleeps, after the second clip of take b."""
    act = "os.kill(os.getpid(), signal.SIGSEGV)" if how == "crash" else "time.sleep(600)"
    code = (
        "import os, signal, time; from trajpilot_core.video import child; send = child._send\n"
        "def bad(out, event, job):\n"
        "    send(out, event, job)\n"
        f"    if b_running and event.values.get('segment') == 1: {act}\n"
        "serve = child.serve\n"
        "def watch(job, out, kinds):\n"
        "    global b_running; b_running = job['path'].endswith('b.mp4'); serve(job, out, kinds)\n"
        "child._send, child.serve = bad, watch\nchild.main()"
    )
    run_jobs = isolate.run_jobs
    sabotaged = (isolate.COMMAND[0], "-P", "-c", code)
    monkeypatch.setattr(isolate, "run_jobs", lambda jobs, **how: run_jobs(jobs, **how, command=sabotaged))
    shards = features(root, plain(), tmp_path, CONFIG.replace(decode_timeout_s=8.0))
    assert shards.codes("t:b") == [RejectCode.DECODE_FAILED]
    assert ("signal 11" if how == "crash" else "silent for 8 s") in shards.rejects["t:b"][0].detail
    assert [shards.tables[name].num_rows for name in ("t:a", "t:b", "t:c")] == [5, 0, 5]


def test_a_vector_that_is_not_finite_is_rejected(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = embed.Embedder.begin

    def spoiled(self: embed.Embedder, clips: Any) -> Any:
        out = kept(self, clips)()
        out[0, 3] = np.inf
        return lambda: out

    monkeypatch.setattr(embed.Embedder, "begin", spoiled)
    shards = features(root, plain(["a"]), tmp_path, workers=1)
    assert shards.codes("t:a") == [RejectCode.FEATURE_NOT_FINITE] * 2
    assert shards.tables["t:a"].num_rows == 3
