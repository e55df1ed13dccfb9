"""`trajpilot run --pretrained`: three settings from one root, filled in before anything starts."""

from pathlib import Path

import pytest
from click.testing import Result
from other_run import other_root
from typer.testing import CliRunner

from deployments.cli import run as commands
from deployments.cli.main import app
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.data.other_runs import outputs_that_count
from trajpilot_core.errors import InputError
from trajpilot_core.stages.report import completed


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[PipelineConfig]:
    """Settings of runs that would have been started."""
    found: list[PipelineConfig] = []

    def start(config: PipelineConfig, options: RunOptions, what: str, world: object) -> None:
        found.append(config)

    monkeypatch.setattr(commands, "start", start)
    return found


def invoked(root: Path, *more: str) -> Result:
    """The command `run`."""
    return CliRunner().invoke(app, ["run", "--data", str(root), "--root", str(root / "new"), *more])


def test_all_three_settings_come_from_the_outputs_that_count(
    tmp_path: Path,
    asked: list[PipelineConfig],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = other_root(tmp_path_factory)
    monkeypatch.chdir(root.parent)
    result = invoked(tmp_path, "--pretrained", root.name, "--set", "alignment.folds=2")
    assert result.exit_code == 0, result.output
    (config,) = asked
    named = (config.ingest.splits_of, config.alignment.pretrained, config.predictor.pretrained)
    assert {stage: run for stage, run in zip(("ingest", "alignment", "predictor"), named, strict=True)} == (
        outputs_that_count(str(root))
    )
    assert {run.place for run in named if run} == {str(root)}
    assert config.alignment.folds == 2
    report = completed(config)
    assert (report.alignment_from, report.predictor_from) == named[1:]


def test_a_root_without_predictors_starts_nothing(tmp_path: Path, asked: list[PipelineConfig]) -> None:
    result = invoked(tmp_path, "--pretrained", str(tmp_path))
    assert isinstance(result.exception, InputError)
    assert "contains no output of the stage ingest" in str(result.exception)
    assert not asked
