"""The closed vocabulary of atomic descriptions: classes of (verb, head noun)."""

from collections import Counter
from pathlib import Path

import pytest
from egoexo_fixture import SMALL, annotate, describe, healthy, ingest
from hypothesis import given
from hypothesis import strategies as st

from schemas.annotation import Label, LabelClass
from schemas.arrow import rows_of, table_of
from schemas.config import IngestConfig
from schemas.corpora import AtomicConfig
from trajpilot_core.corpora.records.closed_vocabulary import choose_classes, label_classes, verb_noun
from trajpilot_core.corpora.registry import SPECS

words = st.sampled_from(["cuts", "cut", "picks", "up", "the", "carrots", "knife", "with", "a", "pan", "washes"])
labels = st.lists(words, min_size=1, max_size=5).map(" ".join)


PAIRS_OF = {
    "cuts the carrot with a knife": ("cut", "carrot"),
    "picks up the red cups from the table": ("pick", "cup"),
    "walks to the table": ("walk", "table"),
    "washes the knives": ("wash", "knife"),
    "carries a glass": ("carry", "glass"),
    "stands": ("stand", ""),
    "passes a box to the man": ("pass", "box"),
    "places the piece of bread on the plate": ("place", "piece"),
}


def test_a_label_is_its_verb_and_the_head_of_its_first_noun_phrase() -> None:
    assert {label: verb_noun(label) for label in PAIRS_OF} == PAIRS_OF


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


def label_row(label_id: str, label: str, n_train: int, n_dev: int = 0, n_test: int = 0) -> Label:
    return Label(label_id=label_id, label=label, paraphrases=(label,), n_train=n_train, n_dev=n_dev, n_test=n_test)


LABELS = table_of(
    Label,
    [
        label_row("g1", "cuts the carrots", 3),
        label_row("g2", "cuts the carrot", 3, 9),
        label_row("g3", "cuts a carrot with a knife", 1, 0, 2),
        label_row("g4", "washes the pan", 6),
        label_row("g5", "rinses the pan", 1, 0, 4),
        label_row("g6", "sings", 0, 0, 1),
    ],
)


def test_a_class_takes_the_text_of_its_most_frequent_training_label_and_of_ties_the_first() -> None:
    found, counts = label_classes(LABELS, 2)
    rows = {row.label_id: row for row in rows_of(LabelClass, found)}
    assert [rows[f"g{n}"].class_id for n in range(1, 7)] == ["g2", "g2", "g2", "g4", "g4", "g2"]
    assert rows["g3"].class_text == "cuts the carrot", "of three training segments each, the first text in order"
    assert [row.n_train for row in rows.values()] == [3, 3, 1, 6, 1, 0]
    assert {one.what: (one.ours, one.paper) for one in counts} == {
        "classes": (2, 1165),
        "training segments that a class needs": (6, None),
        "segments moved to the nearest class": (6, None),
    }


def test_a_closed_corpus_keeps_every_label_as_a_class_of_its_own_and_counts_nothing() -> None:
    found, counts = label_classes(LABELS, None)
    assert found["class_id"].equals(found["label_id"])
    assert found["class_text"].to_pylist() == LABELS["label"].to_pylist()
    assert counts == ()
    assert {spec.name: spec.n_classes(IngestConfig()) for spec in SPECS if spec.n_classes(IngestConfig())} == {
        "egoexo4d_atomic": 1165
    }


@pytest.mark.usefixtures("no_decoder")
def test_ingest_writes_classes_next_to_labels_and_counts_them_beside_the_papers(tmp_path: Path) -> None:
    corpus = healthy(tmp_path)
    texts = ["C cuts the carrot.", "C cuts the carrots with a knife.", "C washes the pan.", "C rinses the pan."]
    for annotations in (corpus.train, corpus.val):
        for uid in annotations:
            annotations[uid] = [annotate([describe(text, 1.0 + i) for i, text in enumerate(texts)])]
    root = corpus.write()
    whole = ingest(root)
    few = ingest(root, SMALL.replace(atomic=AtomicConfig(classes=2)))
    assert {row["label_id"]: row["class_id"] for row in few.rows("label_classes")} == {
        "cuts the carrot": "cuts the carrot",
        "cuts the carrots with a knife": "cuts the carrot",
        "rinses the pan": "rinses the pan",
        "washes the pan": "washes the pan",
    }
    for name in ("segments", "windows", "labels", "details"):
        assert whole.tables[name].equals(few.tables[name]), "labels stay what they are"
    found = {row["what"]: (row["ours"], row["paper"]) for row in few.rows("counts")}
    assert found["classes"] == (3, 1165)
    assert found["training segments that a class needs"] == (3, None)
    assert found["labels"] == (4, 8472)
