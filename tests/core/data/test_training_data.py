"""Planning data: every row of the tables sees the same windows, and a window that lacks something is counted."""

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from planning_world import Memory, WorldSize, fit_tables, planning_world

from schemas.rejects import RejectCode
from trajpilot_core.data.chains import chains_of, fit_takes, query_takes
from trajpilot_core.data.planning import load_motion_data, load_planning_data
from trajpilot_core.errors import StoreError

SIZE = WorldSize(tasks=2, steps=4, alternatives=2, train=6, dev=3, test=2, segments=6, tokens=2, max_horizon=5)


def world() -> Memory:
    memory = planning_world(SIZE)
    fit_tables(memory, held_out=("egoexo4d:0001",))
    return memory


def test_rows_follow_their_ids_whatever_the_order_of_the_tables() -> None:
    memory = world()
    straight = load_planning_data(memory, "predictor")
    row = memory.tables["features"].to_pylist()[17]
    at = straight.segment_ids.index(row["segment_id"])
    assert straight.features.shape[1:] == (SIZE.tokens, SIZE.feature_width)
    assert straight.features[at].flatten().tolist() == row["vector"]
    assert straight.take_ids[straight.segment_take[at]] == row["take_id"]
    segment = next(s for s in memory.tables["segments"].to_pylist() if s["segment_id"] == row["segment_id"])
    assert straight.label_ids[straight.labels[at]] == segment["label_id"]
    for name in ("motions", "features", "windows", "takes", "segments"):
        memory.tables[name] = memory.tables[name].take(list(range(memory.tables[name].num_rows))[::-1])
    turned = load_planning_data(memory, "predictor")
    for name in ("features", "motions", "labels", "segment_take", "fold", "take_split"):
        assert torch.equal(getattr(straight, name), getattr(turned, name)), name
    assert all(torch.equal(straight.windows[h].segments, turned.windows[h].segments) for h in straight.windows)


def test_a_window_with_a_segment_that_lost_its_observation_is_rejected_and_counted() -> None:
    for table in ("features", "motions"):
        memory = world()
        whole = memory.tables[table]
        memory.tables[table] = whole.filter(pc.not_equal(whole["segment_id"], "egoexo4d:0002:0003"))
        data, windows = load_planning_data(memory, "predictor"), memory.tables["windows"].to_pylist()
        touched = [w for w in windows if "egoexo4d:0002:0003" in w["segment_ids"]]
        assert len(data.rejects) == sum(r.n_units for r in data.rejects) == len(touched) > 0
        assert sum(len(of.window_ids) for of in data.windows.values()) == len(windows) - len(touched)
        assert {r.code for r in data.rejects} == {RejectCode.WINDOW_INCOMPLETE}
        assert not any(w["window_id"] in data.windows[w["horizon"]].window_ids for w in touched)
        assert "egoexo4d:0002:0003" not in data.segment_ids
        n_segments = memory.tables["segments"].num_rows
        assert len(load_motion_data(memory).labels) == n_segments - (table == "motions"), "it needs no feature"


def test_an_unknown_label_is_an_error_that_says_so() -> None:
    memory = world()
    memory.tables["text_bank"] = memory.tables["text_bank"].slice(1)
    with pytest.raises(StoreError, match="not in text_bank"):
        load_planning_data(memory, "predictor")


def test_no_dev_or_test_take_is_in_a_fit_and_no_query_take_in_its_chain() -> None:
    data = load_planning_data(world(), "predictor")
    (final,) = chains_of(data)
    fitted, queries = fit_takes(data, final), query_takes(data, final)
    assert (data.take_split[fitted] == 0).all()
    assert [data.take_ids[i] for i in queries] == ["egoexo4d:0001"]
    assert not set(fitted.tolist()) & set(queries.tolist())


def test_cross_fitting_queries_every_training_take_once_and_never_by_a_chain_that_saw_it() -> None:
    memory = world()
    train = [t["take_id"] for t in memory.tables["takes"].to_pylist() if t["split"] == "train"]
    memory.table("folds", pa.table({"take_id": train, "fold": [i % 3 for i in range(len(train))]}))
    data = load_planning_data(memory, "predictor")
    made = chains_of(data)
    assert [c.name for c in made] == ["final", "fold0", "fold1", "fold2"]
    assert len(fit_takes(data, made[0])) == len(train)
    assert len(query_takes(data, made[0])) == 0
    asked = [query_takes(data, c).tolist() for c in made[1:]]
    assert sorted(take for takes in asked for take in takes) == list(range(len(train)))
    assert not any(set(q) & set(fit_takes(data, c).tolist()) for q, c in zip(asked, made[1:], strict=True))


def test_moving_to_a_device_moves_every_tensor() -> None:
    moved = load_planning_data(world(), "predictor").to("meta")
    tensors = [v for v in vars(moved).values() if isinstance(v, torch.Tensor)]
    tensors += [v for w in moved.windows.values() for v in vars(w).values() if isinstance(v, torch.Tensor)]
    assert len(tensors) > 8
    assert all(t.device.type == "meta" for t in tensors)
