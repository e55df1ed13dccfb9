"""Scorer+ without each of its parts: it answers otherwise where the part matters, and alike where it says nothing."""

from dataclasses import replace

import pytest
import torch
from planning_fixture import World, model_files, planning_data
from plus_fixture import candidates_of, moved, network, source_of
from rows_fixture import CONFIG, quiet, scorers_of
from torch import Tensor

from schemas.training import PLUS_PARTS, PlusPart
from trajpilot_core.errors import LeakError
from trajpilot_core.evaluation.predictions import predict_rows
from trajpilot_core.methods import METHODS, method, plus_parts
from trajpilot_core.methods.plus_parts import PARTS, ReadyPlus, apart, ready_plus, without_part
from trajpilot_core.methods.scorer_plus import PART_ROWS, plus_answers_of
from trajpilot_core.models.scorer_plus import PlusInputs
from trajpilot_core.training.scorer_plus import PlusQueries, plus_queries
from trajpilot_core.training.scorer_plus_fit import PlusDecision
from trajpilot_core.training.scorer_plus_statistics import CANDIDATES, PlusSource

OPEN = PlusDecision(threshold=-9.0, n_queries=0, n_dev=0, dev={})


def corpus():
    return planning_data(World(train=30, test=8, segments=9))


def scorer_of():
    return moved(network(), manner=1.0, kinship=1.0, plan=1.0)


def ready(source: PlusSource | None = None, scorer=None) -> ReadyPlus:
    return ready_plus(scorer or scorer_of(), OPEN, source or source_of(corpus()))


def said(plus: ReadyPlus, queries: PlusQueries | None = None, horizon: int = 4) -> tuple[Tensor, ...]:
    """Rankings, their probabilities, and the decoded sequences of the test windows, all gates open."""
    rows = (plus.source.view.data.windows[horizon].split == 2).nonzero()[:, 0]
    answers = plus_answers_of(plus.source.view, candidates_of(plus.source, rows, horizon), plus, queries)
    assert answers.opened is not None
    assert answers.opened.all()
    assert answers.decoded is not None
    return answers.ids, answers.scores, answers.decoded


def queries_with(plus: ReadyPlus, horizon: int = 4, **inputs: Tensor) -> PlusQueries:
    """The test windows as Scorer+ reads them, with other inputs."""
    rows = (plus.source.view.data.windows[horizon].split == 2).nonzero()[:, 0]
    read = plus_queries(plus.source, candidates_of(plus.source, rows, horizon))
    changed = PlusInputs(**{**read.inputs._asdict(), **inputs})
    return replace(read, inputs=changed)


def equal(one: tuple[Tensor, ...], other: tuple[Tensor, ...]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("part", [part for part in PLUS_PARTS if part != "coupling"])
def test_without_a_part_other_probabilities_are_said(part: PlusPart) -> None:
    plus = ready()
    assert not equal(said(plus)[:2], said(without_part(plus, part))[:2])


def test_the_whole_is_not_changed_by_what_is_made_of_it() -> None:
    plus = ready()
    before = said(plus)
    for part in PLUS_PARTS:
        without_part(plus, part)
    assert equal(said(plus), before)


def test_without_coupling_rankings_stay_and_some_sequence_differs() -> None:
    plus = ready(scorer=moved(network(), manner=-4.0, holds=-4.0, clash=-4.0, own=0.0))  # many takes are plausible
    plus = plus._replace(known=plus.known._replace(share=plus.known.share.pow(4)))  # and each is for one plan
    whole, alone = said(plus), said(without_part(plus, "coupling"))
    assert equal(whole[:2], alone[:2])
    assert not torch.equal(whole[2], alone[2])
    assert torch.equal(said(plus, horizon=3)[2][:, 1], said(without_part(plus, "coupling"), horizon=3)[2][:, 1])


def test_manner_says_nothing_where_all_takes_move_alike() -> None:
    plus = ready()
    flat = queries_with(plus).inputs.manner.clamp(0.0, 0.0)
    flat = flat.masked_fill(queries_with(plus).inputs.manner == -torch.inf, -torch.inf)
    queries = queries_with(plus, manner=flat)
    assert equal(said(plus, queries), said(without_part(plus, "manner"), queries))


def test_roles_say_nothing_where_no_two_labels_share_one() -> None:
    source = source_of(corpus())
    statistics = source.fitted.statistics
    alone = replace(statistics, look=apart(statistics), context=torch.zeros_like(statistics.context))
    plus = ready(replace(source, fitted=source.fitted._replace(statistics=alone)), moved(scorer_of(), look=0.0))
    assert torch.equal(plus.known.roles.kernel, torch.eye(len(statistics.look)))
    assert equal(said(plus), said(without_part(plus, "roles")))


def test_kinship_says_nothing_where_a_take_trusts_itself_alone() -> None:
    plus = ready(scorer=moved(scorer_of(), own=0.0))
    assert equal(said(plus), said(without_part(plus, "kinship")))


def test_retrieval_says_nothing_where_the_candidates_plan_favours_no_label() -> None:
    plus = ready()
    plans = queries_with(plus).inputs.plans.clone()
    plans[:, CANDIDATES] = 0
    queries = queries_with(plus, plans=plans)
    assert equal(said(plus, queries), said(without_part(plus, "retrieval"), queries))


def test_without_motion_the_motion_of_a_window_changes_nothing() -> None:
    data = corpus()
    of_test = data.take_split[data.segment_take] == 2
    other = replace(data, motions=torch.where(of_test[:, None, None], -data.motions, data.motions))
    plus, turned = (ready(source_of(d)) for d in (data, other))
    assert equal(said(without_part(plus, "motion")), said(without_part(turned, "motion")))
    assert not equal(said(plus), said(turned))


def test_every_part_has_its_row_and_its_switch() -> None:
    assert list(PARTS) == list(PLUS_PARTS)
    assert [row.id for row in PART_ROWS] == [f"scorer_plus_no_{part}" for part in PLUS_PARTS]
    for row in PART_ROWS:
        assert row in METHODS
        assert (row.part_of, row.role, row.plans) == ("scorer_plus", "ablation", None)
        assert "nothing trained again" in row.knows
    assert method("scorer_plus_no_motion").sees == "ends"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    data = planning_data()
    files = model_files(data)
    return data, files, scorers_of(data, files, tmp_path_factory.mktemp("scorers"), threshold=-9.0)


def variants(trained, asked: tuple[PlusPart, ...]) -> set[str]:
    parts = predict_rows(*trained, CONFIG.replace(plus_parts=asked), "test", "cpu", quiet)
    return {one for part in parts for table in part.predictions for one in table["variant"].unique().to_pylist()}


def test_parts_are_asked_for_by_a_setting(trained) -> None:
    assert {row for row in variants(trained, ("roles",)) if "plus_no" in row} == {"scorer_plus_no_roles"}


def test_a_row_that_reads_motion_after_all_is_refused(trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault: only the manner is switched off, and ends are still recognised by their motion."""
    monkeypatch.setitem(plus_parts.PARTS, "motion", plus_parts.without_manner)
    with pytest.raises(LeakError, match="scorer_plus_no_motion"):
        variants(trained, ("motion",))
