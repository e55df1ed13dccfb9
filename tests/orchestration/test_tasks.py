"""Shells of tasks without a server: progress, a silent server, workers of a pool, texts."""

import logging
import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from hostile import TEXTS

from tasks import artifacts
from tasks.artifacts import StageProgress, shown
from trajpilot_core.incoming import literal


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, str]]:
    """Percent and text of the progress artifact, as it was created and updated."""
    seen: list[tuple[float, str]] = []

    def update(artifact: Any, progress: float, description: str) -> None:
        seen.append((progress, description))

    monkeypatch.setattr(artifacts, "create_progress_artifact", lambda key, **shown: update(key, **shown))
    monkeypatch.setattr(artifacts, "update_progress_artifact", update)
    monkeypatch.setattr(artifacts, "UPDATE_EVERY_S", 0.0)
    return seen


def test_progress_moves_from_nothing_to_a_hundred_and_is_not_sent_more_often_than_it_is_looked_at(
    seen: list[tuple[float, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with StageProgress("features") as progress:
        for done in (3, 6, 9, 12):
            progress(done, 12, "takes")
        progress.ended = "reused 0, computed 12"
    assert [percent for percent, _ in seen] == [0, 25, 50, 75, 100, 100]
    assert (seen[2][1], seen[-1][1]) == ("**features**: 6 of 12 takes", "**features**: reused 0, computed 12")
    seen.clear()
    monkeypatch.setattr(artifacts, "UPDATE_EVERY_S", 60.0)
    with StageProgress("ingest") as progress:
        for done in range(1000):
            progress(done, 1000, "videos probed")
    assert len(seen) == 2


def test_a_stage_that_fails_keeps_its_place_and_says_why_without_markup(seen: list[tuple[float, str]]) -> None:
    def stage() -> None:
        with StageProgress("ingest") as progress:
            progress(1, 4, "videos probed")
            raise ValueError("label ![x](http://outside.example/x.png)")

    with pytest.raises(ValueError, match="label"):
        stage()
    percent, said = seen[-1]
    assert (percent, said.startswith("**ingest**: failed: ValueError: label "), "![x](" in said) == (25, True, False)


def answer(status: int) -> httpx.HTTPStatusError:
    request = httpx.Request("POST", "http://127.0.0.1/api/artifacts/")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, request=request))


def publishing(*answers: object) -> Callable[[], object]:
    """Return what the server answers to one attempt after the other, the last one for good."""
    left = list(answers)

    def publish() -> object:
        now = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(now, Exception):
            raise now
        return now

    return publish


def test_what_cannot_be_shown_is_left_out_with_a_word(caplog: pytest.LogCaptureFixture) -> None:
    """What comes again in seconds, like progress, is left out without one."""
    for error in (httpx.ConnectError("refused"), httpx.ReadTimeout("late"), answer(500), answer(503)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "trajpilot"):
            assert shown("progress of features", publishing(error)) is None
            assert caplog.messages == []
            assert shown("table of features", publishing(error), patience_s=0.01) is None
        assert "table of features is not shown in the UI: the Prefect server is unreachable" in caplog.text


def test_a_server_that_comes_back_in_time_is_told_and_what_it_refuses_is_an_error_of_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(artifacts, "POLL_S", 0.01)
    late = publishing(httpx.ConnectError("refused"), answer(500), 7)
    assert shown("table of features", late, patience_s=60.0) == 7
    with pytest.raises(httpx.HTTPStatusError):
        shown("table of features", publishing(answer(422)))


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


def test_nothing_of_a_hostile_text_is_left_that_markdown_reads_and_plain_texts_stay_as_they_are() -> None:
    assert [text for text in TEXTS if re.search(r"(?<!\\)[<&\[`*]", literal(text).removeprefix("&#"))] == []
    assert [text for text in TEXTS if "\n" in literal(f"a\n\n{text}\r\n# b")] == []
    assert {text: literal(text) for text in SHOWN} == SHOWN
