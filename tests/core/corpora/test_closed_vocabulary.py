"""The closed vocabulary of atomic descriptions: classes of (verb, head noun)."""

from collections import Counter
from pathlib import Path

import pytest
from egoexo_fixture import SMALL, annotate, describe, healthy, ingest, pretend_probe
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.corpora import AtomicConfig
from trajpilot_core.corpora.records.closed_vocabulary import choose_classes, verb_noun

words = st.sampled_from(["cuts", "cut", "picks", "up", "the", "carrots", "knife", "with", "a", "pan", "washes"])
labels = st.lists(words, min_size=1, max_size=5).map(" ".join)


@pytest.mark.parametrize(
    ("label", "pair"),
    [
        ("cuts the carrot with a knife", ("cut", "carrot")),
        ("picks up the red cups from the table", ("pick", "cup")),
        ("walks to the table", ("walk", "table")),
        ("washes the knives", ("wash", "knife")),
        ("carries a glass", ("carry", "glass")),
        ("stands", ("stand", "")),
        ("passes a box to the man", ("pass", "box")),
        ("places the piece of bread on the plate", ("place", "piece")),
    ],
)
def test_a_label_is_its_verb_and_the_head_of_its_first_noun_phrase(label: str, pair: tuple[str, str]) -> None:
    assert verb_noun(label) == pair


def test_as_many_classes_are_kept_as_come_nearest_to_the_number_that_is_asked_for() -> None:
    trained = {"cut the carrot": 9, "wash the pan": 5, "cut the onion": 2, "open the door": 2, "close it": 1}
    assert choose_classes(trained, trained, 2).least == 5
    assert choose_classes(trained, trained, 4).least == 2
    assert choose_classes(trained, trained, 3).least == 2, "of two numbers as near the larger"
    assert choose_classes(trained, trained, 900).least == 1


def test_a_rare_label_goes_to_the_class_whose_training_texts_share_most_words() -> None:
    trained = {"cut the carrot on the board": 9, "wash the pan": 5, "slice the carrot": 1}
    classes = choose_classes(trained, [*trained, "rinse the pan", "sing"], 2)
    assert classes.of["slice the carrot"] == ("cut", "carrot")
    assert classes.of["rinse the pan"] == ("wash", "pan")
    assert classes.of["sing"] == ("cut", "carrot"), "without a word in common: the most frequent class"


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    st.dictionaries(labels, st.integers(1, 9), min_size=1, max_size=12), st.lists(labels, max_size=6), st.integers(2, 9)
)
def test_every_label_has_one_kept_class_whatever_the_order(trained: dict[str, int], more: list[str], n: int) -> None:
    classes = choose_classes(trained, [*trained, *more], n)
    assert set(classes.of) == {*trained, *more}
    times: Counter[tuple[str, str]] = Counter()
    for label, count in trained.items():
        times[verb_noun(label)] += count
    assert all(times[pair] >= classes.least for pair in classes.of.values())
    again = choose_classes(dict(reversed(trained.items())), [*more, *trained], n)
    assert again == classes


def test_the_collapse_changes_labels_alone_and_its_count_stands_beside_the_papers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trajpilot_core.corpora.records.videos.probe_many", pretend_probe())
    corpus = healthy(tmp_path)
    texts = ["C cuts the carrot.", "C cuts the carrots with a knife.", "C washes the pan.", "C rinses the pan."]
    for annotations in (corpus.train, corpus.val):
        for uid in annotations:
            annotations[uid] = [annotate([describe(text, 1.0 + i) for i, text in enumerate(texts)])]
    root = corpus.write()
    opened = ingest(root)
    closed = ingest(root, SMALL.replace(atomic=AtomicConfig(vocabulary="closed", classes=2)))
    assert {row["label_id"] for row in closed.rows("labels")} == {"cut carrot", "rinse pan", "wash pan"}
    assert opened.tables["windows"].equals(closed.tables["windows"])
    assert [row["start_s"] for row in opened.rows("segments")] == [row["start_s"] for row in closed.rows("segments")]
    assert [(row["verb"], row["noun"]) for row in closed.rows("details")[:2]] == [("cut", "carrot"), ("cut", "carrot")]
    found = {row["what"]: (row["ours"], row["paper"]) for row in closed.rows("counts")}
    assert found["labels"] == (3, 1165)
    assert found["training segments that a class needs"] == (3, None)
    assert {row["what"]: row["paper"] for row in opened.rows("counts")}["labels"] == 8472
