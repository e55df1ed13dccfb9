"""Shots as they are read: what was seen before each, what happened, and what must not be."""

import pyarrow as pa
import pytest
from planning_world import Memory, WorldSize, fit_tables, planning_world

from trajpilot_core.data.events import DEV, TEST, TRAIN, load_shots
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.errors import InputError, LeakError, StoreError

SIZE = WorldSize(tasks=1, steps=4, alternatives=2, train=4, dev=2, test=3, segments=6, max_horizon=3)


def a_court(**changes: object) -> Memory:
    """Pairs of segments that are a shot each, as ingest leaves them; `changes` of the first test shot."""
    memory = planning_world(SIZE)
    fit_tables(memory)
    segments = memory.table("segments").to_pylist()
    windows, details, timed = [], [], []
    for i, row in enumerate(segments):
        is_shot = row["position"] % 2 == 1
        start = 2.0 * row["position"]
        timed.append({**row, "start_s": start, "end_s": start + 2.0, "anchor_s": start + 1.0})
        outcome = ("made" if i % 4 == 1 else "missed") if is_shot else None
        event = f"{row['take_id']}:shot{row['position']:04d}"
        details.append({"segment_id": row["segment_id"], "event": event, "outcome": outcome})
        if is_shot:
            pair = (segments[i - 1]["segment_id"], row["segment_id"])
            own = {"window_id": event, "take_id": row["take_id"], "split": row["split"], "horizon": 2}
            windows.append({**own, "segment_ids": pair})
    first = next(i for i, one in enumerate(windows) if one["split"] == "test")
    shot = next(i for i, one in enumerate(segments) if one["segment_id"] == windows[first]["segment_ids"][1])
    windows[first] |= {k: v for k, v in changes.items() if k in windows[first]}
    details[shot] |= {k: v for k, v in changes.items() if k in details[shot]}
    timed[shot - 1] |= {k: v for k, v in changes.items() if k in ("end_s",)}
    memory.tables |= {
        "windows": pa.Table.from_pylist(windows),
        "details": pa.Table.from_pylist(details),
        "segments": pa.Table.from_pylist(timed),
    }
    return memory


def test_a_shot_is_read_with_what_was_seen_before_it_and_what_happened() -> None:
    memory = a_court()
    shots, rejects = load_shots(memory)
    data = load_planning_data(memory, "outcome")
    assert len(shots) == 9 * 3
    assert rejects == []
    assert {TRAIN, DEV, TEST} == set(shots.split.tolist())
    row_of = {one: row for row, one in enumerate(data.segment_ids)}
    for window, made, tokens, pixels in zip(
        sorted(memory.table("windows").to_pylist(), key=lambda one: one["window_id"]),
        shots.made.tolist(),
        shots.tokens,
        shots.shot,
        strict=True,
    ):
        before, at = (row_of[one] for one in window["segment_ids"])
        assert tokens.equal(data.features[before])
        assert pixels.equal(data.features[at])
        detail = next(
            one for one in memory.table("details").to_pylist() if one["segment_id"] == window["segment_ids"][1]
        )
        assert made == (detail["outcome"] == "made")


@pytest.mark.parametrize(
    ("changes", "error", "named"),
    [
        ({"split": "train"}, LeakError, "another split than their take: .*shot0001 of egoexo4d:0006"),
        ({"end_s": 3.01}, LeakError, r"egoexo4d:0006:shot0001 \(seen until 3\.01 s, shot at 3\.00 s\)"),
        ({"outcome": "perhaps"}, StoreError, "has the outcome 'perhaps', not made or missed"),
    ],
)
def test_a_shot_of_another_split_or_whose_release_is_seen_before_it_or_of_no_outcome_is_refused_by_name(
    changes: dict[str, object], error: type[Exception], named: str
) -> None:
    load_shots(a_court(end_s=3.0))
    with pytest.raises(error, match=named):
        load_shots(a_court(**changes))


def test_what_is_no_shot_is_refused() -> None:
    plans = planning_world(SIZE)
    fit_tables(plans)
    with pytest.raises(InputError, match=r"windows of 3 segments are not shots; .*basketball"):
        load_shots(plans)


def test_shots_without_features_are_rejects_and_rows_balance() -> None:
    memory = a_court()
    lost = memory.table("windows").to_pylist()[0]
    looks = memory.table("features")
    kept = [i for i, one in enumerate(looks["segment_id"].to_pylist()) if one != lost["segment_ids"][0]]
    memory.tables["features"] = looks.take(kept)
    shots, rejects = load_shots(memory)
    assert [one.take for one in rejects] == [lost["take_id"]]
    assert len(shots) + sum(one.n_units for one in rejects) == 27
