"""Metrics of anticipation: by hand, and on recorded cases."""

import numpy as np
import pytest
from planners_fixture import golden

from trajpilot_core.metrics.epic_kitchens import (
    ACTION,
    PARTS,
    VERB,
    ActionClips,
    class_mean,
    clip_mean,
    hits_of,
    pair_codes,
    ranked,
    score,
)


def clips_of(verbs: list[int], nouns: list[int], **changes: list[bool]) -> ActionClips:
    """Clips that are in no set but for `changes`."""
    no, yes = np.zeros(len(verbs), bool), np.ones(len(verbs), bool)
    clips = ActionClips(np.array(verbs), np.array(nouns), no, no, no, yes)
    return clips._replace(**{name: np.array(values) for name, values in changes.items()})


def test_the_recorded_cases_are_reproduced() -> None:
    case = golden("epic")
    scores, labels = np.array(case["scores"]), np.array(case["labels"])
    ranking = ranked(scores, np.arange(scores.shape[1]))
    assert class_mean(labels, hits_of(labels, ranking, 5)) == pytest.approx(
        100 * case["c3_mean_top5_recall_fraction"], abs=1e-6
    )
    assert [clip_mean(hits_of(labels, ranking, k)) for k in (1, 5)] == pytest.approx(
        [100 * share for share in case["c3_top1_top5_instance_accuracy"]], abs=1e-6
    )
    theirs = case["vjepa2_k1"]
    assert class_mean(labels, hits_of(labels, ranking, 1)) == pytest.approx(theirs["recall"], abs=1e-4)
    assert clip_mean(hits_of(labels, ranking, 1)) == pytest.approx(theirs["accuracy"], abs=1e-4)
    assert class_mean(labels, hits_of(labels, ranking, 5)) == pytest.approx(case["vjepa2_class_mean_recall5"], abs=1e-4)
    assert clip_mean(hits_of(labels, ranking, 5)) == pytest.approx(case["vjepa2_accuracy_key_is_top5_instance"])
    present = np.unique(labels)
    restricted = hits_of(labels, ranked(scores[:, present], present), 5)
    theirs = case["vjepa2_valid_classes_restricted"]
    assert class_mean(labels, restricted) == pytest.approx(theirs["recall"], abs=1e-4)
    assert clip_mean(restricted) == pytest.approx(theirs["accuracy"], abs=1e-4)


def test_logits_are_ranked_where_a_float32_sigmoid_ties() -> None:
    """Planted: ranking by a float32 sigmoid, which is 1.0 for seven of these and so loses the true class."""
    logits = np.array([[17.6, 18.0, 19.0, 20.0, 21.0, 22.0, 30.0]], np.float32)
    true = np.array([6])
    assert ranked(logits, np.arange(7)).tolist() == [[6, 5, 4, 3, 2]]
    assert class_mean(true, hits_of(true, ranked(logits, np.arange(7)), 5)) == 100
    saturated = (1 / (1 + np.exp(-logits))).astype(np.float32)
    assert (saturated == 1).all()
    assert class_mean(true, hits_of(true, ranked(saturated, np.arange(7)), 5)) == 0


def test_rows_whose_pair_training_lacks_count_in_the_challenge_alone() -> None:
    clips = clips_of([1, 1, 2], [5, 5, 6], has_trained_pair=[True, True, False])
    action = np.tile(pair_codes(np.array([1]), np.array([5])), (3, 1))
    rankings = {"verb": np.full((3, 1), 1), "noun": np.full((3, 1), 5), "action": action}
    challenge, trained = (score(ACTION, clips, rankings, space=space) for space in ("challenge", "trained_pairs"))
    assert (challenge.value, challenge.n_clips, challenge.n_classes) == (50, 3, 2)
    assert (trained.value, trained.n_clips, trained.n_classes) == (100, 2, 1)


def test_the_tail_is_another_set_for_each_part() -> None:
    clips = clips_of([1, 2, 3], [5, 6, 7], is_tail_verb=[True, False, False], is_tail_noun=[False, True, False])
    kept = [np.flatnonzero(clips.kept("tail", "challenge", part)).tolist() for part in PARTS]
    assert kept == [[0], [1], [0, 1]]


def test_a_set_without_a_clip_has_no_value_and_a_small_head_is_filled_up() -> None:
    clips = clips_of([1], [5])
    rankings = {part: ranked(np.zeros((1, 2)), np.array([3, 1])) for part in PARTS}
    assert rankings["verb"].tolist() == [[3, 1, -1, -1, -1]]
    assert score(VERB, clips, rankings).value == 100
    assert np.isnan(score(VERB, clips, rankings, "unseen").value)
