"""A row is one record: a toy row is found everywhere with its bound, and one with a false sight is refused."""

from dataclasses import replace

import pyarrow as pa
import pytest
import torch
from rows_fixture import listed, predicted

from trajpilot_core.errors import LeakError, MethodError
from trajpilot_core.methods import METHODS, in_order, method
from trajpilot_core.methods.base import Answers, Method
from trajpilot_core.methods.batch import WindowBatch
from trajpilot_core.methods.plans import rank_plan


def ends_only(batch: WindowBatch) -> Answers:
    """Answer every position with No-Traj's answer for the Start."""
    return rank_plan(batch.fallback[:, :1].expand_as(batch.fallback), batch.view, batch.segments)


def by_middle_labels(batch: WindowBatch) -> Answers:
    """Answer with the truth."""
    truth = batch.view.data.labels[batch.segments]
    return Answers(truth[..., None], torch.ones(*truth.shape, 1))


def by_middle_motion(batch: WindowBatch) -> Answers:
    """Answer as Oracle does."""
    answers = method("oracle").answer(batch)
    assert answers is not None
    return answers


def by_middle_features(batch: WindowBatch) -> Answers:
    """Answer by the features of the middle, which no row may see."""
    looks = batch.view.data.features[batch.segments].float().mean((2, 3))
    ids = (looks * 1000).long().abs() % len(batch.view.data.bank)
    return Answers(ids[..., None], looks[..., None])


TOY = Method(
    id="toy",
    name="Toy",
    knows="the Start alone",
    sees="ends",
    ceiling="no_traj",
    role="control",
    models=("no_traj",),
    answer=ends_only,
)


def rows_with(quick, one: Method) -> pa.Table:
    data, files, scorers, _ = quick
    with listed(one):
        return predicted(data, files, scorers)[0]


def test_a_row_of_one_file_is_predicted_with_the_others(quick):
    table = rows_with(quick, TOY)
    rows = [row for row in table.to_pylist() if row["variant"] == "toy"]
    assert len(rows) == len([row for row in quick[3][0].to_pylist() if row["variant"] == "no_traj"])
    others = table.filter(pa.compute.not_equal(table["variant"], "toy"))
    assert others.equals(quick[3][0]), "nothing changes for the rows that were there"


def test_a_row_that_sees_more_than_it_declares_is_refused_by_name(quick, subtests):
    """Exchanged values are restored."""
    before = quick[0].labels.clone(), quick[0].features.clone(), quick[0].motions.clone()
    lies = {
        by_middle_motion: ("ends", "end_motion"),
        by_middle_labels: ("end_motion", "all_motion"),
        by_middle_features: ("all_motion",),
    }
    for answer, said in lies.items():
        for lie in said:
            with (
                subtests.test(f"{lie}, {answer.__name__}"),
                pytest.raises(LeakError, match=f"'Toy' declares that it sees '{lie}'"),
            ):
                rows_with(quick, replace(TOY, sees=lie, ceiling="oracle", answer=answer))
    after = quick[0].labels, quick[0].features, quick[0].motions
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_every_row_has_a_ceiling_that_has_seen_as_much():
    assert replace(TOY, ceiling=None).ceiling == TOY.ceiling
    with pytest.raises(MethodError, match="more than its ceiling no_traj"):
        replace(TOY, sees="end_motion")
    with pytest.raises(MethodError, match="no row of the tables is called 'unheard-of'"):
        method("unheard-of")
    with pytest.raises(MethodError, match="either `answer` or `predictions`"):
        replace(TOY, predictions="elsewhere")
    assert in_order({"oracle", "no_traj"}) == ["no_traj", "oracle"]
    assert len({one.id for one in METHODS}) == len(METHODS)
