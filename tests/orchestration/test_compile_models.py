"""The setting reaches what runs inside the task of a stage, and ends with it."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.runtime import COMPILES


@pytest.mark.parametrize("asked", [True, False])
def test_a_stage_runs_with_what_its_run_asks_for(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.stage as shell

    seen: list[bool] = []

    def execute(*_: Any) -> Any:
        seen.append(COMPILES.get())
        return SimpleNamespace(cached=False, message=lambda: "", ref=None)

    monkeypatch.setattr(shell, "execute", execute)
    monkeypatch.setattr(shell, "StageProgress", lambda name: nullcontext(SimpleNamespace(ended="")))
    for name in ("publish_outcome", "show_pictures", "fan_out"):
        monkeypatch.setattr(shell, name, lambda *_: None)
    shell.run_stage.fn("alignment", PipelineConfig(), RunOptions(compile_models=asked))
    assert seen == [asked]
    assert COMPILES.get() is False


@pytest.mark.parametrize("asked", [True, False])
def test_a_group_of_trainings_runs_with_it_too(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.stage as shell

    seen: list[bool] = []

    def compute(*_: Any) -> Any:
        seen.append(COMPILES.get())
        return SimpleNamespace(computed=1, message=lambda: "", seconds=0.0)

    monkeypatch.setattr(shell, "compute_group", compute)
    monkeypatch.setattr(shell, "StageProgress", lambda name: nullcontext())
    monkeypatch.setattr(shell, "log_line", lambda *_: None)
    shell.run_group.fn(PipelineConfig(), RunOptions(compile_models=asked), SimpleNamespace(stage="alignment"))
    assert seen == [asked]
    assert COMPILES.get() is False
