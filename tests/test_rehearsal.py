"""The rehearsal of the paper's scale (docs/scale.md), small: it runs, and what grows too fast is found."""

import dataclasses
from pathlib import Path

import pytest

from benchmarks.rehearsal.accelerator import Card, needs
from benchmarks.rehearsal.ends import one_take
from benchmarks.rehearsal.faults import Fault, Kind
from benchmarks.rehearsal.growth import broken, exponent
from benchmarks.rehearsal.runner import Measured, Place, run_part
from benchmarks.rehearsal.settings import QUERIES_PER_HORIZON, Part, narrow_text, parts_of, probe
from benchmarks.rehearsal.sizes import PAPER, Sizes
from benchmarks.rehearsal.table import derived_table, load, measured_table, save
from deployments.recipes.paper import atomic
from trajpilot_core.stages import STAGES

SMALL = PAPER.scaled(1 / 60)
RATIO = 3
"""A twentieth."""
FEW, FEW_RATIO = Sizes(takes=20, segments=1_200, labels=40), 6
MEASURED = Measured("part", "stage", 1.0, 2.0, 3 * 2**30, 2**30, 0, 10**9, 10**8, 10**7, 1000)


def run(folder: Path, part: Part, sizes: Sizes, fault: Fault | None = None) -> list[Measured]:
    folder.mkdir()
    return run_part(part, Place(folder, sizes, workers=1), fault=fault)


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(1200)
def test_a_twentieth_of_the_paper_runs_to_the_report_and_nothing_grows_too_fast(tmp_path: Path) -> None:
    """About a minute of CPU."""
    part = probe(atomic())
    small = run(tmp_path / "small", part, SMALL)
    assert [one.stage for one in small] == list(STAGES)
    found = broken(small, run(tmp_path / "takes", part, SMALL.times(takes=RATIO)), RATIO, "takes and windows")
    found += broken(small, run(tmp_path / "labels", part, SMALL.times(labels=RATIO)), RATIO, "labels")
    assert found == []


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_a_planted_square_of_time_or_memory_and_a_planted_leak_are_found(tmp_path: Path) -> None:
    part = Part("planted", ("ingest", "trajectories"), narrow_text(atomic()), "")
    small, many = run(tmp_path / "small", part, FEW), FEW.times(takes=FEW_RATIO)
    assert broken(small, run(tmp_path / "sound", part, many), FEW_RATIO, "takes") == []
    said: dict[Kind, str] = {"slow": "CPU seconds after", "large": "MiB after", "leak": "more in its process"}
    for kind, words in said.items():
        fault = Fault(stage="trajectories", kind=kind)
        (line, *more) = broken(small, run(tmp_path / kind, part, many, fault), FEW_RATIO, "takes")
        assert words in line or words in more[-1], (kind, line, more)
        assert all("planted/trajectories" in one for one in (line, *more))


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_the_recipe_of_a_laptop_is_rehearsed_as_it_stands_down_to_the_report(tmp_path: Path) -> None:
    """Some twenty takes, every setting of the recipe as it is."""
    from deployments.recipes.paper import laptop

    store, whole = parts_of(laptop())
    assert whole.config == laptop().replace(report=laptop().report.replace(frames=False))
    place = Place(tmp_path, FEW, workers=1)
    found = [one.stage for part in (store, whole) for one in run_part(part, place)]
    assert found == list(STAGES)


@pytest.mark.slow
def test_a_single_take_is_refused_by_name(tmp_path: Path) -> None:
    assert "1 training takes cannot be dealt out to 2 parts" in one_take(tmp_path, lambda line: None)


def test_growth_is_an_exponent_and_a_stage_may_take_what_its_size_allows() -> None:
    assert exponent(2.0, 18.0, 3) == pytest.approx(2)
    twice = dataclasses.replace(MEASURED, cpu_s=2.0, peak_bytes=5 * 2**30, rows=2000)
    assert broken([MEASURED], [twice], 2, "takes") == []
    square = dataclasses.replace(MEASURED, cpu_s=9.0, peak_bytes=9 * 2**30, left_bytes=2**30)
    assert len(broken([MEASURED], [square], 2, "takes")) == 3


def test_every_stage_runs_in_a_part_with_all_horizons_and_the_real_candidates() -> None:
    parts = {part.name: part for part in parts_of(atomic())}
    assert {stage for part in parts.values() for stage in part.stages} == set(STAGES)
    scorer = parts["scorer"].config.scorer
    horizons = range(3, 9)
    windows = {h: PAPER.segments - (h - 1) * PAPER.takes for h in horizons}
    assert scorer.max_queries * min(windows.values()) / sum(windows.values()) > QUERIES_PER_HORIZON
    assert (scorer.candidates, scorer.prefetch) == (64, 96)
    assert parts["alignment"].config.alignment.width == atomic().alignment.width


def test_what_a_gpu_would_take_is_derived_for_every_part_that_computes() -> None:
    found = {need.part: need for need in needs(atomic(), PAPER)}
    assert list(found) == [
        "alignment",
        "predictor",
        "queries",
        "scorer",
        "Scorer+",
        "neighbours",
        "attention",
        "evaluation",
    ]
    assert found["predictor"].operations == pytest.approx(6.6e18, rel=0.1)  # 39 trainings of 81 M parameters
    half, whole = Card(100, 50, 0.5, 80), Card(100, 50, 1.0, 80)
    assert half.hours(found["predictor"]) == pytest.approx(2 * whole.hours(found["predictor"]))
    assert "**no**" in derived_table(list(found.values()), Card(100, 50, 0.5, 8))


def test_figures_are_read_back_and_shown_with_their_growth(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    save(path, "atomic", FEW, [MEASURED], [], Card(1, 1, 1, 1))
    sizes, measured = load(path)
    assert (sizes, measured) == (FEW, [MEASURED])
    larger = dataclasses.replace(MEASURED, cpu_s=4.0)
    assert "time ^2.0, memory ^0.0" in measured_table([larger], measured, 2)
