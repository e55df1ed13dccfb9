"""A run of any kind is opened from Python; what such a run answers stands in predict/test_predict.py."""

from pathlib import Path

import pytest

import trajpilot_core as tp
from trajpilot_core import opened
from trajpilot_core.errors import InputError
from trajpilot_core.stages import EVERY_STAGE


def test_outputs_of_every_stage_are_looked_for_and_an_empty_root_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(opened, "current_manifests", lambda folder, stages: asked.extend(stages) or {})
    with pytest.raises(InputError, match="holds no output of any stage"):
        tp.open(tmp_path)
    assert asked == list(EVERY_STAGE)
