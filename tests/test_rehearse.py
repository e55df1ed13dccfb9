"""The rehearsal of the paper's scale (docs/scale.md), small: every stage runs, and what fails is named."""

import dataclasses
import json
import sys
from pathlib import Path

import pytest

from benchmarks import rehearse
from benchmarks.rehearse import PAPER, SAMPLED, Measured, Sizes, StageFailed, run_stage, table, ways_of, wide_text
from deployments.recipes.paper import atomic, laptop
from trajpilot_core.stages import STAGES, stages_of

FEW = Sizes(takes=20, segments=1_200, labels=40)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(3600)
def test_a_hundredth_of_the_paper_runs_to_the_report_and_its_figures_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figures = tmp_path / "figures.json"
    words = ["--share", "0.01", "--folder", str(tmp_path / "store"), "--json", str(figures), "--workers", "1"]
    monkeypatch.setattr(sys, "argv", ["rehearse", *words])
    rehearse.main()
    found = json.loads(figures.read_text())
    assert {one["stage"] for one in found["measured"]} == set(STAGES)
    assert found["sizes"]["segments"] == round(0.01 * PAPER.segments)
    assert all(one["peak_bytes"] > 2**24 for one in found["measured"])
    rows = {(one["way"], one["stage"]): one["rows"] for one in found["measured"]}
    assert rows["store", "ingest"] == rows["store", "features"] == found["sizes"]["segments"]
    assert "| narrow | evaluation |" in capsys.readouterr().out


def test_every_stage_runs_in_a_way_and_the_whole_has_the_recipe_s_own_settings() -> None:
    ways = ways_of(atomic())
    assert {stage for _, stages in ways.values() for stage in stages} == set(STAGES)
    assert ways["store"][1] == list(SAMPLED)
    config = wide_text(atomic())
    assert config.scorer.candidates == 64
    assert config.alignment.width == atomic().alignment.width
    trains = (config.alignment.train, config.predictor.train, config.scorer.train)
    assert [(train.epochs, train.patience) for train in trains] == [(1, None)] * 3
    assert len(config.alignment.seeds) == config.alignment.folds == 1
    config = laptop()
    ways = ways_of(config, whole=True)
    stages = [stage for _, part in ways.values() for stage in part]
    assert stages == list(stages_of(config))
    assert ways["store"][1] == list(SAMPLED)
    assert {settings.replace(report=config.report) for settings, _ in ways.values()} == {config}


@pytest.mark.slow
def test_a_stage_is_sampled_in_a_process_of_its_own_and_one_that_fails_is_named(tmp_path: Path) -> None:
    config = wide_text(atomic())
    found = run_stage("store", "ingest", config, tmp_path / "root", FEW, workers=1)
    assert (found.way, found.stage, found.rows) == ("store", "ingest", FEW.segments)
    assert found.peak_bytes > 2**24
    with pytest.raises(StageFailed, match=r"(?s)^wide/alignment ended with 1: .*run trajectories first"):
        run_stage("wide", "alignment", config, tmp_path / "root", FEW, workers=1)


def test_sizes_are_scaled_together_and_the_table_has_a_row_a_stage() -> None:
    half = dataclasses.replace(PAPER, dev_share=0.5).scaled(0.1)
    assert half == Sizes(takes=255, segments=15_184, labels=847, dev_share=0.5)
    line = table([Measured("wide", "alignment", 1.0, 1234.5, 3 * 2**30, 2 * 10**9, 1000)]).splitlines()[-1]
    assert line == "| wide | alignment | 1.0 | 1,234.5 | 3.00 | 2.00 | 1,000 |"
