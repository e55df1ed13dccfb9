"""The Prefect server goes away in the middle of a run: the work goes on, and what is ours to fix still fails."""

import logging

import httpx
import pytest

from tasks import showing
from tasks.showing import shown


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
        assert "table of features is not shown in the UI: the Prefect server is away" in caplog.text


def test_what_the_server_refuses_is_an_error_of_ours() -> None:
    def publish() -> int:
        raise answer(422)

    with pytest.raises(httpx.HTTPStatusError):
        shown("table of features", publish)


def test_a_server_that_comes_back_in_time_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[object] = [httpx.ConnectError("refused"), answer(500), 7]
    monkeypatch.setattr(showing, "POLL_S", 0.01)

    def publish() -> object:
        now = answers.pop(0)
        if isinstance(now, Exception):
            raise now
        return now

    assert shown("table of features", publish, patience_s=60.0) == 7
