"""True labels that the masks of scenarios allow: counted by hand from the tables, with labels forbidden on purpose."""

import pyarrow as pa
from planning_world import Memory, WorldSize, fit_tables, planning_world

from schemas.results import MaskCoverage
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.data.transitions import masks_of
from trajpilot_core.evaluation.headroom import mask_coverage

SIZE = WorldSize(tasks=2, steps=4, alternatives=2, train=12, dev=2, test=4, max_horizon=4, segments=6)


def world(forbidden: tuple[str, ...] = (), unknown: str = "") -> Memory:
    """A world in whose training the labels `forbidden` and all takes of the scenario `unknown` do not occur."""
    memory = planning_world(SIZE)
    fit_tables(memory)
    rows = [
        row | {"is_allowed": row["is_allowed"] and row["label_id"] not in forbidden and row["scenario"] != unknown}
        for row in memory.table("scenario_labels").to_pylist()
    ]
    memory.table("scenario_labels", pa.Table.from_pylist(rows))
    return memory


def counted(memory: Memory) -> list[MaskCoverage]:
    data = load_planning_data(memory, "evaluation")
    return mask_coverage(masks_of(memory, data), data)


def by_hand(memory: Memory, horizon: int, unknown: str = "") -> MaskCoverage:
    """The same from the rows of the tables."""
    allowed = {(r["scenario"], r["label_id"]) for r in memory.table("scenario_labels").to_pylist() if r["is_allowed"]}
    scenario = {take["take_id"]: take["scenario"] for take in memory.table("takes").to_pylist()}
    label = {segment["segment_id"]: segment["label_id"] for segment in memory.table("segments").to_pylist()}
    windows = [w for w in memory.table("windows").to_pylist() if (w["split"], w["horizon"]) == ("test", horizon)]
    found = []
    for window in windows:
        own = scenario[window["take_id"]]
        found.append([own == unknown or (own, label[one]) in allowed for one in window["segment_ids"]])
    return MaskCoverage(
        horizon=horizon,
        n_windows=len(windows),
        n_windows_unmasked=sum(scenario[window["take_id"]] == unknown for window in windows),
        n_steps=horizon * len(windows),
        n_allowed=sum(map(sum, found)),
        n_middle=(horizon - 2) * len(windows),
        n_middle_allowed=sum(sum(steps[1:-1]) for steps in found),
    )


def test_true_labels_that_the_mask_allows_are_counted_and_windows_of_unknown_scenarios_are_not_masked() -> None:
    """The planted faults: a label of a middle step of a test window, which no training take of the scenario has; a
    scenario without training takes."""
    memory = world()
    data = load_planning_data(memory, "evaluation")
    middle = data.label_ids[data.labels[data.windows[3].segments[data.windows[3].split == 2][0, 1]]]
    scenario = next(take["scenario"] for take in memory.table("takes").to_pylist() if take["split"] == "test")
    forbidden, unknown = world((middle,)), world(unknown=scenario)
    for memory_, name in ((memory, ""), (forbidden, ""), (unknown, scenario)):
        assert counted(memory_) == [by_hand(memory_, horizon, name) for horizon in (3, 4)]
    before, after = counted(memory), counted(forbidden)
    assert all(b.n_middle_allowed > a.n_middle_allowed for b, a in zip(before, after, strict=True))
    assert [row.n_windows_unmasked for row in before] == [0, 0]
    assert all(row.n_windows_unmasked > 0 for row in counted(unknown))
