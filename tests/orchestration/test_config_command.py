"""`trajpilot config`, `--pretrained` and `--version`: what they print, change and refuse."""

import io
import sys
from pathlib import Path

import pytest
from other_run import other_root
from typer.testing import CliRunner

from deployments.cli import run as commands
from deployments.cli.main import app, main
from deployments.recipes import RECIPES
from schemas.config import PipelineConfig
from trajpilot_core.data.other_runs import outputs_that_count
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES
from trajpilot_core.stages.report import completed

WIDE = {"COLUMNS": "200"}


def said(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments), env=WIDE)
    assert done.exit_code == 0, done.output
    return " ".join(done.output.split())


def test_show_prints_a_group_with_what_a_change_makes_stale_and_help_names_recipes_and_stages() -> None:
    assert said("--version").startswith("trajpilot 0.")
    assert all(name in said("run", "--help") for name in (*RECIPES, *STAGES))
    text = said("config", "scorer", "--recipe", "demo")
    assert "scorer.candidates" in text
    assert "16 (main experiment: 64)" in text
    assert "alignment." not in text
    assert "A change of scorer makes stale at most: scorer, evaluation, report." in text


def test_a_terminal_that_lacks_a_sign_shows_another_and_nothing_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen before: under LC_ALL=C a finished run ended with a traceback about the dagger of a row."""
    terminal = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "argv", ["trajpilot", "config", "cooking†"])
    with pytest.raises(SystemExit) as ended:
        main()
    terminal.seek(0)
    assert ended.value.code == 2
    assert "no setting starts with cooking?; the groups are" in terminal.read()


def test_all_three_settings_come_from_the_outputs_that_count_and_a_root_without_predictors_starts_nothing(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[PipelineConfig] = []
    monkeypatch.setattr(commands, "start", lambda config, *_: asked.append(config))
    line = f"run --data {tmp_path} --root {tmp_path}/new --set alignment.folds=2 --pretrained".split()
    refused = CliRunner().invoke(app, [*line, str(tmp_path)])
    assert isinstance(refused.exception, InputError)
    assert "contains no output of the stage ingest" in str(refused.exception)
    root = other_root(tmp_path_factory)
    monkeypatch.chdir(root.parent)
    result = CliRunner().invoke(app, [*line, root.name])
    assert result.exit_code == 0, result.output
    (config,) = asked
    named = (config.ingest.splits_of, config.alignment.pretrained, config.predictor.pretrained)
    assert dict(zip(("ingest", "alignment", "predictor"), named, strict=True)) == outputs_that_count(str(root))
    assert {run.place for run in named if run} == {str(root)}
    assert config.alignment.folds == 2
    report = completed(config)
    assert (report.alignment_from, report.predictor_from) == named[1:]
