"""From plans to labels: cosines with the bank, or class scores decoded under a prior; ties go to the smaller index."""

from dataclasses import replace

import pytest
import torch
from planners_fixture import dense, posterior, scores_of_all
from torch import Tensor
from torch.testing import assert_close

from schemas.training import PredictorConfig
from trajpilot_core.models.label_chain import probable_labels
from trajpilot_core.models.planners.decoding import smoothed_prior
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape
from trajpilot_core.models.ranking import LabelBank, best, best_labels, ranks_of, truth_ranks, truth_scores
from trajpilot_core.models.readout import ClassReadout, CosineReadout

LABELS, HORIZON = 5, 4
SHAPE = PredictorShape(feature_width=10, tokens=1, text_width=8, max_horizon=6, classes=LABELS)
SMALL = PredictorConfig(width=16, layers=1, heads=2, hidden=16, queries=1, head="classes")


def counts(seed: int = 0) -> torch.Tensor:
    return torch.randint(0, 3, (LABELS, LABELS), generator=torch.Generator().manual_seed(seed)).float()


def class_readout(allowed: torch.Tensor | None = None) -> ClassReadout:
    return ClassReadout(smoothed_prior(counts(), 0.5), 1.5, 1.2, allowed)


def plans(n: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (2 * torch.randn(n, HORIZON, LABELS, generator=generator)).log_softmax(-1)


def test_class_scores_are_decoded_as_the_enumeration_of_all_sequences_says() -> None:
    readout, plan_BHV = class_readout(), plans(6)
    found = readout.ranked(plan_BHV, torch.zeros(6).long(), LABELS)
    for row, plan_HV in enumerate(plan_BHV):
        sequences, scores = scores_of_all(plan_HV, dense(readout.prior), readout.weight)
        ordered = torch.zeros(HORIZON, LABELS).scatter(1, found.ids[row], found.scores[row])
        assert_close(ordered, posterior(sequences, scores, LABELS).float(), atol=1e-5, rtol=1e-4)
        assert torch.equal(found.decoded[row], sequences[scores.argmax()])


def test_a_label_that_the_scenario_forbids_is_never_answered_and_unknown_takes_may_answer_all() -> None:
    allowed = torch.tensor([[True, True, False, True, False]])
    masked = class_readout(allowed=allowed)
    found = masked.ranked(plans(32), torch.zeros(32).long(), 3)
    assert allowed[0][found.decoded].all()
    assert allowed[0][found.ids].all()
    unknown = masked.with_takes(2).ranked(plans(32), torch.ones(32).long(), 3)
    assert torch.equal(unknown.ids, class_readout().ranked(plans(32), torch.zeros(32).long(), 3).ids)


def test_candidates_are_judged_by_their_decoded_whole_plans() -> None:
    readout, plan_BHV = class_readout(), plans(6)
    ends, take = plan_BHV[:, [0, -1]], torch.zeros(6).long()
    mids_BKMV = torch.stack([plan_BHV[:, 1:-1], plans(6, seed=2)[:, 1:-1]], dim=1)
    truth = torch.randint(LABELS, (6, HORIZON - 2), generator=torch.Generator().manual_seed(3))
    found = readout.against(ends, mids_BKMV, truth, take)
    alone = readout.ranked(plan_BHV, take, LABELS)
    assert torch.equal(found.right[:, 0], alone.decoded[:, 1:-1] == truth)
    rank = (alone.ids[:, 1:-1] == truth[..., None]).long().argmax(-1)
    assert torch.equal(found.rank[:, 0], rank)
    assert_close(
        readout.agreement(mids_BKMV, truth)[:, 0], plan_BHV[:, 1:-1].gather(2, truth[..., None])[..., 0].mean(1)
    )


def test_a_plan_is_the_log_probability_of_the_models_own_head() -> None:
    torch.manual_seed(0)
    model, other = CausalPredictor(SMALL, SHAPE), CausalPredictor(SMALL, SHAPE)
    predicted, readout = torch.randn(3, HORIZON, 8), class_readout()
    plan = readout.plan(model, predicted)
    assert_close(plan.exp().sum(-1), torch.ones(3, HORIZON))
    assert_close(plan, (model.class_logits(predicted) / 1.2).log_softmax(-1))
    assert not torch.allclose(plan, readout.plan(other, predicted))
    assert readout.width(8) == LABELS
    with pytest.raises(TypeError, match="no class head"):
        CausalPredictor(SMALL.replace(head="open"), replace(SHAPE, classes=0)).class_logits(predicted)


def test_the_mean_of_plans_is_the_mean_of_their_probabilities() -> None:
    mids = plans(4)[:, None, 1:-1].expand(-1, 2, -1, -1)
    weights = torch.tensor([[0.25, 0.75]]).expand(4, -1)
    assert_close(class_readout().mean(weights, mids), mids[:, 0])
    bank = torch.eye(LABELS)
    cosine = CosineReadout(LabelBank(bank)).mean(weights, bank[torch.tensor([[[0], [1]]])].expand(4, -1, -1, -1))
    assert_close(cosine.norm(dim=-1), torch.ones(4, 1))


def test_windows_in_parts_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    readout, plan_BHV, take = class_readout(), plans(9), torch.zeros(9).long()
    whole = readout.ranked(plan_BHV, take, 2)
    monkeypatch.setattr("trajpilot_core.models.readout.DECODED_AT_ONCE", 2 * HORIZON * LABELS)
    parts = readout.ranked(plan_BHV, take, 2)
    assert torch.equal(whole.ids, parts.ids)
    assert torch.equal(whole.decoded, parts.decoded)  # type: ignore[arg-type]
    assert readout.ranked(plan_BHV[:0], take[:0], 2).ids.shape == (0, HORIZON, 2)


def test_a_class_has_the_cosine_of_its_nearest_label() -> None:
    generator = torch.Generator().manual_seed(0)
    label, plan = (torch.nn.functional.normalize(torch.randn(n, 8, generator=generator), dim=-1) for n in (9, 40))
    class_of = torch.tensor([0, 2, 1, 1, 0, 2, 2, 3, 0])
    bank, score = LabelBank(label, class_of), plan @ label.T
    by_hand = torch.stack([score[:, class_of == one].amax(1) for one in range(4)], dim=1)
    assert torch.equal(bank.scores(plan), by_hand)
    ids, scores = best_labels(plan, bank, 4)
    assert torch.equal(scores, by_hand.sort(dim=1, descending=True).values)
    assert torch.equal(by_hand.gather(1, ids), scores)
    truth = torch.randint(4, (40,), generator=generator)
    own = by_hand.gather(1, truth[:, None])
    assert torch.equal(truth_ranks(plan, truth, bank), (by_hand > own).sum(1))
    assert torch.equal(truth_scores(plan, truth, bank), own[:, 0])


ROWS, RANKED, KEPT = 200, 40, 5


def scores_with_ties(levels: int) -> Tensor:
    """Scores (ROWS, RANKED) of so many different values."""
    return torch.randint(levels, (ROWS, RANKED), generator=torch.Generator().manual_seed(levels)).float() / levels


def in_order(scores_RV: Tensor) -> Tensor:
    """All labels, descending, ties by smaller index: a stable sort."""
    return scores_RV.sort(dim=1, descending=True, stable=True).indices


def test_the_best_labels_are_those_of_a_stable_sort_and_a_search_that_is_blind_to_ties_would_be_seen() -> None:
    for levels in (1, 3, 30, 10**6):
        scores = scores_with_ties(levels)
        ids, values = best(scores, KEPT)
        assert torch.equal(ids, in_order(scores)[:, :KEPT])
        assert torch.equal(values, scores.gather(1, ids))
        assert torch.equal(probable_labels(scores[None], KEPT)[0], in_order(scores)[:, :KEPT].sort(dim=1).values)
    scores = scores_with_ties(3)
    assert not torch.equal(scores.topk(KEPT, dim=1).indices, in_order(scores)[:, :KEPT])


def test_more_labels_than_there_are_is_all_of_them_and_no_rows_have_none() -> None:
    scores = scores_with_ties(10**6)
    assert torch.equal(best(scores, RANKED + 3)[0], in_order(scores))
    assert torch.equal(probable_labels(scores[None], RANKED + 3)[0], torch.arange(RANKED).expand(ROWS, -1))
    assert [part.shape for part in best(scores[:0], KEPT)] == [(0, KEPT)] * 2
    assert probable_labels(torch.empty(2, 0, RANKED), KEPT).shape == (2, 0, KEPT)


def test_the_rank_of_a_label_is_its_place_in_that_order() -> None:
    scores = scores_with_ties(3)
    for label in range(0, RANKED, 7):
        place = (in_order(scores) == label).int().argmax(dim=1)
        assert torch.equal(ranks_of(scores, torch.full((ROWS,), label)), place)
