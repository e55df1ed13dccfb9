"""What stands in the files of each layout, read here by a minimal reader of its own, is the truth of the world.

The readers of the pipeline are not used: the formats are stated twice.
"""

import ast
import csv
import re
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from layouts_fixture import Written, annotated, draw_good_takes, frame_times, load, small_world

from trajpilot_core.simworld.layouts.annotate import SHARED_NAME, thing_of
from trajpilot_core.simworld.world.truth import TakeTruth

Json = dict[str, Any]


@pytest.fixture(scope="module")
def egoper(tmp_path_factory: pytest.TempPathFactory) -> Written:
    return annotated(tmp_path_factory.mktemp("egoper"), small_world("egoper", fps=5))


@pytest.fixture(scope="module")
def epic(tmp_path_factory: pytest.TempPathFactory) -> Written:
    corpus = annotated(tmp_path_factory.mktemp("epic"), small_world("epic_kitchens", fps=5))
    draw_good_takes(corpus)
    return corpus


def starts(take: TakeTruth) -> list[float]:
    return [s.start_s for s in take.segments]


def ends(take: TakeTruth) -> list[float]:
    return [s.end_s for s in take.segments]


# --- Keystep -------------------------------------------------------------------------------------------------------


def keysteps(corpus: Written) -> dict[str, Json]:
    return {s: load(corpus, f"annotations/keystep_{s}.json") for s in ("train", "val")}


def test_keystep_files_have_the_habits_of_the_real_ones(tmp_path: Path) -> None:
    keystep = annotated(tmp_path, small_world("keystep"))
    files = keysteps(keystep)
    good = [files[t.split]["annotations"][t.uid] for t in keystep.good()]
    keys = {key for one in good for key in one if key.startswith("annotation_")}
    assert keys == {"annotation_meta", "annotation_metadata"}
    gaps = [b["start_time"] - a["end_time"] for found in good for a, b in pairwise(found["segments"])]
    assert all(abs(gap) < 1e-3 for gap in gaps)
    assert any(gap != 0 for gap in gaps)
    ids = defaultdict(set)
    inner = 0
    for scenario, nodes in files["train"]["taxonomy"].items():
        for node in nodes.values():
            if "unique_id" in node:
                ids[node["unique_id"]].add((scenario, node["id"]))
                inner += not node["is_leafnode"]
    shared = [places for places in ids.values() if len(places) > 1]
    assert len(shared) == 1
    assert len({number for _, number in shared[0]}) > 1
    assert inner == keystep.world.config.tasks
    assert set(files["train"]["vocabulary"]) == set(map(str, ids))
    split = load(keystep, "annotations/splits.json")["take_uid_to_split"]
    untold = keystep.broken("test_split").uid
    assert split[untold] == "test"
    assert not any(untold in file["annotations"] for file in files.values())


# --- GoalStep ------------------------------------------------------------------------------------------------------


def goal_entries(corpus: Written, split: str) -> dict[str, Json]:
    videos = load(corpus, f"v2/annotations/goalstep_{split}.json")["videos"]
    assert len(videos) == len({v["video_uid"] for v in videos})
    return {v["video_uid"].removeprefix("grp-"): v for v in videos}


def test_goalstep_files_have_the_habits_of_the_real_ones(tmp_path: Path) -> None:
    goalstep = annotated(tmp_path, small_world("goalstep"))
    relevance, unsorted, bare, beyond, depth = set(), 0, 0, 0, set()
    for take in goalstep.good():
        steps = goal_entries(goalstep, take.split)[take.uid]["segments"]
        times = [s["start_time"] for s in steps]
        unsorted += times != sorted(times)
        for step in steps:
            bare += "is_relevant" not in step
            relevance.add(step.get("is_relevant"))
            depth.add(len(step["segments"]))
            beyond += any(sub["end_time"] > step["end_time"] + 0.5 for sub in step["segments"])
            assert not any("segments" in sub for sub in step["segments"])
    assert {"essential", "optional", "irrelevant"} <= relevance
    assert bare == 2
    assert unsorted >= 2
    assert depth == {0, 2}
    assert beyond > 0


# --- EgoPER --------------------------------------------------------------------------------------------------------


def perception(corpus: Written) -> dict[int, tuple[str, Json]]:
    """Return take index -> (task, segment) as the ids say."""
    found = {}
    for task, block in load(corpus, "annotation.json").items():
        for segment in block["segments"]:
            number = segment["video_id"].rsplit("_", 1)[-1]
            if number.isdigit():
                found[int(number) - 1] = (task, segment)
    return found


def test_egoper_actions_tile_the_video_and_only_tested_takes_have_errors_each_with_its_text(egoper: Written) -> None:
    """That the actions are the steps of the takes: test_layout_ceilings.py."""
    blocks, found = load(egoper, "annotation.json"), perception(egoper)
    types: dict[str, set[int]] = {"train": set(), "val": set()}
    kinds = set()
    for take in egoper.good():
        task, segment = found[take.index]
        labels, names_of = segment["labels"], {v: k for k, v in blocks[task]["action2idx"].items()}
        kinds |= {type(a) for a in labels["action"]}
        times = labels["time_stamp"]
        assert times[0][0] == 0.0
        assert all(a[1] == b[0] for a, b in pairwise(times))
        wrong = [int(t) for t in labels["action_type"]]
        added = [names_of[int(a)] == "Error_Addition" for a in labels["action"]]
        assert added == [t == 4 for t in wrong]
        assert [bool(text) for text in labels["error_description"]] == [t > 0 for t in wrong]
        assert ("_error_" in segment["video_id"]) == any(wrong)
        types[take.split] |= set(wrong)
    assert types == {"train": {0}, "val": {0, 1, 2, 3, 4}}
    assert kinds == {int, str}


def test_egoper_indices_are_per_task_and_lists_name_every_video_once(egoper: Written) -> None:
    blocks, found = load(egoper, "annotation.json"), perception(egoper)
    assert len({block["action2idx"][SHARED_NAME] for block in blocks.values()}) == len(blocks)
    for block in blocks.values():
        assert sorted(block["action2idx"].values()) == list(range(len(block["action2idx"])))
        assert block["action2idx"]["BG"] == 0
    folders = {p.name for p in egoper.folder.iterdir() if p.is_dir()}
    assert any(name != name.lower() for name in folders)
    assert any(name == name.lower() for name in folders)
    lists = {
        s: set().union(*(p.read_text().split() for p in egoper.folder.glob(f"*/{s}.txt")))
        for s in ("training", "validation", "test")
    }
    for take in egoper.good():
        where = [name for name, ids in lists.items() if found[take.index][1]["video_id"] in ids]
        assert len(where) == 1
        assert (where == ["training"]) == (take.split == "train")
    assert lists["validation"]
    assert lists["test"]
    twice = found[egoper.broken("two_splits").index][1]["video_id"]
    assert twice in lists["training"] & lists["validation"]
    assert not any(found[egoper.broken("no_split").index][1]["video_id"] in ids for ids in lists.values())
    labels = found[egoper.broken("take_malformed").index][1]["labels"]
    assert len(labels["action"]) != len(labels["time_stamp"])


# --- EPIC-KITCHENS -------------------------------------------------------------------------------------------------


def rows(corpus: Written, name: str) -> list[dict[str, str]]:
    with (corpus.folder / f"EPIC_100_{name}.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def seconds(text: str) -> float:
    hours, minutes, rest = text.split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(rest)


def videos_by_duration(corpus: Written, split: str) -> dict[str, list[dict[str, str]]]:
    """Return video id -> its rows by their number."""
    found = defaultdict(list)
    for row in rows(corpus, {"train": "train", "val": "validation"}[split]):
        found[row["video_id"]].append(row)
    return {v: sorted(r, key=lambda x: int(x["narration_id"].rsplit("_", 1)[1])) for v, r in found.items()}


def take_of(corpus: Written, video: list[dict[str, str]]) -> TakeTruth | None:
    """Return the good take whose first two true starts the rows have."""
    times = [seconds(r["start_timestamp"]) for r in video]
    same = [t for t in corpus.good() if starts(t) == pytest.approx(times, abs=6e-3)]
    return same[0] if same else None


def test_epic_rows_are_the_steps_of_the_takes(epic: Written) -> None:
    classes = {kind: rows(epic, f"{kind}_classes") for kind in ("verb", "noun")}
    durations = {row["video_id"]: float(row["duration"]) for row in rows(epic, "video_info")}
    for split in ("train", "val"):
        seen = set()
        damaged = ("evil", "nan", "12 seconds", "-")
        for video_id, video in videos_by_duration(epic, split).items():
            if any(word in str(r[c]) for r in video for word in damaged for c in ("start_timestamp", "video_id")):
                continue
            take = take_of(epic, video)
            if take is None:
                continue
            seen.add(take.index)
            truth = [epic.world.labels[s.label] for s in take.segments]
            assert [classes["noun"][int(r["noun_class"])]["key"] for r in video] == [thing_of(x) for x in truth]
            assert [int(r["verb_class"]) for r in video] == [x.primitive for x in truth]
            variants = [ast.literal_eval(classes["verb"][int(r["verb_class"])]["instances"]) for r in video]
            assert all(r["verb"] in v for r, v in zip(video, variants, strict=True))
            assert all(ast.literal_eval(r["all_nouns"])[0] == r["noun"] for r in video)
            rate = 50 if re.fullmatch(r"P\d\d_1\d\d", video_id) else 60
            for row in video:
                for end in ("start", "stop"):
                    assert abs(int(row[f"{end}_frame"]) - rate * seconds(row[f"{end}_timestamp"])) <= 1
            late = [seconds(r["stop_timestamp"]) - e for r, e in zip(video, ends(take), strict=True)]
            assert all(-0.006 < x < 0.21 for x in late)
            (file,) = epic.folder.glob(f"{video[0]['participant_id']}/videos/{video_id}.MP4")
            assert len(frame_times(file)) / epic.world.config.fps == pytest.approx(durations[video_id], abs=1e-5)
        assert seen == {t.index for t in epic.good(split)}


def test_epic_files_have_the_habits_of_the_real_ones(epic: Written) -> None:
    train, val = rows(epic, "train"), rows(epic, "validation")
    assert len(train[0]) == 15
    ids = [r["narration_id"] for r in val]
    assert ids == sorted(ids)
    assert len(ids) == len(set(ids))
    empty = [r["narration_id"] for r in val if r["narration_timestamp"] == ""]
    assert empty
    assert [r["narration_id"] for r in rows(epic, "validation_missing_timestamp_narrations")] == empty
    assert sum(seconds(r["start_timestamp"]) < 1.0 for r in val) >= len(epic.good("val"))
    overlaps = sum(
        seconds(b["start_timestamp"]) < seconds(a["stop_timestamp"])
        for video in videos_by_duration(epic, "val").values()
        for a, b in pairwise(video)
        if all(":" in r[c] and "-" not in r[c] for r in (a, b) for c in ("start_timestamp", "stop_timestamp"))
    )
    assert overlaps > 0
    extensions = re.compile(r"P\d\d_1\d\d")
    assert any(extensions.fullmatch(r["video_id"]) for r in train)
    good = {r["video_id"] for r in val} - {r["video_id"] for r in train}
    assert not any(extensions.fullmatch(v) for v in good)
