"""Ego-Exo4D keysteps: a made corpus of a few takes, and every fault that its files can have."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
from egoexo_fixture import EgoExoCorpus, Json, RecordingSink, healthy, ingest, list_sources, write_json
from test_ingest_fuzz import mutate, survivors

from schemas.config import IngestConfig
from schemas.corpora import KeystepConfig
from schemas.rejects import RejectCode

pytestmark = pytest.mark.usefixtures("no_decoder")
CONFIG = IngestConfig(corpus="egoexo4d_keystep", dev_min=1, max_horizon=4)
NAMES = {818: "Check the date", 843: "Unbox package", 900: "Wait", 901: "Check the date"}


def segment(start: object, end: object, uid: object = 843, **changes: object) -> Json:
    found = {
        "start_time": start,
        "end_time": end,
        "step_id": 31,
        "step_unique_id": uid,
        "step_name": f"said {uid}",
        "step_description": "free text",
        "is_essential": True,
    }
    return {**found, **changes}


def annotation(*segments: object, scenario: str = "Covid test", **changes: object) -> Json:
    meta = {"annotation_uid": "a-1", "annotator_id": 579}
    return {"scenario": scenario, "annotation_metadata": meta, "segments": list(segments), **changes}


def whole() -> list[Json]:
    """Four segments; neighbours almost touch, and the third is of a step that is no leaf."""
    return [segment(0.5, 2.004), segment(2.00401, 4, 818), segment(4, 9, 900, is_essential=False), segment(9, 10, 901)]


def taxonomy(*, leaves: tuple[int, ...] = (818, 843, 901)) -> Json:
    nodes = {str(n): {"id": n, "is_leafnode": uid in leaves, "unique_id": uid} for n, uid in enumerate(NAMES, 1)}
    return {"0": {"id": 0, "is_leafnode": False, "name": "root", "parent_id": None}, **nodes}


class Keysteps:
    """A corpus of three training takes and one test take, each with four keysteps, to be changed before `read`."""

    def __init__(self, root: Path) -> None:
        self.corpus: EgoExoCorpus = healthy(root)
        self.train: dict[str, Any] = {f"uid-train_{i}": annotation(*whole()) for i in range(3)}
        self.val: dict[str, Any] = {"uid-test_0": annotation(*whole())}
        self.document: Json = {
            "taxonomy": {"Covid test": taxonomy(), "Other": taxonomy(leaves=(900,))},
            "vocabulary": {str(uid): name for uid, name in NAMES.items()},
        }

    def write(self) -> Path:
        root = self.corpus.write()
        for split, annotations in (("train", self.train), ("val", self.val)):
            write_json(root / f"annotations/keystep_{split}.json", {"annotations": annotations, **self.document})
        return root

    def read(self, config: IngestConfig = CONFIG, **keystep: object) -> RecordingSink:
        return ingest(self.write(), config.replace(keystep=KeystepConfig(**keystep)))


@pytest.fixture
def keysteps(tmp_path: Path) -> Keysteps:
    return Keysteps(tmp_path)


def test_a_keystep_is_known_by_its_unique_id_and_named_by_the_vocabulary(keysteps: Keysteps) -> None:
    sink = keysteps.read()
    assert {row["label_id"]: row["label"] for row in sink.rows("labels")} == {str(k): v for k, v in NAMES.items()}
    first = sink.rows("segments")[0]
    assert (first["raw_text"], first["annotation_uid"], first["annotator"]) == ("said 843", "a-1", "579")
    assert {row["scenario"] for row in sink.rows("takes")} == {"Covid test"}
    assert (first["start_s"], first["end_s"], first["anchor_s"]) == (0.5, 2.004, 1.252)
    assert not sink.codes()
    found = {row["what"]: (row["ours"], row["paper"]) for row in sink.rows("counts")}
    assert (found["labels"], found["scenarios"]) == ((4, 375), (1, 16))
    assert (found["segments, train"], found["segments, test"]) == ((12, 13_819), (4, 4_272))


def test_either_name_of_the_annotations_metadata_is_read(keysteps: Keysteps) -> None:
    changed = annotation(*whole())
    changed["annotation_meta"] = changed.pop("annotation_metadata")
    keysteps.val["uid-test_0"] = changed
    assert {row["annotator"] for row in keysteps.read().rows("segments")} == {"579"}


BAD_SEGMENTS: list[tuple[object, str]] = [
    *((bad, "RECORD_MALFORMED") for bad in ({"step_name": "x"}, "a text", segment(1, 2, None), segment(1, 2, 1.5))),
    *((segment(*span), "TS_INVALID") for span in ((float("nan"), 2), (1, float("inf")), (-1, 2), ("1", 2), (1, None))),
    *((segment(3, end), "SEGMENT_EMPTY") for end in (3, 2)),
    (segment(13, 15), "SEGMENT_OUTSIDE"),
    (segment(1, 2, 77, step_name=""), "LABEL_EMPTY"),
    (segment(9, 10, 901), "DUPLICATE"),
]


def test_a_bad_segment_costs_itself(keysteps: Keysteps) -> None:
    for bad, code in BAD_SEGMENTS:
        keysteps.val["uid-test_0"] = annotation(*whole(), bad)
        sink = keysteps.read()
        assert {code: n for code, n in sink.codes().items() if n} == {code: 1}, bad
        assert sink.n_out == 16
        assert [row.source_offset for row in sink.of(RejectCode(code))] == [4]


def test_a_take_whose_record_is_bad_costs_itself(keysteps: Keysteps) -> None:
    for value, code, units in (
        ([annotation(*whole())], "RECORD_MALFORMED", 0),
        (annotation(*whole(), take_uid="another"), "RECORD_MALFORMED", 4),
        ({"segments": {"0": segment(1, 2)}}, "RECORD_MALFORMED", 0),
        (None, "RECORD_MALFORMED", 0),
        (annotation(), "UNLABELLED", 0),
    ):
        keysteps.train["uid-train_1"] = value
        sink = keysteps.read()
        assert sink.codes() == {code: units}, value
        assert len(sink.rows("takes")) == 3


def test_takes_unknown_doubled_in_the_wrong_file_without_video_or_poses_cost_themselves(keysteps: Keysteps) -> None:
    keysteps.train["uid-nobody"] = annotation(*whole())
    keysteps.train["uid-test_0"] = annotation(*whole())
    keysteps.corpus.add("blind", "train", video=None)
    keysteps.corpus.add("lost", "train", trajectory=False)
    keysteps.train |= {"uid-blind": annotation(*whole()), "uid-lost": annotation(*whole())}
    units = {code: n for code, n in keysteps.read().codes().items() if n}
    assert units == {"TAKE_UNKNOWN": 4, "NO_SPLIT": 4, "VIDEO_MISSING": 4, "NO_TRAJECTORY": 4}
    assert "NO_TRAJECTORY" not in keysteps.read(CONFIG.replace(require_trajectory=False)).codes()


def test_segments_that_are_not_in_order_are_sorted_and_it_is_said(keysteps: Keysteps) -> None:
    keysteps.val["uid-test_0"] = annotation(*whole()[::-1])
    sink = keysteps.read()
    assert sink.codes() == {"TS_REORDERED": 0}
    keysteps.val["uid-test_0"] = annotation(*whole(), segment(9.5, 11))
    assert keysteps.read().codes() == {"SEGMENT_OVERLAP": 0}
    assert [row["label_id"] for row in sink.rows("segments")][:4] == ["843", "818", "900", "901"]


def test_each_filter_that_the_paper_leaves_open_is_a_setting_and_says_what_it_cost(keysteps: Keysteps) -> None:
    keysteps.train["uid-train_0"] = annotation(*whole(), segment(10, 11, 818), scenario="Other")
    assert keysteps.read(leaves_only=True).codes() == {"FILTERED": 3 + 4}, "900 is the only leaf of the scenario Other"
    assert keysteps.read(essential_only=True).codes() == {"FILTERED": 4}
    assert keysteps.read(skip_scenarios=("Other",)).codes() == {"FILTERED": 5}
    rare = keysteps.read(min_label_train=4)
    assert rare.codes() == {"LABEL_RARE": 17 - 5}
    assert [row["label_id"] for row in rare.rows("labels")] == ["818"]


def test_mutated_keysteps_never_crash_and_rows_balance(keysteps: Keysteps) -> None:
    clean = copy.deepcopy((keysteps.train, keysteps.document))

    def damaged(order: random.Random, seed: int) -> None:
        keysteps.train, keysteps.document = copy.deepcopy(clean)
        mutate(keysteps.train if seed % 4 else keysteps.document, order)

    assert survivors(60, damaged, lambda: (list_sources(keysteps.write(), CONFIG), keysteps.read())) > 50
