"""Where a corpus may lie: the real recording, folders behind links, an s3 prefix."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from checkout import DATA
from egoexo_fixture import SMALL, annotate, describe, healthy, ingest, list_sources, steps, write_json

SAMPLE = DATA / "aria_mps_sample"


def test_the_real_recording_is_ingested(tmp_path: Path) -> None:
    for name in ("takes", "captures", "takes.json"):
        (tmp_path / name).symlink_to(SAMPLE / name)
    uid = "00000000-0000-5000-8000-000000000001"
    given = [describe(f"C walks past place {i}.", 1.0 + 2 * i) for i in range(6)]
    write_json(tmp_path / "annotations/splits.json", {"take_uid_to_split": {uid: "val"}})
    write_json(tmp_path / "annotations/atomic_descriptions_val.json", {"annotations": {uid: [annotate(given)]}})
    sink = ingest(tmp_path)
    (take,) = sink.rows("takes")
    assert (take["n_frames"], take["fps"], take["camera"]) == (340, 30.0, "aria01_214-1")
    assert take["duration_s"] == pytest.approx(340 / 30)
    assert (take["timesync_start"], take["timesync_end"]) == (4, 345)
    assert None not in (take["trajectory"], take["timesync"], take["calibration"])
    spans = [(row["start_s"], row["end_s"]) for row in sink.rows("segments")]
    assert spans[:-1] == [(2.0 * i, 2.0 * i + 2) for i in range(5)]
    assert spans[-1] == (10.0, take["duration_s"])
    assert set(sink.codes()) == {"SEGMENT_CLIPPED"}, "there is no file of training, and no take that it would hold"
    assert sink.tables["windows"].num_rows == 4 + 3 + 2 + 1


def test_folders_and_files_behind_links_are_found(tmp_path: Path) -> None:
    corpus = healthy(tmp_path / "disk")
    corpus.write()
    root = tmp_path / "root"
    root.mkdir()
    for name in ("takes", "captures", "annotations", "takes.json"):
        (root / name).symlink_to(tmp_path / "disk" / name)
    video = corpus.video("train_0")
    video.rename(tmp_path / "elsewhere.mp4")
    video.symlink_to(tmp_path / "elsewhere.mp4")
    assert ingest(root).codes() == {}
    (tmp_path / "elsewhere.mp4").unlink()
    assert ingest(root).codes() == {"VIDEO_MISSING": 6}


@pytest.fixture
def s3_root(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    server = pytest.importorskip("moto.server")
    pytest.importorskip("s3fs")
    import fsspec

    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    known = {"key": "test", "secret": "test", "endpoint_url": f"http://{host}:{port}"}
    monkeypatch.setitem(fsspec.config.conf, "s3", known)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    fsspec.filesystem("s3").mkdir("corpus-bucket")
    yield "s3://corpus-bucket/egoexo"
    running.stop()


@pytest.mark.slow
def test_a_corpus_on_s3_gives_the_tables_of_a_local_one(tmp_path: Path, s3_root: str) -> None:
    import fsspec

    corpus = healthy(tmp_path)
    corpus.train["uid-train_0"] = [annotate(steps(4), "a"), annotate(steps(6), "b", rejected="1")]
    corpus.video("train_1").write_bytes(b"no video")
    root = corpus.write()
    fsspec.filesystem("s3").put(str(root), s3_root, recursive=True)
    here, there = ingest(root, SMALL), ingest(s3_root, SMALL)
    assert list_sources(root) == list_sources(s3_root)
    assert all(here.tables[name].equals(there.tables[name]) for name in here.tables)
    assert here.codes() == there.codes() == {"ANNOTATION_REJECTED": 6, "WRONG_TYPE": 6}
