"""The stage `features`: a vector for every segment, whatever its batch, or a reject that says why not."""

import dataclasses
import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from planning_world import Memory
from trajectory_fixture import segment
from video_fixture import needs_decord, write_video

from schemas.annotation import Segment, Take, features_schema
from schemas.arrow import table_of
from schemas.config import FeatureConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.encoders.video.tiny import write_tiny_checkpoint
from trajpilot_core.encoders.video.vjepa import SIZES
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.stages import features as stage
from trajpilot_core.stages.features import STAGE, Embedder, sources
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.video import isolate

CONFIG = FeatureConfig(model="tiny", size_px=64, batch=4, precision="fp32", resize="swscale", decode_timeout_s=60)
LENGTH_S = 4.0


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
    unknown = ("participant", "trajectory", "timesync", "calibration", "timesync_start", "timesync_end")
    known = {"take_id": f"t:{name}", "corpus": "t", "name": name, "split": "train", "scenario": "s", "capture": name}
    clock = {"duration_s": LENGTH_S, "fps": fps, "n_frames": int(LENGTH_S * fps)}
    return Take.model_validate({**dict.fromkeys(unknown), **known, **clock, "video": f"{name}.mp4", "camera": "c"})


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three short takes, each of another colour."""
    path = tmp_path_factory.mktemp("corpus")
    for name, colour in {"a": (220, 40, 40), "b": (40, 220, 40), "c": (40, 40, 220)}.items():
        write_video(path / f"{name}.mp4", int(LENGTH_S * 15), fps=15, colour=colour, keyframe=30)
    return path


def features(
    root: Path, tables: Memory, scratch: Path, cfg: FeatureConfig = CONFIG, workers: int = 1, sink: Shards | None = None
) -> Shards:
    sink = Shards() if sink is None else sink
    pending = tuple(sources(tables, cfg, str(root)))
    work = Work(tables, cfg, pending, sink, Runtime(str(root), "cpu", workers, scratch))  # type: ignore[arg-type]
    STAGE.run(work)
    assert set(sink.tables) == {source.shard for source in pending}
    return sink


def whole(shards: Shards) -> pa.Table:
    return pa.concat_tables([shards.tables[name] for name in sorted(shards.tables)])


def vectors(table: pa.Table) -> np.ndarray[Any, Any]:
    return np.array(table["vector"].to_pylist(), np.float32)


def steps(names: Sequence[str] = ("a", "b", "c")) -> list[Segment]:
    return [segment(take(name), at, at * 0.75, at * 0.75 + 0.7) for name in names for at in range(5)]


def plain(names: Sequence[str] = ("a", "b", "c"), segments: Sequence[Segment] | None = None) -> Memory:
    return tables_of([take(name) for name in names], steps(names) if segments is None else segments)


def tables_of(takes: Sequence[Take], segments: Sequence[Segment]) -> Memory:
    return Memory({"takes": table_of(Take, takes), "segments": table_of(Segment, segments)})


@pytest.fixture(scope="module")
def reference(root: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The features of all takes, under the plain settings."""
    return whole(features(root, plain(), tmp_path_factory.mktemp("reference")))


def of_take(table: pa.Table, name: str) -> pa.Table:
    return table.filter(pc.equal(table["take_id"], f"t:{name}"))


def of_a(root: Path, scratch: Path, **changes: object) -> pa.Table:
    return whole(features(root, plain(["a"]), scratch, CONFIG.replace(**changes)))


def test_every_segment_gets_a_vector_and_its_frame_times(reference: pa.Table) -> None:
    table = reference
    assert table.schema.equals(features_schema(SIZES["tiny"].width))
    assert table.num_rows == 15
    assert np.isfinite(vectors(table)).all()
    times_s = np.array(table["frame_times_s"].to_pylist())
    assert times_s.shape == (15, 16)
    wanted = np.array([np.linspace(s.start_s, s.end_s - 1 / 15, 16) for s in steps()])
    assert np.abs(times_s - wanted).max() <= 0.5 / 15 + 1e-3
    assert len(set(table["encoder"].to_pylist())) == 1


def test_a_vector_does_not_depend_on_batch_neighbours_or_workers(
    root: Path, reference: pa.Table, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """Bit-equal on one machine, whatever shares the batch and whichever decoder is faster."""
    assert whole(features(root, plain(), tmp_path, CONFIG.replace(batch=1), workers=2)).equals(reference)
    request.getfixturevalue("decoded_here")
    assert whole(features(root, plain(), tmp_path, CONFIG.replace(batch=7))).equals(reference)
    assert features(root, plain(["b"]), tmp_path).tables["t:b"].equals(of_take(reference, "b"))


@pytest.mark.usefixtures("decoded_here")
def test_temporal_tokens_average_to_the_pooled_vector(root: Path, reference: pa.Table, tmp_path: Path) -> None:
    width, pooled = SIZES["tiny"].width, vectors(of_take(reference, "a"))
    table = of_a(root, tmp_path, tokens="temporal")
    assert (table.schema.metadata or {})[b"tokens"] == b"8"
    np.testing.assert_allclose(vectors(table).reshape(5, 8, width).mean(axis=1), pooled, atol=4e-3)


@needs_decord
def test_decord_is_another_encoder_with_the_same_vectors(root: Path, tmp_path: Path) -> None:
    """In decoder processes, under their limit of memory."""
    by = {
        name: features(root, plain(["a"]), tmp_path, CONFIG.replace(backend=name, resize="antialiased"))
        for name in ("pyav", "decord")
    }
    one, two = (by[name].tables["t:a"] for name in ("pyav", "decord"))
    np.testing.assert_array_equal(vectors(one), vectors(two))
    assert one["encoder"][0] != two["encoder"][0]


@pytest.mark.usefixtures("decoded_here")
def test_the_antialiased_filter_and_a_checkpoint_on_disk_are_other_encoders(
    root: Path, reference: pa.Table, tmp_path: Path
) -> None:
    """That filter gives nearly the same vector."""
    path, default = str(tmp_path / "own.pt"), of_take(reference, "a")
    write_tiny_checkpoint(Path(path), seed=7)
    other, own = of_a(root, tmp_path, resize="antialiased"), of_a(root, tmp_path, checkpoint=path)
    assert len({table["encoder"][0].as_py() for table in (default, other, own)}) == 3
    a, b = vectors(default), vectors(other)
    cosine = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    assert (cosine > 0.98).all()
    assert (a != b).any()
    assert not np.allclose(vectors(own), a, atol=1e-2)
    assert path in sources(plain(["a"]), CONFIG.replace(checkpoint=path), str(root))[0].files


def test_a_shard_is_keyed_by_times_not_by_labels_and_a_take_without_segments_is_an_empty_one(
    root: Path, tmp_path: Path
) -> None:
    first, *rest = own = steps(["a"])
    changed = (own, [s.replace(label="z", label_id="z", raw_text="z") for s in own], [first.replace(end_s=0.6), *rest])
    (key,), (same,), (other,) = (sources(plain(["a"], segments), CONFIG, "") for segments in changed)
    assert key == same != other
    shards = features(root, plain(segments=[]), tmp_path)
    assert [table.num_rows for table in shards.tables.values()] == [0, 0, 0]
    assert all(table.schema.equals(features_schema(SIZES["tiny"].width)) for table in shards.tables.values())


@pytest.mark.usefixtures("decoded_here")
def test_videos_of_a_remote_corpus_are_copied_and_the_copies_removed(
    root: Path, reference: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage, "open_corpus", lambda where: dataclasses.replace(open_corpus(where), is_local=False))
    remote = features(root, plain(["a", "b", "c", "gone"]), tmp_path)
    assert remote.codes("t:gone") == [RejectCode.VIDEO_MISSING]
    assert all(remote.tables[f"t:{name}"].equals(of_take(reference, name)) for name in "abc")
    assert list((tmp_path / "videos").iterdir()) == []


@pytest.mark.usefixtures("decoded_here")
def test_one_bad_video_costs_one_take(root: Path, reference: pa.Table, tmp_path: Path) -> None:
    raw = (root / "a.mp4").read_bytes()
    files = {"a": raw, "text": b"no video at all", "half": raw[: len(raw) // 2], "empty": b""}
    for name, content in files.items():
        (tmp_path / f"{name}.mp4").write_bytes(content)
    shards = features(tmp_path, plain(["a", "absent", "text", "half", "empty"]), tmp_path / "scratch")
    for name, code in (
        ("absent", RejectCode.VIDEO_MISSING),
        ("text", RejectCode.WRONG_TYPE),
        ("half", RejectCode.DECODE_FAILED),
        ("empty", RejectCode.DECODE_FAILED),
    ):
        assert [(one.code, one.n_units) for one in shards.rejects[f"t:{name}"]] == [(code, 5)], name
    assert shards.tables["t:a"].equals(of_take(reference, "a"))


@pytest.mark.usefixtures("decoded_here")
def test_dropped_frames_and_the_end_of_the_video_cost_the_segments_that_need_more(tmp_path: Path) -> None:
    write_video(tmp_path / "a.mp4", 60, fps=15, skip=range(25, 29), keyframe=30)
    late = segment(take("a"), 5, 3.8, 4.6)
    shards = features(tmp_path, plain(["a"], [*steps(["a"]), late]), tmp_path)
    assert [(one.code, one.segment) for one in shards.rejects["t:a"]] == [
        (RejectCode.FRAME_MISMATCH, "t:a:0002"),
        (RejectCode.FRAME_MISMATCH, "t:a:0005"),
    ]
    assert shards.tables["t:a"].num_rows == 4
    assert features(tmp_path, plain(["a"]), tmp_path, CONFIG.replace(max_off_s=0.2)).tables["t:a"].num_rows == 5


@pytest.mark.parametrize("how", ["crash", pytest.param("hang", marks=pytest.mark.slow)])
def test_a_decoder_that_dies_costs_its_take_only(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Planted: the child kills itself, or sleeps, after the second clip of take b."""
    act = "os.kill(os.getpid(), signal.SIGSEGV)" if how == "crash" else "time.sleep(600)"
    code = (
        "import os, signal, time; from trajpilot_core.video import child; send = child._send\n"
        "def bad(pipe, event, job):\n"
        "    send(pipe, event, job)\n"
        f"    if b_running and event.values.get('segment') == 1: {act}\n"
        "serve = child.serve\n"
        "def watch(job, pipe, kinds):\n"
        "    global b_running; b_running = job['path'].endswith('b.mp4'); serve(job, pipe, kinds)\n"
        "child._send, child.serve = bad, watch\nchild.main()"
    )
    run_jobs = isolate.run_jobs
    sabotaged = (isolate.COMMAND[0], "-P", "-c", code)
    monkeypatch.setattr(isolate, "run_jobs", lambda jobs, **how: run_jobs(jobs, **how, command=sabotaged))
    shards = features(root, plain(), tmp_path, CONFIG.replace(decode_timeout_s=20.0))
    assert shards.codes("t:b") == [RejectCode.DECODE_FAILED]
    assert ("signal 11" if how == "crash" else "silent for 20 s") in shards.rejects["t:b"][0].detail
    assert [shards.tables[name].num_rows for name in ("t:a", "t:b", "t:c")] == [5, 0, 5]


@pytest.mark.usefixtures("decoded_here")
def test_a_vector_that_is_not_finite_is_rejected(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Embedder.embed

    def spoiled(self: Embedder, clips: Any) -> Any:
        out = kept(self, clips)
        out[0, 3] = np.inf
        return out

    monkeypatch.setattr(Embedder, "embed", spoiled)
    shards = features(root, plain(["a"]), tmp_path, workers=1)
    assert shards.codes("t:a") == [RejectCode.FEATURE_NOT_FINITE] * 2
    assert shards.tables["t:a"].num_rows == 3


@pytest.mark.usefixtures("decoded_here")
def test_an_interruption_commits_no_take_with_a_clip_on_its_way(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: the second batch, which ends take a and begins take b, is interrupted; or the one after it."""
    kept = Embedder.embed
    for batches, committed in ((1, {}), (2, {"t:a": 5})):
        count = itertools.count()

        def interrupted(self: Embedder, clips: Any, batches: int = batches, count: Any = count) -> Any:
            if next(count) == batches:
                raise KeyboardInterrupt
            return kept(self, clips)

        monkeypatch.setattr(Embedder, "embed", interrupted)
        sink = Shards()
        with pytest.raises(KeyboardInterrupt):
            features(root, plain(), tmp_path, sink=sink)
        assert {name: table.num_rows for name, table in sink.tables.items()} == committed
