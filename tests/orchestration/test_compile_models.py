"""The setting reaches what runs inside the task of a stage or of a group, and ends with it."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.runtime import COMPILES


def test_a_stage_and_a_group_of_trainings_run_with_what_their_run_asks_for(monkeypatch: pytest.MonkeyPatch) -> None:
    import tasks.group as of_group
    import tasks.stage as of_stage

    seen: list[bool] = []

    def compute(*_: Any) -> Any:
        seen.append(COMPILES.get())
        return SimpleNamespace(cached=False, computed=1, message=lambda: "", seconds=0.0, ref=None)

    monkeypatch.setattr(of_stage, "execute", compute)
    monkeypatch.setattr(of_group, "compute_group", compute)
    monkeypatch.setattr(of_group, "log_line", lambda *_: None)
    for shell in (of_stage, of_group):
        monkeypatch.setattr(shell, "StageProgress", lambda name: nullcontext(SimpleNamespace(ended="")))
    for name in ("publish_outcome", "show_pictures", "as_state", "fan_out"):
        monkeypatch.setattr(of_stage, name, lambda *_: None)
    for asked in (True, False):
        run = RunOptions(compile_models=asked)
        of_stage.run_stage.fn("alignment", PipelineConfig(), run)
        of_group.run_group.fn(PipelineConfig(), run, SimpleNamespace(stage="alignment"))
        assert COMPILES.get() is False
    assert seen == [True, True, False, False]
