"""One fault per reject code of ingest, to be planted in the take `train_0` of `egoexo_fixture.healthy`."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from egoexo_fixture import EgoExoCorpus, annotate, describe, steps, take_record, video_bytes, write

from schemas.rejects import RejectCode

TAKE = "train_0"
UID = f"uid-{TAKE}"


class Planted(NamedTuple):
    """How a fault is planted before the documents are written, and the units that it costs."""

    plant: Callable[[EgoExoCorpus], None]
    n_units: int


def _record(corpus: EgoExoCorpus) -> dict[str, Any]:
    return next(r for r in corpus.takes if isinstance(r, dict) and r["take_name"] == TAKE)


def _descriptions(corpus: EgoExoCorpus) -> list[Any]:
    entries: Any = corpus.train[UID]
    return entries[0]["descriptions"]


def _change(corpus: EgoExoCorpus, **changes: object) -> None:
    _descriptions(corpus)[2].update(changes)


def _changes(**changes: object) -> Callable[[EgoExoCorpus], None]:
    return lambda corpus: _change(corpus, **changes)


def _take(**changes: object) -> Callable[[EgoExoCorpus], None]:
    return lambda corpus: _record(corpus).update(changes)


def _adds(*descriptions: object) -> Callable[[EgoExoCorpus], None]:
    return lambda corpus: _descriptions(corpus).extend(descriptions)


def _video(content: Callable[[], bytes]) -> Callable[[EgoExoCorpus], None]:
    return lambda corpus: write(corpus.video(TAKE), content())


def _with_zeros() -> bytes:
    content = bytearray(video_bytes())
    at = content.index(b"mdat") + 4
    content[at : at + 4000] = bytes(4000)
    return bytes(content)


def _unknown(corpus: EgoExoCorpus) -> None:
    corpus.takes.remove(_record(corpus))


def _unlabelled(corpus: EgoExoCorpus) -> None:
    del corpus.train[UID]


def _leftover(corpus: EgoExoCorpus) -> None:
    video = corpus.video(TAKE)
    write(video.with_name(f"{video.name}.F14eE010"), b"half")


def _second_annotator(corpus: EgoExoCorpus) -> None:
    corpus.train[UID] = [annotate(steps(6), "z"), annotate(steps(4), "b"), annotate(steps(6), "y")]


def _new_scenario(corpus: EgoExoCorpus) -> None:
    corpus.takes.append(take_record("uid-lonely", "lonely", "lonely", task_name="Cook an Omelet"))
    corpus.splits["uid-lonely"] = "train"


FAULTS: dict[RejectCode, Planted] = {
    RejectCode.TAKE_UNKNOWN: Planted(_unknown, 6),
    RejectCode.TAKE_NAME_INVALID: Planted(_take(take_name="../evil"), 6),
    RejectCode.TAKE_DROPPED: Planted(_take(is_dropped="1"), 6),
    RejectCode.NO_SPLIT: Planted(lambda corpus: corpus.splits.pop(UID), 6),  # type: ignore[arg-type, return-value]
    RejectCode.UNLABELLED: Planted(_unlabelled, 0),
    RejectCode.VIDEO_MISSING: Planted(lambda corpus: corpus.video(TAKE).unlink(), 6),
    RejectCode.WRONG_TYPE: Planted(_video(lambda: b"time,x,y\n" * 100), 6),
    RejectCode.DECODE_FAILED: Planted(_video(_with_zeros), 6),
    RejectCode.LATE_START: Planted(_video(lambda: video_bytes(12.0, start_s=1.0)), 0),
    RejectCode.VFR: Planted(_video(lambda: video_bytes(12.0, True)), 0),
    RejectCode.NO_TRAJECTORY: Planted(_take(has_trimmed_trajectory=False), 6),
    RejectCode.LEFTOVER_FILE: Planted(_leftover, 0),
    RejectCode.RECORD_MALFORMED: Planted(_changes(text=None), 1),
    RejectCode.ANNOTATION_REJECTED: Planted(
        lambda corpus: corpus.train[UID].append(annotate(steps(9), "a0", rejected=True)),  # type: ignore[attr-defined]
        9,
    ),
    RejectCode.ANNOTATOR_NOT_CHOSEN: Planted(_second_annotator, 10),
    RejectCode.NOT_WEARER: Planted(_changes(subject="O"), 1),
    RejectCode.UNSURE: Planted(_changes(unsure="1"), 1),
    RejectCode.NOT_EGO_VISIBLE: Planted(_changes(ego_visible="0"), 1),
    RejectCode.DUPLICATE: Planted(_adds(describe("C does step 5.", 8.5)), 1),
    RejectCode.TS_INVALID: Planted(_changes(timestamp=float("nan")), 1),
    RejectCode.TS_REORDERED: Planted(lambda corpus: _descriptions(corpus).reverse(), 0),
    RejectCode.LABEL_EMPTY: Planted(_changes(text="C ..."), 1),
    RejectCode.SEGMENT_EMPTY: Planted(_adds(describe("C x.", 4.0), describe("C y.", 4.0)), 1),
    RejectCode.SEGMENT_CLIPPED: Planted(_adds(describe("C ends.", 11.5)), 0),
    RejectCode.SEGMENT_OUTSIDE: Planted(_adds(describe("C is late.", 13.0)), 1),
    RejectCode.SCENARIO_VANISHED: Planted(_new_scenario, 0),
}
"""Code -> its fault. INPUT_UNSTABLE, the one code that no file shows, is planted by test_ingest_faults.py itself."""


def repeat_key(document: object, holder: str, key: str) -> bytes:
    """Return the JSON of a document in which the object that holds `"holder": value` repeats `key` before it."""
    return json.dumps(document).replace(f'"{holder}"', f'"{key}": 1, "{holder}"', 1).encode()
