"""Metrics of anticipation: by hand, on recorded cases, and on the released validation file."""

import numpy as np
import pytest
from checkout import OUTSIDE
from planners_fixture import golden

from trajpilot_core.corpora.epic_kitchens.files import parse_actions, parse_column
from trajpilot_core.metrics.epic_kitchens import (
    ACTION,
    ACTION_ACC,
    ACTION_TOP1,
    NOUN,
    PARTS,
    SUBSETS,
    VERB,
    ActionClips,
    class_mean,
    clip_mean,
    hits_of,
    pair_codes,
    ranked,
    score,
)
from trajpilot_core.store.corpus_files import SAFE_NAME

EPIC_DATA = OUTSIDE / "data" / "epic100"
released = pytest.mark.skipif(
    not EPIC_DATA.is_dir(), reason=f"the released annotations of EPIC-KITCHENS-100 are not at {EPIC_DATA}"
)


def clips_of(verbs: list[int], nouns: list[int], **changes: list[bool]) -> ActionClips:
    """Clips that are in no set but for `changes`."""
    no, yes = np.zeros(len(verbs), bool), np.ones(len(verbs), bool)
    clips = ActionClips(np.array(verbs), np.array(nouns), no, no, no, yes)
    return clips._replace(**{name: np.array(values) for name, values in changes.items()})


@pytest.fixture(scope="module")
def validation() -> ActionClips:
    """The released validation file; which pairs training has is not known."""

    def read(name: str) -> bytes:
        return (EPIC_DATA / f"EPIC_100_{name}.csv").read_bytes()

    rows = parse_actions(read("validation"), "validation").actions
    tail_verbs, tail_nouns = (parse_column(read(f"tail_{one}s"), one, one) for one in ("verb", "noun"))
    unseen = parse_column(read("unseen_participant_ids_validation"), "unseen", "participant_id", SAFE_NAME)
    verbs, nouns = [row.verb_class for row in rows], [row.noun_class for row in rows]
    return clips_of(
        verbs,
        nouns,
        is_unseen=[row.participant in unseen for row in rows],
        is_tail_verb=[str(verb) in tail_verbs for verb in verbs],
        is_tail_noun=[str(noun) in tail_nouns for noun in nouns],
    )


def constant(clips: ActionClips, answers: dict[str, np.ndarray]) -> dict:
    """The same five classes for every clip."""
    return {part: np.tile(answers[part], (len(clips.verbs), 1)) for part in PARTS}


def most_frequent(classes: np.ndarray) -> np.ndarray:
    """The five most frequent classes."""
    found, counts = np.unique(classes, return_counts=True)
    return found[np.argsort(-counts, kind="stable")[:5]]


@released
def test_five_constant_classes_have_five_of_the_classes_present(validation: ActionClips) -> None:
    rng = np.random.default_rng(0)
    five = {part: rng.choice(np.unique(validation.classes(part)), 5, replace=False) for part in PARTS}
    found = [score(metric, validation, constant(validation, five)) for metric in (VERB, NOUN, ACTION)]
    assert [one.n_clips for one in found] == [9668] * 3
    assert [one.n_classes for one in found] == [78, 211, 1352]
    assert [one.value for one in found] == pytest.approx([500 / 78, 500 / 211, 500 / 1352], abs=1e-9)


@released
def test_the_most_frequent_actions_are_right_as_often_as_was_counted(validation: ActionClips) -> None:
    found = {}
    for part in PARTS:
        classes = validation.classes(part)
        five = np.tile(most_frequent(classes), (len(classes), 1))
        found[part] = [round(clip_mean(hits_of(classes, five, k)), 2) for k in (5, 1)]
    assert found == {"verb": [64.18, 20.04], "noun": [18.81, 4.45], "action": [9.02, 2.35]}
    answers = constant(validation, {part: most_frequent(validation.classes(part)) for part in PARTS})
    top5, planted_top1 = (score(metric, validation, answers).value for metric in (ACTION_ACC, ACTION_TOP1))
    assert round(top5, 2) == 9.02
    assert round(planted_top1, 2) != 9.02, "Action Acc. read as top-1 is another number"


@released
def test_the_sets_of_the_challenge_hold_what_was_counted(validation: ActionClips) -> None:
    answers = constant(validation, {part: most_frequent(validation.classes(part)) for part in PARTS})
    counted = {
        subset: [score(metric, validation, answers, subset)[1:] for metric in (VERB, NOUN, ACTION)]
        for subset in SUBSETS
    }
    assert counted["unseen"] == [(1065, 32), (1065, 80), (1065, 289)]
    assert counted["tail"] == [(1760, 67), (1900, 146), (3105, 998)]


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
