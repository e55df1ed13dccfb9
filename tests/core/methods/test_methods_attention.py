"""Rows of retrieval attention: there where they were trained, bounded by what they see, and refused where they lie."""

from dataclasses import replace

import pyarrow.compute as pc
import pytest
from planning_fixture import attention_models, model_files, planning_data
from rows_fixture import CONFIG, predicted, quiet, scorers_of

from schemas.training import ATTENTION_VARIANTS
from trajpilot_core.data.cross_fitting import ATTENTION, attention_row
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation.predictions import OtherModels, predict_rows
from trajpilot_core.methods import METHODS, method
from trajpilot_core.methods.viterbi import SUFFIX

ROWS = [attention_row(variant) for variant in ATTENTION_VARIANTS]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    data = planning_data()
    files = model_files(data)
    return data, files, scorers_of(data, files, tmp_path_factory.mktemp("scorers"), threshold=0.5)


def attending(table):
    return {row for row in pc.unique(table["variant"]).to_pylist() if row.startswith(ATTENTION)}


def test_rows_are_there_where_they_were_trained_and_change_no_other(made):
    every = predicted(*made, attention=attention_models(made[0]))[0]
    assert attending(every) == {*ROWS, ATTENTION + SUFFIX}
    none = predicted(*made)[0]
    assert attending(none) == set()
    assert every.filter(pc.invert(pc.starts_with(every["variant"], ATTENTION))).equals(none)
    part = predicted(*made, attention=attention_models(made[0], variants=("no_motion", "alone")))[0]
    assert attending(part) == {attention_row("no_motion"), attention_row("alone")}


def test_variants_answer_differently(made):
    table = predicted(*made, attention=attention_models(made[0]))[0]
    scores = {row: table.filter(pc.equal(table["variant"], row))["top_scores"].to_pylist() for row in ROWS}
    assert len({str(one) for one in scores.values()}) == len(ROWS)


@pytest.mark.parametrize("row", [ATTENTION, attention_row("query_motion"), attention_row("alone")])
def test_a_row_that_hides_that_it_reads_motion_of_the_ends_is_refused(made, row, monkeypatch):
    liar = replace(method(row), sees="ends", ceiling="no_traj")
    monkeypatch.setattr(
        "trajpilot_core.evaluation.predictions.METHODS", [one for one in METHODS if one.id != row] + [liar]
    )
    parts = predict_rows(*made, CONFIG, "test", "cpu", quiet, others=OtherModels(attention_models(made[0])))
    with pytest.raises(LeakError, match=f"id {row}$"):
        list(parts)


def test_what_each_row_sees_and_is_bounded_by():
    assert {row: (method(row).sees, method(row).ceiling) for row in (*ROWS, ATTENTION + SUFFIX)} == {
        ATTENTION: ("end_motion", "endpoint_traj"),
        attention_row("query_motion"): ("end_motion", "endpoint_traj"),
        attention_row("retrieved_motion"): ("ends", "no_traj"),
        attention_row("no_motion"): ("ends", "no_traj"),
        attention_row("alone"): ("end_motion", "endpoint_traj"),
        ATTENTION + SUFFIX: ("end_motion", "endpoint_traj"),
    }
    pairs = [(one.id, other) for one in METHODS for other in one.against]
    for pair in (("both", "query_motion"), ("retrieved_motion", "no_motion"), ("both", "alone")):
        assert tuple(map(attention_row, pair)) in pairs, "the two by two"
    assert (attention_row("alone"), "endpoint_traj") in pairs
    for one in METHODS:
        assert all(method(other).id == other for other in one.against)
