"""Ranks and best labels: ties go to the smaller index, whatever the search underneath returns."""

import torch
from torch import Tensor

from trajpilot_core.models.label_chain import probable_labels
from trajpilot_core.models.ranking import best, ranks_of

ROWS, LABELS, KEPT = 200, 40, 5


def scores_with_ties(levels: int) -> Tensor:
    """Scores (ROWS, LABELS) of so many different values."""
    return torch.randint(levels, (ROWS, LABELS), generator=torch.Generator().manual_seed(levels)).float() / levels


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


def test_more_labels_than_there_are_is_all_of_them() -> None:
    scores = scores_with_ties(10**6)
    assert torch.equal(best(scores, LABELS + 3)[0], in_order(scores))
    assert torch.equal(probable_labels(scores[None], LABELS + 3)[0], torch.arange(LABELS).expand(ROWS, -1))


def test_nothing_is_ranked_among_no_rows() -> None:
    ids, values = best(torch.empty(0, LABELS), KEPT)
    assert ids.shape == values.shape == (0, KEPT)
    assert probable_labels(torch.empty(2, 0, LABELS), KEPT).shape == (2, 0, KEPT)


def test_the_rank_of_a_label_is_its_place_in_that_order() -> None:
    scores = scores_with_ties(3)
    for label in range(0, LABELS, 7):
        place = (in_order(scores) == label).int().argmax(dim=1)
        assert torch.equal(ranks_of(scores, torch.full((ROWS,), label)), place)
