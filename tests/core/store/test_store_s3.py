"""The store on an object store: a moto server on this machine, spoken to through s3fs."""

import hashlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import toy_stages as toy
from toy_stages import options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.config import RunOptions
from trajpilot_core.errors import StoreError
from trajpilot_core.store import objects
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.inventory import ABSENT, digests, load_inventory
from trajpilot_core.store.manifest import current_manifest

s3fs = pytest.importorskip("s3fs", reason="the s3 extra is not installed")


@pytest.fixture
def bucket(endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    import fsspec

    known = {"key": "test", "secret": "test", "endpoint_url": endpoint}
    monkeypatch.setitem(fsspec.config.conf, "s3", known)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    name = f"b{hashlib.sha256(request.node.name.encode()).hexdigest()[:16]}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}/root"


def on_s3(root: str, corpus: Path, **changes: object) -> RunOptions:
    return options(Path("x"), corpus, **changes).replace(root=root)


def objects_of(root: str) -> dict[str, bytes]:
    system, prefix = s3fs.S3FileSystem(skip_instance_cache=True), root.removeprefix("s3://")
    names = [name for name in system.find(prefix) if not name.endswith(("run_record.json", "inventory.json"))]
    return {name.removeprefix(prefix + "/"): system.cat_file(name) for name in names}


def test_the_same_run_on_s3_gives_the_bytes_of_a_local_one(bucket: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    run_toys(options(tmp_path / "local", corpus))
    first, second = run_toys(on_s3(bucket, corpus)), run_toys(on_s3(bucket, corpus))
    assert first["toy_vectors"].computed == 4
    assert all(outcome.cached for outcome in second.values())
    assert objects_of(bucket) == tree_bytes(tmp_path / "local")
    assert verify(bucket, repair=False) == []
    (corpus / "take1.txt").write_text("1 2")
    assert run_toys(on_s3(bucket, corpus))["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"


def test_a_conditional_put_lets_exactly_one_of_many_writers_win(bucket: str) -> None:
    with ThreadPoolExecutor(8) as writers:
        made = list(writers.map(lambda k: open_folder(bucket).create("a/manifest.json", str(k).encode()), range(8)))
    assert sum(made) == 1
    assert open_folder(bucket).read("a/manifest.json") == str(made.index(True)).encode()


class HttpError(OSError):
    """As the client raises it: the HTTP status lies in `response`."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = {"ResponseMetadata": {"HTTPStatusCode": status}}


@pytest.mark.parametrize(
    ("answers", "made"),
    [((HttpError(409), HttpError(409), {}), True), ((HttpError(409), FileExistsError()), False)],
)
def test_a_conflict_is_tried_again_and_a_failed_condition_means_somebody_was_first(monkeypatch, answers, made) -> None:
    monkeypatch.setattr(objects, "WAITS_S", (0.0, 0.0))
    system = Mock()
    system.pipe_file.side_effect = answers
    assert objects.ObjectFolder("s3://b/p", objects.Objects(system, 1.0), "b/p").create("x", b"content") is made
    assert system.pipe_file.call_count == len(answers)


def test_a_bucket_that_is_not_there_is_named(endpoint: str, bucket: str) -> None:
    with pytest.raises(StoreError, match="cannot write s3://nobody-made-this/root/a"):
        open_folder("s3://nobody-made-this/root").replace("a", b"x")
    assert open_folder(bucket).size("nothing/here") is None
    assert open_folder(bucket).names("nothing") == []
    with pytest.raises(StoreError, match="cannot read"):
        open_folder(bucket).read("nothing")


def test_a_damaged_object_is_noticed(bucket: str, tmp_path: Path) -> None:
    run_toys(on_s3(bucket, write_corpus(tmp_path / "corpus")))
    folder = open_folder(bucket)
    manifest = current_manifest(folder, "toy_ingest")
    name = f"artifacts/toy_ingest/{manifest.entries['toy_takes'].files[0].name}"
    content = folder.read(name)
    folder.replace(name, content[:-1] + bytes([content[-1] ^ 1]))
    assert len(verify(bucket, repair=False)) == 1
    with pytest.raises(StoreError, match="is damaged"):
        run_toys(on_s3(bucket, tmp_path / "corpus"), toys_with(toy.VECTOR, version=2))


def test_a_corpus_on_s3_is_hashed_once_and_looked_at_after(bucket: str, tmp_path: Path) -> None:
    system = s3fs.S3FileSystem(skip_instance_cache=True)
    data = bucket.replace("root", "data")
    system.pipe_file(f"{data}/a.txt", b"hello")
    folder = open_folder(str(tmp_path))
    inventory = load_inventory(folder, data, ("file", "s3"))
    found = digests(inventory, ["a.txt", "gone.txt"], workers=2, rehash=False)
    assert found["a.txt"].startswith("2cf24dba")
    assert found["gone.txt"] == ABSENT
    assert inventory.known("a.txt") == found["a.txt"]
    system.pipe_file(f"{data}/a.txt", b"other")
    assert inventory.known("a.txt") is None
