"""Transitions are counted in runs of training takes alone; masks follow `is_allowed` alone."""

from dataclasses import replace

import pyarrow as pa
import pytest
import torch
from planning_fixture import World, planning_data
from torch import Tensor

from schemas.annotation import ScenarioLabel
from schemas.arrow import table_of
from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.data.cross_fitting import FINAL
from trajpilot_core.data.planning import SPLITS, PlanningData
from trajpilot_core.data.transitions import ScenarioMasks, fitted_bigrams, label_bigrams, scenario_masks
from trajpilot_core.errors import InputError, LeakError, StoreError
from trajpilot_core.models.planners.decoding import log_scores

CODES = {"a": 0, "b": 1, "c": 2}
WORLD = World(folds=2)


def segments(rows: list[tuple[str, int, int, str]]) -> pa.Table:
    """Segments of training takes from (take, position, run, label)."""
    columns = zip(("take_id", "position", "run", "label_id"), zip(*rows, strict=True), strict=True)
    return pa.table({"split": ["train"] * len(rows), **{name: list(values) for name, values in columns}})


def segments_of(data: PlanningData) -> pa.Table:
    """The table that planning data were made of: one run a take."""
    take_S = data.segment_take.tolist()
    return pa.table(
        {
            "take_id": [data.take_ids[take] for take in take_S],
            "split": [SPLITS[data.take_split[take]] for take in take_S],
            "position": [int(segment_id.rsplit(":", 1)[1]) for segment_id in data.segment_ids],
            "run": [0] * len(take_S),
            "label_id": [data.label_ids[label] for label in data.labels.tolist()],
        }
    )


def codes_of(data: PlanningData) -> dict[str, int]:
    return {label_id: code for code, label_id in enumerate(data.label_ids)}


def counted(data: PlanningData, chain: int = 0) -> Tensor:
    """(V, V) of one chain."""
    codes = codes_of(data)
    return fitted_bigrams(segments_of(data), data, chains_of(data)[chain], codes, len(codes)).to_dense()


ROWS = [
    *(("t1", at, 0, label) for at, label in enumerate("abab")),
    *(("t1", 4 + at, 1, label) for at, label in enumerate("ba")),
    *(("t2", at, 0, label) for at, label in enumerate("acc")),
]


def test_each_pair_of_neighbours_in_a_run_counts_once() -> None:
    """A break between runs and the end of a take are no transitions; a run too short for a window counts."""
    expected = torch.tensor([[0.0, 2.0, 1.0], [2.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    got = label_bigrams(segments(ROWS), {"t1", "t2"}, CODES, 3)
    assert torch.equal(got.to_dense(), expected)
    shuffled = segments([ROWS[at] for at in (4, 0, 8, 2, 6, 1, 7, 3, 5)])
    assert torch.equal(label_bigrams(shuffled, {"t1", "t2"}, CODES, 3).to_dense(), expected)
    assert label_bigrams(segments(ROWS), {"t2"}, CODES, 3).sum() == 2
    assert label_bigrams(segments(ROWS), set(), CODES, 3).to_dense().sum() == 0
    of_classes = label_bigrams(segments(ROWS), {"t1", "t2"}, {"a": 0, "b": 0, "c": 1}, 2).to_dense()
    assert torch.equal(of_classes, torch.tensor([[4.0, 1.0], [0.0, 1.0]]))
    with pytest.raises(StoreError, match="'c' is not in the table of classes"):
        label_bigrams(segments(ROWS), {"t2"}, {"a": 0, "b": 1}, 2)
    holed = [row for row in ROWS if row[:2] != ("t1", 1)]
    assert label_bigrams(segments(holed), {"t1"}, CODES, 3).to_dense()[0, 0] == 0, "positions 0 and 2 are no neighbours"


def relabelled(data: PlanningData, takes: Tensor) -> PlanningData:
    """Other labels in some takes."""
    is_changed = torch.isin(data.segment_take, takes)
    return replace(data, labels=torch.where(is_changed, (data.labels + 5) % len(data.label_ids), data.labels))


def test_labels_of_dev_and_test_takes_and_of_a_held_out_fold_change_no_transition() -> None:
    data = planning_data(WORLD)
    for place, chain in enumerate(chains_of(data)):
        hidden = torch.tensor([t for t in range(len(data.take_ids)) if t not in fit_takes(data, chain).tolist()])
        assert len(hidden) == WORLD.dev + WORLD.test + (0 if chain == FINAL else WORLD.train // 2)
        assert torch.equal(counted(relabelled(data, hidden), place), counted(data, place))
        assert not torch.equal(counted(relabelled(data, fit_takes(data, chain)[:1]), place), counted(data, place))


def test_transitions_of_test_takes_are_seen() -> None:
    """The planted fault: all takes are counted. It is refused, and forged splits would show in the counts."""
    data, everything = planning_data(WORLD), list(planning_data(WORLD).take_ids)
    test_takes = (data.take_split == 2).nonzero()[:, 0]
    with pytest.raises(LeakError, match=r"toy:1[0-2], a take of dev"):
        label_bigrams(segments_of(data), everything, codes_of(data), len(data.label_ids))
    forged = [
        segments_of(one).set_column(1, "split", pa.array(["train"] * len(one.segment_ids)))
        for one in (data, relabelled(data, test_takes))
    ]
    before, after = (label_bigrams(table, everything, codes_of(data), len(data.label_ids)) for table in forged)
    assert not torch.equal(before.to_dense(), after.to_dense())


TAKES = pa.table({"take_id": ["t1", "t2", "t3"], "scenario": ["tea", "coffee", "tea"]})


def rows_of_masks(n_test: int = 0) -> list[ScenarioLabel]:
    found = []
    for scenario, label, is_allowed in (("tea", "a", True), ("tea", "b", False), ("coffee", "c", True)):
        counts = {"n_train": int(is_allowed), "n_dev": 0, "n_test": n_test}
        found.append(ScenarioLabel(scenario=scenario, label_id=label, is_allowed=is_allowed, **counts))
    return found


def masks(rows: list[ScenarioLabel], takes: tuple[str, ...] = ("t3", "t2", "t1")) -> ScenarioMasks:
    return scenario_masks(table_of(ScenarioLabel, rows), TAKES, takes, CODES, 3)


def test_a_window_may_answer_what_the_scenario_of_its_take_allows() -> None:
    got = masks(rows_of_masks())
    assert got.scenarios == ("coffee", "tea")
    expected = torch.tensor([[True, False, False], [False, False, True], [True, False, False]])
    assert torch.equal(got.of_windows(torch.tensor([0, 1, 2])), expected)
    with pytest.raises(StoreError, match="'t9' is not in takes"):
        masks(rows_of_masks(), ("t9",))


def test_labels_of_test_takes_change_no_mask() -> None:
    """The planted fault, a mask of all labels that were counted anywhere, follows the test takes."""
    assert torch.equal(masks(rows_of_masks(3)).allowed, masks(rows_of_masks()).allowed)
    leaking = [row.replace(is_allowed=row.n_train + row.n_test > 0) for row in rows_of_masks(3)]
    assert not torch.equal(masks(leaking).allowed, masks(rows_of_masks()).allowed)


def test_a_scenario_that_no_training_take_has_is_not_masked() -> None:
    """A mask of nothing, the planted fault, stops the decoding at the first window of such a take."""
    got = masks([row for row in rows_of_masks() if row.scenario == "tea"]).of_windows(torch.tensor([0, 1]))
    assert got.tolist() == [[True, False, False], [True, True, True]]
    assert torch.isfinite(log_scores(torch.zeros(2, 3, 3), got)[1]).all()
    with pytest.raises(InputError, match="window 1: its mask allows none of the 3 labels"):
        log_scores(torch.zeros(2, 3, 3), got & torch.tensor([[True], [False]]))
