"""Shells of tasks without a server: progress, a silent server, workers of a pool, texts."""

import logging
import re
from types import SimpleNamespace
from typing import Any, cast

import httpx
import pytest
from hostile import TEXTS
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import WorkerStatus
from prefect.exceptions import ObjectNotFound

from tasks import artifacts
from tasks.artifacts import StageProgress, shown
from tasks.group_runs import workers_online
from trajpilot_core.incoming import literal


class Shelf:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[float, str]] = []
        monkeypatch.setattr(artifacts, "create_progress_artifact", self.create)
        monkeypatch.setattr(artifacts, "update_progress_artifact", self.update)
        monkeypatch.setattr(artifacts, "UPDATE_EVERY_S", 0.0)

    def create(self, progress: float, key: str, description: str) -> str:
        assert not self.seen
        self.seen.append((progress, description))
        return key

    def update(self, artifact: Any, progress: float, description: str) -> None:
        self.seen.append((progress, description))


def test_progress_moves_from_nothing_to_a_hundred_and_says_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(monkeypatch)
    with StageProgress("features") as progress:
        for done in (3, 6, 9, 12):
            progress(done, 12, "takes")
        progress.ended = "reused 0, computed 12"
    assert [percent for percent, _ in shelf.seen] == [0, 25, 50, 75, 100, 100]
    assert shelf.seen[2][1] == "**features**: 6 of 12 takes"
    assert shelf.seen[-1][1] == "**features**: reused 0, computed 12"


def test_a_stage_that_fails_keeps_its_place_and_says_why_without_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(monkeypatch)

    def stage() -> None:
        with StageProgress("ingest") as progress:
            progress(1, 4, "videos probed")
            raise ValueError("label ![x](http://outside.example/x.png)")

    with pytest.raises(ValueError, match="label"):
        stage()
    percent, said = shelf.seen[-1]
    assert percent == 25
    assert said.startswith("**ingest**: failed: ValueError: label ")
    assert "![x](" not in said


def test_progress_is_not_sent_more_often_than_it_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    shelf = Shelf(monkeypatch)
    monkeypatch.setattr(artifacts, "UPDATE_EVERY_S", 60.0)
    with StageProgress("ingest") as progress:
        for done in range(1000):
            progress(done, 1000, "videos probed")
    assert len(shelf.seen) == 2


def answer(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://127.0.0.1/api/artifacts/")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, request=request))


def test_what_cannot_be_shown_is_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """What comes again in seconds, like progress, is left out without one."""

    def raising(error: httpx.HTTPError) -> int:
        raise error

    for error in (httpx.ConnectError("refused"), httpx.ReadTimeout("late"), answer(500), answer(503)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "trajpilot"):
            assert shown("progress of features", lambda: raising(error)) is None  # noqa: B023
            assert caplog.messages == []
            assert shown("table of features", lambda: raising(error), patience_s=0.01) is None  # noqa: B023
        assert "table of features is not shown in the UI: the Prefect server is unreachable" in caplog.text


def test_what_the_server_refuses_is_an_error_of_ours() -> None:
    def publish() -> int:
        raise answer(422)

    with pytest.raises(httpx.HTTPStatusError):
        shown("table of features", publish)


def test_a_server_that_comes_back_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = [httpx.ConnectError("refused"), answer(500), 7]
    monkeypatch.setattr(artifacts, "POLL_S", 0.01)

    def publish() -> object:
        now = answers.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    assert shown("table of features", publish, patience_s=60.0) == 7


class Server:
    """Answers for one deployment, whose pool has some workers."""

    def __init__(self, *workers: WorkerStatus, pool: str | None = "gpu", fault: Exception | None = None) -> None:
        self.workers, self.pool, self.fault = workers, pool, fault

    def read_deployment_by_name(self, name: str) -> Any:
        assert name == "predictor-group/predictor-group"
        if self.fault is not None:
            raise self.fault
        return SimpleNamespace(work_pool_name=self.pool)

    def read_workers_for_work_pool(self, pool: str) -> list[Any]:
        assert pool == self.pool
        return [SimpleNamespace(status=status) for status in self.workers]


def online(server: Server) -> int:
    return workers_online(cast(SyncPrefectClient, server), "predictor-group")


def test_workers_that_went_silent_do_not_count() -> None:
    assert online(Server(WorkerStatus.ONLINE, WorkerStatus.OFFLINE, WorkerStatus.ONLINE)) == 2


def test_a_pool_of_which_nothing_is_known_has_this_worker() -> None:
    unknown = (Server(), Server(WorkerStatus.OFFLINE), Server(pool=None))
    silent = (Server(fault=ObjectNotFound(Exception("gone"))), Server(fault=httpx.ConnectError("refused")))
    assert [online(server) for server in (*unknown, *silent)] == [1] * 5


SHOWN = {
    "ingest.min_overlap 0.5 -> 0.4": "ingest.min_overlap 0.5 -> 0.4",
    "recipe soak, nothing changed; config a1": "recipe soak, nothing changed; config a1",
    "/srv/runs/report.html": "/srv/runs/report.html",
    "![x](http://h/p.png)": r"\!\[x\](http://h/p.png)",
    "_a_ b_c": r"\_a\_ b_c",
    "# title": r"\# title",
    "1. first": "&#49;. first",
    "a\nb": "a b",
}


def test_nothing_of_a_hostile_text_is_left_that_markdown_reads() -> None:
    assert [text for text in TEXTS if re.search(r"(?<!\\)[<&\[`*]", literal(text).removeprefix("&#"))] == []
    assert [text for text in TEXTS if "\n" in literal(f"a\n\n{text}\r\n# b")] == []


def test_plain_texts_stay_as_they_are_and_marks_are_escaped() -> None:
    assert {text: literal(text) for text in SHOWN} == SHOWN
