"""Every kind of broken input that ingest can meet is named in the rejects table, and the rest of the corpus goes on."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from egoexo_fixture import (
    SMALL,
    EgoExoCorpus,
    annotate,
    describe,
    healthy,
    ingest,
    list_sources,
    pretend_probe,
    steps,
    video_bytes,
    write,
)

from schemas.rejects import RejectCode, reject
from trajpilot_core.corpora.egoexo4d import atomic
from trajpilot_core.errors import InputError
from trajpilot_core.simworld.faults import TAKE_FAULTS
from trajpilot_core.store import corpus_files as corpus_files

TAKE = "train_0"
UID = f"uid-{TAKE}"


def of_take(sink: Any, name: str = TAKE) -> list[dict[str, Any]]:
    return [row for row in sink.rows("segments") if row["take_id"] == f"egoexo4d:uid-{name}"]


@pytest.fixture(autouse=True)
def no_decoder_where_no_video_is_at_fault(request: pytest.FixtureRequest) -> None:
    if "video" not in request.fixturenames:
        request.getfixturevalue("no_decoder")


def with_zeros() -> bytes:
    content = bytearray(video_bytes())
    at = content.index(b"mdat") + 4
    content[at : at + 4000] = bytes(4000)
    return bytes(content)


BAD_VIDEOS = {
    "WRONG_TYPE": (lambda: b"time,x,y\n" * 100, 6),
    "DECODE_FAILED": (with_zeros, 6),
    "LATE_START": (lambda: video_bytes(12.0, start_s=1.0), 0),
    "VFR": (lambda: video_bytes(12.0, True), 0),
}
"""Code -> content of a take's video, and the units that it costs."""


@pytest.mark.parametrize("video", BAD_VIDEOS)
def test_a_bad_video_becomes_its_code_and_costs_its_units(video: str, tmp_path: Path) -> None:
    corpus, (content, n_units) = healthy(tmp_path), BAD_VIDEOS[video]
    write(corpus.video(TAKE), content())
    assert ingest(corpus.write()).codes() == {video: n_units}


PLANTED: dict[str, tuple[Callable[[EgoExoCorpus], object], int]] = {
    "TAKE_UNKNOWN": (lambda corpus: corpus.takes.pop(0), 6),
    "NO_SPLIT": (lambda corpus: corpus.splits.pop(UID), 6),
    "UNLABELLED": (lambda corpus: corpus.train.pop(UID), 0),
    "VIDEO_MISSING": (lambda corpus: corpus.video(TAKE).unlink(), 6),
    "SCENARIO_VANISHED": (lambda corpus: corpus.takes[0].update(task_name="Cook", has_trimmed_trajectory=False), 0),  # type: ignore[attr-defined]
    "ANNOTATION_REJECTED": (lambda corpus: corpus.train[UID].append(annotate(steps(9), "a0", rejected=True)), 9),  # type: ignore[attr-defined]
}
ADDED: dict[str, tuple[list[object], int]] = {
    "TS_INVALID": ([describe("C x.", float("nan"))], 1),
    "LABEL_EMPTY": ([describe("C ...", 10.0)], 1),
    "SEGMENT_EMPTY": ([describe("C x.", 4.0), describe("C y.", 4.0)], 1),
    "SEGMENT_CLIPPED": ([describe("C ends.", 11.5)], 0),
    "SEGMENT_OUTSIDE": ([describe("C is late.", 13.0)], 1),
    "DUPLICATE": ([describe("C does step 5.", 8.5)], 1),
}
"""Code -> further descriptions of the take, and the units that they cost."""


def test_a_planted_fault_becomes_its_code_and_costs_its_units(tmp_path: Path, subtests: pytest.Subtests) -> None:
    sink = ingest(healthy(tmp_path / "healthy").write())
    assert (sink.rejects, sink.n_in, sink.n_out) == ([], 24, 24)
    added = {
        code: (lambda corpus, more=more: corpus.train[UID][0]["descriptions"].extend(more), n)
        for code, (more, n) in ADDED.items()
    }
    for code, (plant, n_units) in (PLANTED | added).items():
        with subtests.test(code=code):
            corpus = healthy(tmp_path / code)
            plant(corpus)
            sink = ingest(corpus.write())
            assert sink.codes().get(RejectCode(code)) == n_units, sink.codes()
            others = {f"egoexo4d:uid-{name}" for name in ("train_1", "train_2", "test_0")}
            assert {row["take_id"] for row in sink.rows("takes")} >= others


def test_an_annotation_file_that_changes_while_it_is_read_is_unstable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = healthy(tmp_path).write()
    stats = iter(range(10**6))

    def moving(corpus: corpus_files.Corpus, relative: str) -> tuple[int, str]:
        return next(stats), ""

    def only_train(corpus: corpus_files.Corpus, relative: str) -> Any:
        return moving(corpus, relative) if relative.endswith("_train.json") else real(corpus, relative)

    real = corpus_files.stat
    monkeypatch.setattr(corpus_files, "stat", only_train)
    with pytest.raises(InputError, match=r"train\.json cannot be read: the file changed while it was read"):
        ingest(root)


def test_a_video_that_changes_while_it_is_probed_is_unstable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = healthy(tmp_path)
    probe = pretend_probe()

    def touching(paths: list[str], *rest: Any) -> Any:
        corpus.video(TAKE).write_bytes(b"longer now, and another time of change")
        return probe(paths, *rest)

    monkeypatch.setattr("trajpilot_core.corpora.records.videos.probe_many", touching)
    assert ingest(corpus.write()).codes() == {"INPUT_UNSTABLE": 6}


NAMES = (".hidden", "a\u0000b", "x" * 129, "ta\u212ae", "line\n")
ROOTS = ("takes/../../etc", "/etc", "s3://bucket/take")


def rgb(path: str | None) -> dict[str, object]:
    return {"frame_aligned_videos": {"aria02": {"rgb": {"relative_path": path}}}}


BAD_RECORDS: list[tuple[dict[str, object], str]] = [
    *(({"take_name": name}, "TAKE_NAME_INVALID") for name in NAMES),
    *(({"root_dir": root}, "TAKE_NAME_INVALID") for root in ROOTS),
    (rgb("../../x.mp4"), "TAKE_NAME_INVALID"),
    *((change, "TAKE_DROPPED") for change in ({"validated": False}, {"validated": None}, {"is_dropped": "1"})),
    ({"has_trimmed_trajectory": False}, "NO_TRAJECTORY"),
    *((change, "VIDEO_MISSING") for change in ({"frame_aligned_videos": {}}, rgb(None))),
    *(({name: value}, "RECORD_MALFORMED") for name, value in (("take_name", None), ("capture", "none"))),
    ({"capture": {"cameras": [{"cam_id": "gp01", "is_ego": True}]}}, "RECORD_MALFORMED"),
    ({"take_uid": "../x"}, "TAKE_UNKNOWN"),
]


def test_a_bad_take_record_costs_its_take_only(tmp_path: Path) -> None:
    corpus = healthy(tmp_path)
    whole = corpus.takes[0]
    for change, code in BAD_RECORDS:
        corpus.takes[0] = whole | change  # type: ignore[operator]
        sink = ingest(corpus.write())
        assert sink.codes().get(code) == 6, change
        assert len(sink.rows("takes")) == 3


BROKEN: list[tuple[object, int]] = [
    *((entries, 0) for entries in ("text", {}, [None], [[]], [{"descriptions": 3}])),
    ([annotate(steps(), uid="")], 6),
    ([annotate(steps(), rejected="maybe")], 6),
    ([annotate([None, 3, "x", [], {}])], 5),
    ([annotate([describe("x", t) for t in (None, "3", -1, True, [], 1e400)])], 6),
    ([annotate([{"text": "C x.", "timestamp": 1.0}])], 1),
    ([annotate([describe("C \ud800", 1.0)])], 1),
    ([annotate([describe("C x.", 1.0, unsure="perhaps")])], 1),
]


def test_a_broken_annotation_costs_its_take_only(tmp_path: Path) -> None:
    corpus = healthy(tmp_path)
    for entries, n_in in BROKEN:
        corpus.train[UID] = entries
        sink = ingest(corpus.write())
        assert (sink.n_in, of_take(sink)) == (18 + n_in, []), entries
        assert set(sink.codes()) <= {"RECORD_MALFORMED", "TS_INVALID", "UNLABELLED"}


BROKEN_FILES = [
    (b"\xef\xbb\xbf{}", "byte order mark at byte 0|byte order mark; save it as UTF-8 without one at byte 0"),
    (b'{"annotations": {"a": "\xff"}}', "not UTF-8 .* at byte 23"),
    ('{"annotations": {"é": ]}}'.encode(), "no JSON .* at byte 23"),
    (b"[" * 100_000, "nested too deeply"),
    (b'{"annotations": ' + b"9" * 5000 + b"}", "no usable JSON"),
    (b"[]", "expected one object"),
    (b"", "no JSON"),
    (b'{"annotations": {"x": [], "x": []}}', "an object contains a key twice: .*'x'"),
]
SPLITS = "annotations/splits.json"
BROKEN_METADATA = [
    ("takes.json", b"[]", "without takes"),
    ("takes.json", b"{}", "expected a list of takes"),
    ("takes.json", b'[{"a": {"b": 1, "b": 1}}]', "an object contains a key twice: .*'b'"),
    (SPLITS, b'{"take_uid_to_split": []}', "take_uid_to_split"),
    (SPLITS, b'{"take_uid_to_split": {"x": "holdout"}}', "no take of the splits train and val in "),
]


def test_a_broken_annotation_file_is_named_with_its_place(tmp_path: Path, subtests: pytest.Subtests) -> None:
    root = healthy(tmp_path).write()
    for content, said in BROKEN_FILES:
        with subtests.test(said=said):
            write(root / "annotations/atomic_descriptions_val.json", content)
            with pytest.raises(InputError, match=r"atomic_descriptions_val\.json cannot be read: .*download") as caught:
                ingest(root)
            assert caught.match(said)


def test_broken_metadata_is_an_error_with_advice(tmp_path: Path, subtests: pytest.Subtests) -> None:
    corpus = healthy(tmp_path)
    for path, content, said in BROKEN_METADATA:
        with subtests.test(said=said):
            file = corpus.write() / path
            write(file, content)
            with pytest.raises(InputError, match=said) as caught:
                ingest(tmp_path)
            assert caught.match("fetch|download")
    for root in ("", str(tmp_path / "nothing")):
        with pytest.raises(InputError, match="give the folder of the download"):
            list_sources(root)


def test_no_take_is_in_two_splits(tmp_path: Path) -> None:
    corpus = healthy(tmp_path)
    corpus.val[UID] = corpus.train[UID]
    sink = ingest(corpus.write())
    assert sink.codes() == {"NO_SPLIT": 6}
    assert {row["split"] for row in of_take(sink)} <= {"train", "dev"}
    corpus.splits[UID] = "val"
    assert {row["split"] for row in of_take(ingest(corpus.write()))} == {"test"}


def test_a_lost_description_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = atomic.read_annotation

    def forgetful(entry: Any, config: Any) -> Any:
        return real({**entry, "descriptions": entry["descriptions"][1:]}, config)

    monkeypatch.setattr(atomic, "read_annotation", forgetful)
    with pytest.raises(AssertionError, match="24 in, 20 out, 0 lost"):
        ingest(healthy(tmp_path).write())


def test_two_takes_that_claim_one_video_are_both_refused(tmp_path: Path) -> None:
    corpus = healthy(tmp_path, n_train=4)
    corpus.takes[1]["root_dir"] = corpus.takes[0]["root_dir"]  # type: ignore[index]
    assert ingest(corpus.write()).codes() == {"RECORD_MALFORMED": 12}
    corpus.takes[1] = corpus.takes[0]
    assert ingest(corpus.write()).codes() == {"RECORD_MALFORMED": 6, "TAKE_UNKNOWN": 6}


def test_an_emptied_split_names_the_codes_that_emptied_it(tmp_path: Path) -> None:
    corpus = healthy(tmp_path)
    for name in ("train_0", "train_1"):
        corpus.video(name).unlink()
    corpus.takes[2]["has_trimmed_trajectory"] = False  # type: ignore[index]
    with pytest.raises(InputError) as caught:
        ingest(corpus.write())
    assert caught.match("released split train is left: 3 takes")
    assert caught.match("VIDEO_MISSING: 2 takes, 12 descriptions")
    assert caught.match("NO_TRAJECTORY: 1 takes, 6 descriptions")
    assert caught.match("download the take's frame-aligned video")


def test_sources_hold_what_decides_the_result(tmp_path: Path) -> None:
    corpus = healthy(tmp_path)
    root = corpus.write()
    before = list_sources(root)
    assert [f for f in before.files if f.endswith(".mp4")] == sorted(
        str(corpus.video(f"{name}").relative_to(root)) for name in ("test_0", "train_0", "train_1", "train_2")
    )
    assert {"takes.json", "annotations/splits.json"} < set(before.files)
    (root / f"takes/{TAKE}/trajectory/closed_loop_trajectory.csv").unlink()
    after = list_sources(root)
    assert after.facts != before.facts
    table = list_sources(root, SMALL.replace(paraphrase_table="groups.csv"))
    assert "groups.csv" in table.files


def test_optional_files_are_null_where_absent(tmp_path: Path) -> None:
    corpus = healthy(tmp_path)
    (tmp_path / f"captures/capture-{TAKE}/timesync.csv").unlink()
    (tmp_path / f"takes/{TAKE}/trajectory/online_calibration.jsonl").unlink()
    (tmp_path / f"takes/{TAKE}/trajectory/closed_loop_trajectory.csv").unlink()
    sink = ingest(corpus.write(), SMALL.replace(require_trajectory=False))
    row = next(r for r in sink.rows("takes") if r["name"] == TAKE)
    assert (row["timesync"], row["calibration"], row["trajectory"]) == (None, None, None)


TESTS = Path(__file__).parents[2]
CODES = {code.value for code in RejectCode}


def planted() -> set[str]:
    """Codes that tests name as an expected result, and codes of the simulated world's broken takes."""
    found = {code.value for codes in TAKE_FAULTS.values() for code in codes}
    for path in TESTS.rglob("*.py"):
        words = set(re.findall(r"(?:RejectCode|Code)\.([A-Z_]+)|\"([A-Z]+(?:_[A-Z]+)*)\"", path.read_text()))
        found |= {a or b for a, b in words}
    return found & CODES


def test_codes_with_fixtures_are_the_codes_of_the_enum() -> None:
    assert planted() == CODES


def test_every_code_has_a_meaning_and_says_what_to_do() -> None:
    assert all(code.meaning and code.action for code in RejectCode)
    assert all(code.severity == "drop" for code in RejectCode if code.by_choice)


def test_only_what_is_dropped_costs_units() -> None:
    rows = [reject("ingest", code, "egoexo4d:x", "detail", n_units=3) for code in RejectCode]
    assert all(row.n_units == (3 if row.severity == "drop" else 0) for row in rows)
