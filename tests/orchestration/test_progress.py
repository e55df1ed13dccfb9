"""Progress of a stage: begins at nothing, moves with words, ends at a hundred or at its failure. Needs no server."""

from typing import Any

import pytest

from tasks import artifacts
from tasks.artifacts import StageProgress


class Shelf:
    """What the UI would show."""

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
