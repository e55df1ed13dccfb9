"""The store on an object store, a moto server on this machine: whole, and with faults planted in its answers."""

import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import fsspec
import numpy as np
import pytest
import toy_stages as toy
from egoexo_fixture import SMALL, annotate, healthy, ingest, list_sources, steps
from toy_stages import options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.errors import InputError, StoreError, StoreIOError, TrajPilotError
from trajpilot_core.stages import STAGES
from trajpilot_core.stages.features import first_there
from trajpilot_core.store import objects
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import ObjectFolder, open_folder
from trajpilot_core.store.inventory import ABSENT, digests, load_inventory
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.video.isolate import local_copies
from trajpilot_core.video.probe import probe_many

s3fs = pytest.importorskip("s3fs", reason="the s3 extra is not installed")

ERRORS = {"403": "AccessDenied", "500": "InternalError", "503": "ServiceUnavailable"}
BODIES_ONLY = ("cut", "damaged")
"""Faults of the content of an object; what else is asked passes."""
FAULTS = (*ERRORS, "reset", "silent", *BODIES_ONLY)


class FaultyStore:
    """A moto server on this machine; `fault` (one of FAULTS) meets the next `left` requests."""

    def __init__(self) -> None:
        moto, serving = pytest.importorskip("moto.server"), pytest.importorskip("werkzeug.serving")
        self.app = moto.DomainDispatcherApplication(moto.create_backend_app)
        self.fault, self.left = "", 0
        self.stopping, self.lock = threading.Event(), threading.Lock()
        self.server = serving.make_server("127.0.0.1", 0, self.answer, threaded=True)
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    @contextmanager
    def planted(self, fault: str, times: int | None = None) -> Iterator[None]:
        """Answer the next `times` requests of the block with a fault; None: all."""
        before = self.fault, self.left
        self.fault, self.left = fault, 10**9 if times is None else times
        try:
            yield
        finally:
            self.fault, self.left = before

    def strikes(self, request: dict[str, Any]) -> str:
        """Return the fault that meets a request, empty where none does."""
        is_content = request["REQUEST_METHOD"] == "GET" and "list-type" not in request["QUERY_STRING"]
        with self.lock:
            if self.left <= 0 or (self.fault in BODIES_ONLY and not is_content):
                return ""
            self.left -= 1
            return self.fault

    def answer(self, request: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request (WSGI), with the fault that meets it; the server closes the connection afterwards."""
        fault = self.strikes(request)
        if not fault:
            return self.app(request, start)
        if fault in BODIES_ONLY:
            content = b"".join(self.app(request, start))
            middle = len(content) // 2
            flipped = bytes(byte ^ 1 for byte in content[middle : middle + 1])
            return [content[:middle] + (b"" if fault == "cut" else flipped + content[middle + 1 :])]
        request["wsgi.input"].read(int(request.get("CONTENT_LENGTH") or 0))
        if fault in ERRORS:
            start(f"{fault} {ERRORS[fault]}", [("Content-Type", "application/xml")])
            content = f"<Error><Code>{ERRORS[fault]}</Code></Error>".encode()
            return [] if request["REQUEST_METHOD"] == "HEAD" else [content]
        if fault == "silent":
            self.stopping.wait()
        request["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        raise ConnectionResetError(fault)


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyStore]:
    running = FaultyStore()
    client = {"key": "test", "secret": "test", "endpoint_url": f"http://127.0.0.1:{running.server.server_port}"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fsspec.config.conf, "s3", client)
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        yield running
    running.stopping.set()
    running.server.shutdown()
    running.server.server_close()


@pytest.fixture
def bucket(server: FaultyStore, request: pytest.FixtureRequest) -> str:
    name = f"b{hashlib.sha256(request.node.name.encode()).hexdigest()[:16]}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}/root"


def on_s3(root: str, corpus: Path) -> RunOptions:
    return options(Path("x"), corpus).replace(root=root)


def test_a_corpus_on_s3_gives_the_tables_of_a_local_one(tmp_path: Path, bucket: str) -> None:
    corpus = healthy(tmp_path)
    corpus.train["uid-train_0"] = [annotate(steps(4), "a"), annotate(steps(6), "b", rejected="1")]
    corpus.video("train_1").write_bytes(b"no video")
    root = corpus.write()
    fsspec.filesystem("s3").put(str(root), bucket, recursive=True)
    here, there = ingest(root, SMALL), ingest(bucket, SMALL)
    assert list_sources(root) == list_sources(bucket)
    assert all(here.tables[name].equals(there.tables[name]) for name in here.tables)
    assert here.codes() == there.codes() == {"ANNOTATION_REJECTED": 6, "WRONG_TYPE": 6}


def test_the_same_run_on_s3_gives_the_bytes_of_a_local_one_and_damage_is_noticed(bucket: str, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    run_toys(options(tmp_path / "local", corpus))
    first, second = run_toys(on_s3(bucket, corpus)), run_toys(on_s3(bucket, corpus))
    assert first["toy_vectors"].computed == 4
    assert all(outcome.cached for outcome in second.values())
    system, prefix = s3fs.S3FileSystem(skip_instance_cache=True), bucket.removeprefix("s3://")
    names = [name for name in system.find(prefix) if not name.endswith(("run_record.json", "inventory.json"))]
    assert {name.removeprefix(f"{prefix}/"): system.cat_file(name) for name in names} == tree_bytes(tmp_path / "local")
    assert verify(bucket, repair=False) == []
    (corpus / "take1.txt").write_text("1 2")
    assert run_toys(on_s3(bucket, corpus))["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"

    folder = open_folder(bucket)
    takes = current_manifest(folder, "toy_ingest").entries["toy_takes"]
    name = f"artifacts/toy_ingest/{takes.files[0].name}"
    content = folder.read(name)
    folder.replace(name, content[:-1] + bytes([content[-1] ^ 1]))
    assert len(verify(bucket, repair=False)) == 1
    with pytest.raises(StoreError, match="is damaged"):
        run_toys(on_s3(bucket, corpus), toys_with(toy.VECTOR, version=2))


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
    assert ObjectFolder("s3://b/p", objects.Objects(system, 1.0), "b/p").create("x", b"content") is made
    assert system.pipe_file.call_count == len(answers)


def test_a_bucket_that_is_not_there_is_named(bucket: str) -> None:
    with pytest.raises(StoreError, match="cannot write s3://nobody-made-this/root/a"):
        open_folder("s3://nobody-made-this/root").replace("a", b"x")
    assert open_folder(bucket).size("nothing/here") is None
    assert open_folder(bucket).names("nothing") == []
    with pytest.raises(StoreError, match="cannot read"):
        open_folder(bucket).read("nothing")


def test_a_corpus_on_s3_is_hashed_once_and_looked_at_after(bucket: str, tmp_path: Path) -> None:
    system = s3fs.S3FileSystem(skip_instance_cache=True)
    data = bucket.replace("root", "data")
    system.pipe_file(f"{data}/a.txt", b"hello")
    inventory = load_inventory(open_folder(str(tmp_path)), data)
    found = digests(inventory, ["a.txt", "gone.txt"], workers=2)
    assert found["a.txt"].startswith("2cf24dba")
    assert found["gone.txt"] == ABSENT
    assert inventory.known("a.txt") == found["a.txt"]
    system.pipe_file(f"{data}/a.txt", b"other")
    assert inventory.known("a.txt") is None


CORPUS = "s3://campaign/corpus"
VIDEO = "takes/train_0/frame_aligned_videos/downscaled/448/aria02_214-1.mp4"
FEATURES = "features/uid-train_0.npy"


class Place(NamedTuple):
    server: FaultyStore
    folder: Path
    numbers: Path
    """The corpus of the toys, on this machine."""


@pytest.fixture(scope="module")
def place(server: FaultyStore, tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("stores")
    root = healthy(folder / "corpus", 2, 1).write()
    (root / "features").mkdir()
    np.save(root / FEATURES, np.arange(24, dtype=np.float32).reshape(6, 4))
    fsspec.filesystem("s3").mkdir("campaign")
    fsspec.filesystem("s3").put(str(root), "campaign/corpus", recursive=True)
    run_toys(on_s3("s3://campaign/done", numbers := write_corpus(folder / "numbers")))
    return Place(server, folder, numbers)


def ingest_place(place: Place) -> object:
    root = place.folder / f"ingest{time.monotonic_ns()}"
    run = RunOptions(root=str(root), data_root=CORPUS, device="cpu", workers=1)
    execute(STAGES["ingest"], PipelineConfig(ingest=SMALL), run, STAGES)
    return {name: content for name, content in tree_bytes(root).items() if name.endswith(".parquet")}


def video(place: Place) -> object:
    return probe_many([VIDEO], 1, 20.0, around=local_copies(open_corpus(CORPUS), place.folder / "scratch"))


def features(place: Place) -> object:
    return first_there(open_corpus(CORPUS), (FEATURES,))


def resume(place: Place) -> object:
    """Go on with a run of which the first stage is done."""
    run = on_s3(f"s3://campaign/resumed{time.monotonic_ns()}", place.numbers)
    with place.server.planted("", 0):
        run_toys(run, until="toy_ingest")
    return {name: outcome.ref.fingerprint for name, outcome in run_toys(run).items()}


def check(place: Place) -> object:
    found = verify("s3://campaign/done", repair=False)
    if found and not any(damage.is_sure for damage in found):  # it lists what could not be read
        raise StoreError(found[0].problem)
    return found


ALWAYS = [(None, fault) for fault in FAULTS]
EACH = [*ALWAYS, *((1, fault) for fault in FAULTS if fault != "403")]
"""How often which fault meets an operation; another try heals one that comes once."""
CAMPAIGN = pytest.mark.campaign


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("operation", "faults"),
    [
        (features, EACH),
        (video, [(None, "reset"), (1, "damaged")]),
        pytest.param(ingest_place, EACH, marks=CAMPAIGN),
        pytest.param(resume, EACH, marks=CAMPAIGN),
        pytest.param(check, ALWAYS, marks=CAMPAIGN),
    ],
)
def test_a_store_that_fails_changes_no_result_and_ends_in_a_sentence(
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
    operation: Callable[[Place], object],
    faults: list[tuple[int | None, str]],
) -> None:
    monkeypatch.setattr(objects, "WAITS_S", (0.05, 0.1, 0.2))
    expected = operation(place)
    for times, fault in faults:
        objects._require_answer.cache_clear()
        found, refusal = None, ""
        with monkeypatch.context() as patched, place.server.planted(fault, times):
            patched.setattr(objects, "ANSWER_LIMIT_S", 1.0)
            try:
                found = operation(place)
            except TrajPilotError as error:
                refusal = str(error)
        if refusal:
            assert times is None, f"{fault}: one more try heals it"
            assert "s3://campaign/" in refusal
            assert fault not in ERRORS or f"answered {fault}" in refusal
        else:
            assert found == expected, (times, fault)
            assert times == 1 or fault in BODIES_ONLY, f"{fault} meets all that is asked"
        assert list((place.folder / "scratch").rglob("*.mp4")) == []


def test_a_store_that_nobody_serves_is_named(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setitem(fsspec.config.conf, "s3", {"key": "test", "secret": "test", "endpoint_url": url})
    objects._require_answer.cache_clear()
    named = r"s3://campaign/corpus cannot be used \(Could not connect .* AWS_ENDPOINT_URL"
    with pytest.raises(InputError, match=named):
        open_corpus(CORPUS)


def test_a_copy_that_this_machine_cannot_hold_is_no_fault_of_the_store(place: Place) -> None:
    with pytest.raises(StoreIOError, match=r"this machine: No space left on device; .* free some space there"):
        open_corpus(CORPUS).fs.get_file(f"campaign/corpus/{VIDEO}", "/dev/full")
