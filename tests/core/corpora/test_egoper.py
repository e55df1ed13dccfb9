"""EgoPER: indices that mean another step in another task, background, errors, split layouts, and faults of files."""

from pathlib import Path

import pytest
from egoexo_fixture import ingest, write
from segment_corpora_fixture import Json, codes, counted, egoper, egoper_task, egoper_video, of, read, settings, take

from schemas.annotation import SIMULATED
from schemas.rejects import RejectCode
from trajpilot_core.corpora.egoper.files import index_of, participant_of
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.errors import InputError
from trajpilot_core.store.corpus_files import open_corpus

CFG = settings("egoper")
TEA = "tea_u1_a1_normal_001"
OTHER = "tea_u2_a1_error_002"
COFFEE = "coffee_u3_a1_normal_003"
OFFICIAL = {
    "tea/training.txt": [TEA],
    "tea/validation.txt": [OTHER],
    "tea/test.txt": [],
    "coffee/training.txt": [COFFEE],
    "coffee/validation.txt": [],
    "coffee/test.txt": [],
}


def two_tasks(tea: list[object] | None = None, **changes: object) -> Json:
    """Return two tasks in which index 1 is not the same step, and `Stir` has two indices."""
    return {
        "tea": egoper_task(
            [egoper_video(TEA, tea or [0, 1, 2, 0]), egoper_video(OTHER, [1, 2])], "Boil water", "Stir", **changes
        ),
        "coffee": egoper_task([egoper_video(COFFEE, [1, 2])], "stir", "Grind beans"),
    }


def test_steps_are_joined_by_name_and_not_by_index(tmp_path: Path) -> None:
    reading = read(egoper(tmp_path, two_tasks(), OFFICIAL), CFG)
    texts = {c.take.uid: [p.text for p in c.points] for c in reading.candidates}
    assert texts == {TEA: ["Boil water", "Stir"], OTHER: ["Boil water", "Stir"], COFFEE: ["stir", "Grind beans"]}
    found = counted(reading)
    assert (found["steps, joined by name"], found["tasks"]) == (3, 2)
    assert [row.paper for row in reading.counts if row.what == "steps, joined by name"] == [57]


def test_background_is_dropped_unless_it_is_asked_for(tmp_path: Path) -> None:
    root = egoper(tmp_path, two_tasks(), OFFICIAL)
    dropped = read(root, CFG)
    assert [(r.take, r.n_units) for r in of(dropped, RejectCode.BACKGROUND)] == [(f"egoper:{TEA}", 1)] * 2
    kept = read(root, settings("egoper", keep_background=True))
    assert [p.text for p in take(kept, f"egoper:{TEA}").points] == ["BG", "Boil water", "Stir", "BG"]
    assert not of(kept, RejectCode.BACKGROUND)


def test_error_types_reach_the_details(tmp_path: Path) -> None:
    tasks = two_tasks()
    labels = tasks["tea"]["segments"][1]["labels"]
    labels |= {"action_type": [0, "2"]}
    root = egoper(tmp_path, tasks, OFFICIAL)
    points = take(read(root, CFG), f"egoper:{OTHER}").points
    assert [p.details and p.details.error_type for p in points] == ["Normal", "Error_Slip"]
    without = read(root, settings("egoper", leave_out=("Error_Slip",)))
    assert codes(without)[RejectCode.ERROR_LEFT_OUT] == 1
    assert len(take(without, f"egoper:{OTHER}").points) == 1


def test_what_is_no_index_is_not_made_one() -> None:
    values: list[object] = [True, 1.0, None, "1.0", "-1", "", "٣", -1, 10**30, [1], "1e3"]
    assert [value for value in values if index_of(value) is not None] == []


# splits


def test_the_official_lists_are_per_task_and_the_listed_ones_for_all(tmp_path: Path) -> None:
    splits = {**OFFICIAL, "splits/train.txt": [OTHER, ""], "splits/val.txt": [TEA, f"{COFFEE}.mp4"]}
    root = egoper(tmp_path, two_tasks(), splits)
    official, listed = read(root, CFG).released, read(root, settings("egoper", splits="listed")).released
    assert official == {f"egoper:{TEA}": "train", f"egoper:{COFFEE}": "train", f"egoper:{OTHER}": "test"}
    assert listed == {f"egoper:{OTHER}": "train", f"egoper:{TEA}": "test", f"egoper:{COFFEE}": "test"}


def test_the_third_list_is_tested_on_when_it_is_asked_for_and_a_video_in_no_list_is_told_apart(tmp_path: Path) -> None:
    splits = {"tea/validation.txt": [], "tea/test.txt": [OTHER], "coffee/training.txt": []}
    root = egoper(tmp_path, two_tasks(), {**OFFICIAL, **splits})
    reading = read(root, CFG)
    assert [r.take for r in of(reading, RejectCode.NO_SPLIT)] == [f"egoper:{COFFEE}"]
    assert [(r.take, r.n_units) for r in of(reading, RejectCode.SPLIT_UNUSED)] == [(f"egoper:{OTHER}", 2)]
    assert read(root, CFG.replace(test_split="test")).released[f"egoper:{OTHER}"] == "test"


def test_a_video_in_two_lists_is_refused_also_when_one_of_them_is_not_used(tmp_path: Path) -> None:
    others = {"tea/validation.txt": [], "coffee/training.txt": []}
    for second in ("tea/validation.txt", "tea/test.txt"):
        reading = read(egoper(tmp_path, two_tasks(), {**OFFICIAL, **others, second: [TEA, OTHER]}), CFG)
        told = {(r.take, r.n_units) for r in of(reading, RejectCode.NO_SPLIT)}
        assert told == {(f"egoper:{TEA}", 4), (f"egoper:{COFFEE}", 2)}


def test_a_listed_video_without_annotation_is_told(tmp_path: Path) -> None:
    splits = {**OFFICIAL, "tea/training.txt": [TEA, "tea_u9_a1_normal_099", "../../etc/passwd"]}
    reading = read(egoper(tmp_path, two_tasks(), splits), CFG)
    assert {r.take for r in of(reading, RejectCode.TAKE_UNKNOWN)} == {
        "egoper:tea_u9_a1_normal_099",
        "egoper:../../etc/passwd",
    }


def test_folders_of_tasks_may_begin_with_a_capital_and_ids_name_the_person(tmp_path: Path) -> None:
    root = egoper(tmp_path, two_tasks(), OFFICIAL)
    (root / "tea").rename(root / "Tea")
    assert take(read(root, CFG), f"egoper:{TEA}").take.video == f"Tea/trim_videos/{TEA}.mp4"
    assert [participant_of(name) for name in ("pinwheels_u1_a2_error_012", "something else")] == ["u1", None]


# faults


BAD_LABELS: list[tuple[Json, RejectCode, int]] = [
    ({"action": [0, 1, 9, 0]}, RejectCode.LABEL_UNKNOWN, 1),
    ({"action": [0, 1, None, 0]}, RejectCode.LABEL_UNKNOWN, 1),
    ({"action_type": [0, 0, 77, 0]}, RejectCode.LABEL_UNKNOWN, 1),
    ({"action": [0, 1, 2]}, RejectCode.RECORD_MALFORMED, 4),
    ({"time_stamp": [[0, 1], [1, 2], [2], [3, 4]]}, RejectCode.RECORD_MALFORMED, 1),
    ({"time_stamp": [[0, 1], [1, 2], ["2", 3], [3, 4]]}, RejectCode.TS_INVALID, 1),
    ({"time_stamp": [[0, 1], [1, 2], [2, float("inf")], [3, 4]]}, RejectCode.TS_INVALID, 1),
]


def test_a_bad_segment_costs_itself_and_uneven_lists_their_video(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for changes, code, n_units in BAD_LABELS:
        with subtests.test(**changes):
            tasks = two_tasks()
            tasks["tea"]["segments"][0]["labels"] |= changes
            reading = read(egoper(tmp_path, tasks, OFFICIAL), CFG)
            assert [(r.take, r.n_units) for r in of(reading, code)] == [(f"egoper:{TEA}", n_units)]
            assert take(reading, f"egoper:{OTHER}")


def test_a_task_whose_indices_cannot_be_trusted_is_refused_whole(tmp_path: Path) -> None:
    for changes in (
        {"action2idx": {"Boil water": 0, "Stir": 1, "BG": 2}},
        {"action2idx": {"BG": 0, "Boil water": 1, "Stir": 1}},
        {"action2idx": {"BG": 0, "Boil water": "one"}},
        {"action2idx": None},
        {"actiontype2idx": {"Normal": 0, "Error_Slip": 0}},
    ):
        reading = read(egoper(tmp_path, two_tasks(**changes), OFFICIAL), CFG)
        assert sum(r.n_units for r in of(reading, RejectCode.RECORD_MALFORMED)) == 6, changes
        assert [c.take.uid for c in reading.candidates] == [COFFEE], changes


def test_two_annotations_of_one_video_and_a_hostile_video_id_are_refused(tmp_path: Path) -> None:
    tasks = two_tasks()
    tasks["coffee"]["segments"].append(egoper_video(TEA, [1]))
    reading = read(egoper(tmp_path / "twice", tasks, OFFICIAL), CFG)
    assert sum(r.n_units for r in of(reading, RejectCode.RECORD_MALFORMED)) == 5
    assert TEA not in {c.take.uid for c in reading.candidates}
    tasks = two_tasks()
    tasks["tea"]["segments"][0]["video_id"] = "../evil"
    root = egoper(tmp_path / "hostile", tasks, {**OFFICIAL, "tea/training.txt": ["../evil", TEA]})
    assert [r.n_units for r in of(read(root, CFG), RejectCode.TAKE_NAME_INVALID)] == [4]


def test_a_task_whose_videos_cannot_be_counted_is_an_error(tmp_path: Path) -> None:
    path = egoper(tmp_path, two_tasks(), OFFICIAL) / "annotation.json"
    whole = path.read_text()
    for task in ("{}", "3", "[]", '{"segments": {}}'):
        path.write_text(whole.replace("{", f'{{"oatmeal": {task}, ', 1))
        with pytest.raises(InputError, match=r"annotation\.json cannot be read: `segments` of task oatmeal"):
            read(tmp_path, CFG)


def test_missing_videos_cost_their_segments_and_a_simulated_world_is_called_so(tmp_path: Path) -> None:
    root = egoper(tmp_path, two_tasks(), OFFICIAL)
    (root / f"tea/trim_videos/{OTHER}.mp4").unlink()
    assert [(r.take, r.n_units) for r in of(read(root, CFG), RejectCode.VIDEO_MISSING)] == [(f"egoper:{OTHER}", 2)]
    write(root / "world.json", b'{"simulated": true}')
    assert {c.take.corpus for c in read(root, CFG).candidates} == {SIMULATED}
    assert "world.json" in spec_of("egoper").listing(open_corpus(str(root)), CFG).files


@pytest.mark.usefixtures("no_decoder")
def test_ingest_makes_one_answer_of_one_step_in_two_tasks(tmp_path: Path) -> None:
    more = "tea_u4_a1_normal_004"
    tasks = two_tasks()
    tasks["tea"]["segments"].append(egoper_video(more, [1, 2]))
    sink = ingest(egoper(tmp_path, tasks, {**OFFICIAL, "tea/training.txt": [TEA, more]}), CFG)
    assert {row["label_id"] for row in sink.rows("labels")} == {"boil water", "stir", "grind beans"}
    assert {(row["scenario"], row["label_id"]) for row in sink.rows("scenario_labels")} >= {
        ("tea", "stir"),
        ("coffee", "stir"),
    }
    assert {row["error_type"] for row in sink.rows("details")} == {"Normal"}
    assert any(row["what"] == "takes, train" and row["paper"] == 149 for row in sink.rows("counts"))
