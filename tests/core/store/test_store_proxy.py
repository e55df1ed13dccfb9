"""Object stores that fail, by faults planted in a server: every run is right, or ends with a sentence."""

import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest
from egoexo_fixture import SMALL, healthy
from toy_stages import options, run_toys, tree_bytes, write_corpus

from deployments.settings import hand_over_store_limit
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.planning.plan import plan
from trajpilot_core.engine.planning.watch import listing
from trajpilot_core.errors import InputError, StoreError, StoreIOError, TrajPilotError
from trajpilot_core.runtime import answer_limit_s, hold_answer_limit, worker_pool
from trajpilot_core.stages import STAGES
from trajpilot_core.stages.features import first_there
from trajpilot_core.store import objects
from trajpilot_core.store.corpus_files import open_corpus
from trajpilot_core.store.damage import verify
from trajpilot_core.video.isolate import local_copies
from trajpilot_core.video.probe import probe_many

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
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    @contextmanager
    def planted(self, fault: str, times: int | None = None) -> Iterator[None]:
        """Answer the next `times` requests of the block with a fault; None: all."""
        self.fault, self.left = fault, 10**9 if times is None else times
        try:
            yield
        finally:
            self.left = 0

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Let everything pass for the block."""
        kept, self.left = self.left, 0
        yield
        self.left = kept

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

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self.server.shutdown()
        self.server.server_close()


pytest.importorskip("s3fs", reason="the s3 extra is not installed")

CONFIG = PipelineConfig(ingest=SMALL)
VIDEO = "takes/train_0/frame_aligned_videos/downscaled/448/aria02_214-1.mp4"
FEATURES = "features/uid-train_0.npy"


@dataclass
class Place:
    bucket: str
    server: FaultyStore
    folder: Path
    numbers: Path
    """The corpus of the toys, on this machine."""
    known: dict[str, object] = field(default_factory=dict)

    def undisturbed(self, operation: str) -> object:
        """Return what an operation returns where nothing fails."""
        if operation not in self.known:
            self.known[operation] = OPERATIONS[operation](self)
        return self.known[operation]

    @property
    def corpus(self) -> str:
        return f"{self.bucket}/corpus"

    def run(self, root: str) -> RunOptions:
        return RunOptions(root=root, data_root=self.corpus, device="cpu", workers=1)


def ingest(place: Place) -> object:
    root = place.folder / f"ingest{time.monotonic_ns()}"
    execute(STAGES["ingest"], CONFIG, place.run(str(root)), STAGES)
    return {name: content for name, content in tree_bytes(root).items() if name.endswith(".parquet")}


def video(place: Place) -> object:
    copies = local_copies(open_corpus(place.corpus), place.folder / "scratch")
    return probe_many([VIDEO], 1, 20.0, around=copies)


def features(place: Place) -> object:
    return first_there(open_corpus(place.corpus), (FEATURES,))


def status(place: Place) -> object:
    root = place.folder / "ingested"
    if not root.exists():
        execute(STAGES["ingest"], CONFIG, place.run(str(root)), STAGES)
    (row,) = plan({"ingest": STAGES["ingest"]}, CONFIG, place.run(str(root)))
    if "cannot " in row.why:  # a plan states in a row why it does not know
        raise StoreError(row.why)
    return row.state, row.why


def watch(place: Place) -> object:
    return listing(place.run(str(place.folder / "ingested")))


def resume(place: Place) -> object:
    """Go on with a run of which the first stage is done."""
    root = f"{place.bucket}/resumed{time.monotonic_ns()}"
    with place.server.at_rest():
        run_toys(options(Path("x"), place.numbers).replace(root=root), until="toy_ingest")
    done = run_toys(options(Path("x"), place.numbers).replace(root=root))
    return {name: outcome.ref.fingerprint for name, outcome in done.items()}


def check(place: Place) -> object:
    root = f"{place.bucket}/done"
    if "check" not in place.known:
        run_toys(options(Path("x"), place.numbers).replace(root=root))
    found = verify(root, repair=False)
    if found and not any(damage.is_sure for damage in found):  # it lists what could not be read
        raise StoreError(found[0].problem)
    return found


OPERATIONS: dict[str, Callable[[Place], object]] = {
    name.__name__: name for name in (ingest, video, features, status, watch, resume, check)
}


@contextmanager
def short_limit(seconds: float) -> Iterator[None]:
    before = answer_limit_s()
    hold_answer_limit(seconds)
    yield
    hold_answer_limit(before)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    import fsspec

    folder = tmp_path_factory.mktemp("stores")
    with FaultyStore() as server, pytest.MonkeyPatch.context() as patch, short_limit(1.0):
        patch.setattr(objects, "WAITS_S", (0.05, 0.1, 0.2))
        patch.setitem(fsspec.config.conf, "s3", {"key": "test", "secret": "test", "endpoint_url": server.url})
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        root = healthy(folder / "corpus", 2, 1).write()
        (root / "features").mkdir()
        np.save(root / FEATURES, np.arange(24, dtype=np.float32).reshape(6, 4))
        system = fsspec.filesystem("s3")
        system.mkdir("campaign")
        system.put(str(root), "campaign/corpus", recursive=True)
        yield Place("s3://campaign", server, folder, write_corpus(folder / "numbers"))


ONCE = [fault for fault in FAULTS if fault != "403"]
"""Faults that another try heals."""
QUICK = {
    "features": [*((None, fault) for fault in FAULTS), *((1, fault) for fault in ONCE)],
    "video": [(None, "reset"), (1, "damaged")],
}
"""Operation -> how often which fault meets it, where that takes seconds."""
ALL = {
    name: [(None, fault) for fault in FAULTS]
    + [(1, fault) for fault in ONCE if name in ("ingest", "video", "features", "resume")]
    for name in OPERATIONS
}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("operation", "faults"),
    [*QUICK.items(), *(pytest.param(*case, marks=pytest.mark.campaign) for case in ALL.items())],
    ids=[*QUICK, *(f"{name}, every fault" for name in ALL)],
)
def test_a_store_that_fails_changes_no_result_and_ends_in_a_sentence(
    place: Place, operation: str, faults: list[tuple[int | None, str]]
) -> None:
    expected = place.undisturbed(operation)
    for times, fault in faults:
        objects._require_answer.cache_clear()
        found, refusal = None, ""
        with place.server.planted(fault, times):
            try:
                found = OPERATIONS[operation](place)
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
    import fsspec

    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    monkeypatch.setitem(fsspec.config.conf, "s3", {"key": "test", "secret": "test", "endpoint_url": url})
    with pytest.raises(
        InputError, match=r"s3://campaign/corpus cannot be used \(Could not connect .* AWS_ENDPOINT_URL"
    ):
        open_corpus(place.corpus)


def test_a_copy_that_this_machine_cannot_hold_is_no_fault_of_the_store(place: Place) -> None:
    with pytest.raises(StoreIOError, match=r"this machine: No space left on device; .* free some space there"):
        open_corpus(place.corpus).fs.get_file(f"campaign/corpus/{VIDEO}", "/dev/full")


def test_the_time_limit_of_a_store_is_a_setting_that_workers_inherit(monkeypatch: pytest.MonkeyPatch) -> None:
    with short_limit(30.0):
        monkeypatch.setenv("TRAJPILOT_STORE_TIMEOUT_S", "7.5")
        hand_over_store_limit()
        with worker_pool(1) as pool:
            assert pool.submit(answer_limit_s).result() == answer_limit_s() == 7.5
        for wrong in ("soon", "0", "-1", "nan", "inf"):
            monkeypatch.setenv("TRAJPILOT_STORE_TIMEOUT_S", wrong)
            with pytest.raises(InputError, match=f"TRAJPILOT_STORE_TIMEOUT_S is '{wrong}'; set a number of seconds"):
                hand_over_store_limit()
