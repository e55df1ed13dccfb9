"""The rehearsal of the paper's scale (docs/scale.md), small: it runs, and what grows too fast is found."""

import dataclasses
from pathlib import Path

import pytest
import torch

from benchmarks.rehearsal.accelerator import Card, needs
from benchmarks.rehearsal.ends import one_take
from benchmarks.rehearsal.faults import Fault, Kind
from benchmarks.rehearsal.growth import broken, exponent
from benchmarks.rehearsal.laptop import (
    CUT,
    UP_TO_TRAINED,
    at_most_hours,
    hours_table,
    of_epochs,
    queries,
    trainings,
)
from benchmarks.rehearsal.latents import of_latents, operations, product
from benchmarks.rehearsal.runner import Measured, Place, run_part
from benchmarks.rehearsal.settings import QUERIES_PER_HORIZON, Part, narrow_text, parts_of, probe
from benchmarks.rehearsal.sizes import PAPER, Sizes
from benchmarks.rehearsal.table import derived_table, load, measured_table, save
from deployments.recipes.paper import atomic, atomic_latent
from trajpilot_core.stages import STAGES, stages_of

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


def test_few_epochs_of_a_laptop_give_the_hours_that_its_trainings_take_at_most() -> None:
    from deployments.recipes.paper import laptop

    recipe = laptop()
    store, few = of_epochs(parts_of(recipe), 1)
    assert (store.stages, few.stages) == (("ingest", "trajectories", "features"), UP_TO_TRAINED)
    assert few.config.scorer == recipe.scorer
    for name in CUT:
        train, own = getattr(few.config, name).train, getattr(recipe, name).train
        assert train == own.replace(epochs=1, patience=None)
    assert trainings(recipe) == {"alignment": 1, "predictor": 3, "scorer": 1}
    spent = {"alignment": 36.0, "predictor": 3 * 36.0, "scorer": 36.0}
    seen = [dataclasses.replace(MEASURED, stage=name, cpu_s=cpu_s) for name, cpu_s in spent.items()]
    hours = at_most_hours(seen, recipe, epochs=1, share=0.5)
    assert hours == pytest.approx(
        {
            "alignment": 0.02 * recipe.alignment.train.epochs,
            "predictor": 0.02 * 2 * recipe.predictor.train.epochs,  # three models on two cores: two rounds
            "scorer": 0.01 * queries(recipe, 1.0) / queries(recipe, 0.5),
        }
    )
    most = recipe.replace(scorer=recipe.scorer.replace(max_queries=65_536))
    assert queries(most, 1.0) == pytest.approx(107_225, rel=0.01)  # as the rehearsal of `atomic` counts them
    assert f"at most {sum(hours.values()):.2f} hours" in hours_table(hours, recipe)
    assert dataclasses.replace(PAPER, dev_share=0.5).scaled(0.1).times(takes=2).dev_share == 0.5


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
        "evaluation",
    ]
    assert found["predictor"].operations == pytest.approx(6.6e18, rel=0.1)  # 39 trainings of 81 M parameters
    half, whole = Card(100, 50, 0.5, 80), Card(100, 50, 1.0, 80)
    assert half.hours(found["predictor"]) == pytest.approx(2 * whole.hours(found["predictor"]))
    assert "**no**" in derived_table(list(found.values()), Card(100, 50, 0.5, 8))


def test_planning_in_latents_is_a_part_where_a_recipe_asks_for_it() -> None:
    asked = {part.name: part for part in parts_of(atomic_latent())}
    assert "latent" not in {part.name for part in parts_of(atomic())}
    assert {stage for part in asked.values() for stage in part.stages} == set(stages_of(atomic_latent()))
    names = [part.name for part in parts_of(atomic_latent()) if part.way == "narrow"]
    assert names.index("narrow") < names.index("latent") < names.index("evaluation")
    assert all(part.config.latent == asked["latent"].config.latent for part in asked.values() if part.way == "narrow")
    assert "latent" not in narrow_text(atomic()).content()


@pytest.mark.slow
@pytest.mark.campaign
@pytest.mark.timeout(600)
def test_planning_in_latents_runs_on_some_twenty_takes(tmp_path: Path) -> None:
    parts = {part.name: part for part in parts_of(atomic_latent())}
    place = Place(tmp_path, FEW, workers=1)
    made = parts["narrow"]._replace(stages=("text_bank", "alignment"))
    found = [one for part in (parts["store"], made, parts["latent"]) for one in run_part(part, place)]
    assert [one.stage for one in found[-2:]] == ["latent", "latent_plans"]
    assert all(one.rows > 0 and one.cpu_s > 0 for one in found[-2:])


def test_what_a_gpu_would_take_to_plan_in_latents_is_derived() -> None:
    assert of_latents(atomic(), PAPER) == []
    config = atomic_latent()
    ingest, search = config.ingest.replace(max_horizon=3), config.latent.search
    few = config.replace(ingest=ingest, latent=config.latent.replace(search=search.replace(samples=8, elites=2)))
    trained, planned = of_latents(few, PAPER)
    assert (trained.part, planned.part) == ("latent", "latent_plans")
    more = few.replace(latent=few.latent.replace(search=few.latent.search.replace(samples=16)))
    again, twice = of_latents(more, PAPER)
    assert again.operations == trained.operations
    assert 1.5 < twice.operations / planned.operations < 2, "candidates decide, what is followed stays"


def test_products_that_add_in_place_are_counted() -> None:
    made, one, other = torch.zeros(2, 5), torch.ones(2, 3), torch.ones(3, 5)
    assert product(made.shape, one.shape, other.shape) == 60
    assert operations(lambda: made.addmm_(one, other)) == 60
    assert operations(lambda: torch.addmm(made, one, other)) == 60


def test_figures_are_read_back_and_shown_with_their_growth(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    save(path, "atomic", FEW, [MEASURED], [], Card(1, 1, 1, 1))
    sizes, measured = load(path)
    assert (sizes, measured) == (FEW, [MEASURED])
    larger = dataclasses.replace(MEASURED, cpu_s=4.0)
    assert "time ^2.0, memory ^0.0" in measured_table([larger], measured, 2)
