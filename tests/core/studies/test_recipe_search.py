"""The search for recipes: seeded, resumable, chosen on dev alone, and blind to test takes."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import pyarrow as pa
import pytest
from planning_world import Memory
from stored_world import SETTINGS, options, run_world, stages_on, world

from schemas.config import PipelineConfig
from schemas.results import CurvePoint
from schemas.search import SearchConfig, SearchedRow, SearchSpace, TrialRow
from trajpilot_core.data.cross_fitting import attention_row
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.sizes import paper_sizes
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.manifest import current_key
from trajpilot_core.studies import recipe_search
from trajpilot_core.studies.recipe_search import (
    CORNERS,
    chosen,
    committed,
    draw_trials,
    epoch_seconds,
    kept_scores,
    search,
    trials_table,
    with_epochs,
    with_settings,
)

NONE: dict[str, tuple[()]] = {"weight_decay": (), "warmup": (), "dropout": ()}
SMALL = SearchSpace(lr=(1e-3, 3e-3, 1e-2), batch=(32, 64), width=(16, 32), **NONE)
CFG = SearchConfig(
    trials=2,
    most_epochs=2,
    predictor=SMALL.replace(mixed_horizons=(False, True)),
    alignment=SMALL,
    scorer=SMALL,
    attention=SMALL,
)
BASE = SETTINGS.replace(attention=SETTINGS.attention.replace(variants=CORNERS))


def searched(
    root: Path,
    memory: Memory,
    row: SearchedRow = "predictor",
    cfg: SearchConfig = CFG,
    earlier: Sequence[TrialRow] = (),
) -> tuple[list[TrialRow], list[str]]:
    said: list[str] = []
    rows = search(row, cfg, BASE, options(root), stages_on(memory), lambda rows, line: said.append(line), earlier)
    return rows, said


@pytest.fixture(scope="module")
def memory() -> Memory:
    return world()


@pytest.fixture(scope="module")
def root(memory: Memory, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A root in which two trials of the predictor were run."""
    root = tmp_path_factory.mktemp("search") / "root"
    run_world(root, memory, until="alignment")
    searched(root, memory)
    return root


def test_a_longer_search_begins_with_the_trials_of_a_shorter_one() -> None:
    space = SearchConfig().predictor
    trials = draw_trials(space, 12, 1)
    assert trials[0] == {}, "the recipe as it stands"
    assert draw_trials(space, 5, 1) == trials[:5]
    assert draw_trials(space, 12, 2)[1:] != trials[1:]
    assert len({str(sorted(trial.items())) for trial in trials}) == 12
    named = {
        "lr",
        "batch",
        "weight_decay",
        "warmup",
        "width",
        "dropout",
        "temperature",
        "infonce_weight",
        "mixed_horizons",
    }
    assert {path.removeprefix("train.") for path in trials[1]} == named


def test_a_space_that_is_too_small_is_refused() -> None:
    with pytest.raises(InputError, match="12 trials were asked for, but the space holds 8 and the recipe"):
        draw_trials(
            SearchSpace(lr=(1.0, 2.0), batch=(1, 2), weight_decay=(), warmup=(), width=(8, 16), dropout=()), 12, 0
        )


def test_a_width_keeps_the_proportion_of_the_hidden_width_and_needs_its_heads() -> None:
    found = with_settings(SETTINGS.predictor.replace(hidden=40), {"width": 32, "train.lr": 0.5, "mixed_horizons": True})
    assert (found.width, found.hidden, found.train.lr) == (32, 80, 0.5)
    with pytest.raises(InputError, match="width 33, which 2 heads do not divide"):
        with_settings(SETTINGS.predictor, {"width": 33})
    with pytest.raises(InputError, match="ScorerConfig has no setting 'mixed_horizons'"):
        with_settings(SETTINGS.scorer, {"mixed_horizons": True})


@pytest.mark.parametrize("row", get_args(SearchedRow))
def test_epochs_follow_from_the_modelled_time_alone(row: SearchedRow) -> None:
    base = PipelineConfig()
    sizes, config = paper_sizes(base), getattr(base, row)
    one = epoch_seconds(config, sizes, SearchConfig())
    cfg = SearchConfig(minutes=10.5 * one / 60)
    timed, modelled_s = with_epochs(config, sizes, cfg)
    assert (timed.train.epochs, timed.train.patience) == (10, None)
    assert modelled_s == pytest.approx(10 * one)
    assert with_epochs(config, sizes, cfg.replace(minutes=1e-6))[0].train.epochs == 1
    assert with_epochs(config, sizes, cfg.replace(minutes=1e9))[0].train.epochs == cfg.most_epochs
    wide = config.replace(width=2 * config.width)
    assert epoch_seconds(wide, sizes, SearchConfig()) > 1.5 * one


def test_a_search_that_goes_on_finds_what_was_computed(
    root: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes: list[Outcome] = []
    monkeypatch.setattr(recipe_search, "execute", lambda *given: (outcomes.append(execute(*given)), outcomes[-1])[1])
    rows, said = searched(root, memory, cfg=CFG.replace(trials=3))
    assert [one.cached for one in outcomes] == [True, True, False, True]
    assert said[0].startswith("trial 1 of 3 found: dev ")
    assert said[2].startswith("trial 3 of 3 computed: dev ")
    assert current_key(LocalFolder(str(root)), "predictor") == chosen(rows).key, "the chosen one counts afterwards"
    for one in rows:
        assert set(one.dev) == set(one.train) == {"traj", "no_traj", "endpoint_traj"}
        assert one.took_s > 0


def test_trials_of_another_machine_are_taken_as_they_stand(
    root: Path, memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, _ = searched(root, memory)
    other = known[0].replace(dev={**known[0].dev, "traj": 0.987})
    outcomes: list[Outcome] = []
    monkeypatch.setattr(recipe_search, "execute", lambda *given: (outcomes.append(execute(*given)), outcomes[-1])[1])
    rows, said = searched(root, memory, earlier=[other])
    assert rows == [other, known[1]]
    assert said[0].startswith("trial 1 of 2 kept: dev ")
    assert len(outcomes) == 2, "the second trial, and the chosen one"
    for wrong in (known[0].replace(epochs=7), known[1].replace(number=0)):
        with pytest.raises(InputError, match="of the earlier table drew"):
            searched(root, memory, earlier=[wrong])


def row_of(number: int, *dev: float) -> TrialRow:
    return TrialRow(
        number=number,
        settings={"width": 32} if number else {},
        epochs=3,
        key="k",
        modelled_s=1.0,
        took_s=2.0,
        dev=dict(zip(("traj", "no_traj", "endpoint_traj"), dev, strict=True)),
        train={"traj": 0.9},
    )


def test_the_highest_mean_over_dev_is_chosen_and_a_tie_goes_to_the_earlier_trial() -> None:
    rows = [row_of(0, 0.5, 0.1, 0.3), row_of(1, 0.3, 0.3, 0.4), row_of(2, 0.4, 0.3, 0.3)]
    assert chosen(rows).number == 1
    assert chosen([row_of(0, 0.9, 0.1, 0.0), *rows]).number in (0, 1)
    table = trials_table("predictor", rows, CFG, "SIMULATED")
    assert table.startswith("SIMULATED\n\nM@1, %")
    assert "| **2** | 90.0 / 30.0 | - / 30.0 | - / 40.0 | 33.3 | 3 | 1 | 2 | width 32 |" in table
    assert "the recipe as it stands" in table


def test_train_scores_never_choose() -> None:
    loud = row_of(1, 0.1, 0.1, 0.1).replace(train={"traj": 1.0, "no_traj": 1.0, "endpoint_traj": 1.0})
    assert chosen([row_of(0, 0.2, 0.2, 0.2), loud]).number == 0


def test_the_epoch_is_that_of_dev_and_seeds_are_averaged() -> None:
    points = {
        (0, "dev"): [0.2, 0.6, 0.6],
        (0, "train"): [0.3, 0.5, 0.9],
        (1, "dev"): [0.4, 0.1],
        (1, "train"): [0.7, 0.8],
    }
    curve = [
        CurvePoint(model="final/traj", seed=seed, epoch=epoch, split=split, quantity="M@1", value=value)
        for (seed, split), values in points.items()
        for epoch, value in enumerate(values, start=1)
    ]
    assert kept_scores(curve, "final/traj", "M@1") == pytest.approx({"dev": 0.5, "train": 0.6})
    with pytest.raises(InputError, match="final/no_traj has no dev M@1"):
        kept_scores(curve, "final/no_traj", "M@1")


def other_test_takes(memory: Memory) -> Memory:
    """The same world; in test takes other labels were acted out."""
    segments = memory.tables["segments"]
    labels = sorted(set(segments["label_id"].to_pylist()))
    changed = [
        row | {"label_id": labels[(labels.index(row["label_id"]) + 1) % len(labels)]} if row["split"] == "test" else row
        for row in segments.to_pylist()
    ]
    tables = {**memory.tables, "segments": pa.Table.from_pylist(changed, schema=segments.schema)}
    tables.pop("take_contents", None)
    return dataclasses.replace(memory, tables=tables)


def test_other_test_takes_change_nothing_of_a_search(root: Path, memory: Memory, tmp_path: Path) -> None:
    other = other_test_takes(memory)
    run_world(tmp_path, other, until="alignment")
    one, two = (searched(where, of)[0] for where, of in ((root, memory), (tmp_path, other)))
    assert [(row.dev, row.train, row.epochs) for row in one] == [(row.dev, row.train, row.epochs) for row in two]


@pytest.mark.parametrize("entry", ["windows", "segments", "features", "predictors", "metrics", "predictions"])
def test_a_search_that_opens_anything_but_curves_is_refused(root: Path, memory: Memory, entry: str) -> None:
    stages = stages_on(memory)
    outcome = execute(stages["predictor"], SETTINGS, options(root), stages)
    output = committed(LocalFolder(str(root)), outcome)
    assert output.inputs.table("predictor_curves").num_rows > 0
    with pytest.raises(StoreError, match=entry):
        output.inputs.table(entry)


def test_an_output_that_another_run_put_in_its_place_is_refused(root: Path, memory: Memory) -> None:
    stages = stages_on(memory)
    first = execute(stages["predictor"], SETTINGS, options(root), stages)
    wide = SETTINGS.replace(predictor=SETTINGS.predictor.replace(width=8 * 2, hidden=24))
    execute(stages["predictor"], wide, options(root), stages)
    with pytest.raises(StoreError, match=r"another run changed predictor .* a --root of its own"):
        committed(LocalFolder(str(root)), first)


@pytest.mark.parametrize("row", ["alignment", "scorer"])
def test_the_other_rows_are_searched_too(row: SearchedRow, root: Path, memory: Memory) -> None:
    if row == "scorer":
        run_world(root, memory, until="label_effects")
    rows, _ = searched(root, memory, row)
    assert len(rows) == 2
    assert all(0 <= value <= 1.01 for one in rows for value in (*one.dev.values(), *one.train.values()))


def test_attention_is_searched_by_opposite_corners_of_its_square(memory: Memory, tmp_path: Path) -> None:
    """By `both` alone a recipe would be chosen that favours the row in question."""
    root = tmp_path / "root"
    run_world(root, memory, BASE, until="label_effects")
    rows, _ = searched(root, memory, "attention")
    assert [set(one.dev) for one in rows] == [{attention_row(variant) for variant in CORNERS}] * 2
    table = trials_table("attention", rows, CFG, "SIMULATED")
    assert all(attention_row(variant) in table for variant in CORNERS)
