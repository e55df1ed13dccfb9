"""status and plan answer in seconds for a corpus of the paper's size, and load neither torch nor Prefect.

The root is made without computing anything: every stage is the real declaration with a `run` that writes rows of the
right number and names, so that keys, manifests and shard records are what a run leaves.
"""

import json
import os
import subprocess
import sys
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from trajectory_fixture import good_take

from deployments.recipes.paper import atomic
from schemas.annotation import CorpusCount, Label, LabelClass, ScenarioLabel, Segment, SegmentDetails, Take, Window
from schemas.arrow import arrow_schema, table_of
from schemas.config import RunOptions
from schemas.rejects import RejectCode, reject
from schemas.results import Outcome
from trajpilot_core.corpora.records.contents import contents_of
from trajpilot_core.data.cross_fitting import draw_folds
from trajpilot_core.engine import sink
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.stage import AnyStage, Work
from trajpilot_core.stages import STAGES
from trajpilot_core.store import files
from trajpilot_core.store.parquet import table_bytes

TAKES, SEGMENTS, LABELS = 2_549, 151_838, 20_000
OTHERS = 2_486
"""Further takes of the release that nothing is annotated of."""
TEST_TAKES = 842
RECORD_BYTES = 6_000
"""Of one take in takes.json, as in the release."""
HORIZON = 4
SETTINGS = ("text_bank.encoder=bag_of_words",)
"""What differs from the defaults, which ask for downloaded weights."""
EXTRAS = {
    "label_classes": arrow_schema(LabelClass),
    "details": arrow_schema(SegmentDetails),
    "scenario_labels": arrow_schema(ScenarioLabel),
    "counts": arrow_schema(CorpusCount),
}
SHARD = pa.table({"value": pa.array([1.0], pa.float32())})
SHARD_BYTES = table_bytes(SHARD)


def name_of(index: int) -> str:
    return f"cooking_{index:05d}"


def uid_of(index: int) -> str:
    return f"{index:08x}-0000-4000-8000-000000000000"


def folder_of(index: int) -> str:
    return f"takes/{name_of(index)}"


def take_record(index: int) -> dict[str, Any]:
    """One record of takes.json with the fields that are read, filled up to the size of the release's."""
    used = index < TAKES
    cameras = [{"cam_id": "aria01", "is_ego": True, "device_type": "aria"}]
    rgb = {"cam_id": "aria01", "stream_id": "214-1", "relative_path": "frame_aligned_videos/aria01_214-1.mp4"}
    record = {
        "root_dir": folder_of(index),
        "take_name": name_of(index),
        "take_uid": uid_of(index),
        "participant_uid": 7,
        "is_dropped": not used,
        "task_name": "Cooking",
        "timesync_start_idx": 4,
        "timesync_end_idx": 365,
        "validated": True,
        "capture_uid": f"capture-{index // 2}",
        "has_trimmed_trajectory": True,
        "capture": {"root_dir": f"captures/c{index // 2}", "capture_name": f"c{index // 2}", "cameras": cameras},
        "frame_aligned_videos": {"aria01": {"rgb": rgb}},
    }
    rest = [{"cam_id": f"cam{n:02d}", "relative_path": f"frame_aligned_videos/cam{n:02d}.mp4"} for n in range(200)]
    record["exo"] = rest[: (RECORD_BYTES - len(json.dumps(record))) // 75]
    return record


def write_corpus(root: Path) -> Path:
    """Write the files that a look at the corpus needs; a few bytes each, and those that stay as they are one inode."""
    root.mkdir(parents=True)
    (root / "takes.json").write_text(json.dumps([take_record(index) for index in range(TAKES + OTHERS)]))
    (root / "annotations").mkdir()
    splits = {uid_of(index): "val" if index < TEST_TAKES else "train" for index in range(TAKES)}
    (root / "annotations/splits.json").write_text(json.dumps({"take_uid_to_split": splits}))
    for split in ("train", "val"):
        (root / f"annotations/atomic_descriptions_{split}.json").write_text('{"annotations": {}}')
    same = root / "same"
    same.write_text("what no test touches")
    linked = [f"captures/c{capture}/timesync.csv" for capture in range(TAKES // 2 + 1)]
    for folder in map(folder_of, range(TAKES)):
        linked.append(f"{folder}/frame_aligned_videos/downscaled/448/aria01_214-1.mp4")
        linked.append(f"{folder}/trajectory/online_calibration.jsonl")
    for path in map(root.joinpath, linked):
        path.parent.mkdir(parents=True)
        path.hardlink_to(same)
    for index in range(TAKES):
        (root / folder_of(index) / "trajectory/closed_loop_trajectory.csv").write_text(f"poses {index}")
    return root


def takes_table() -> pa.Table:
    """The takes as ingest would write them."""
    return table_of(
        Take,
        [
            good_take(
                take_id=f"egoexo4d:{uid_of(i)}",
                name=name_of(i),
                split="test" if i < TEST_TAKES else "train",
                scenario="Cooking",
                participant="7",
                capture=f"c{i // 2}",
                video=f"{folder_of(i)}/frame_aligned_videos/downscaled/448/aria01_214-1.mp4",
                trajectory=f"{folder_of(i)}/trajectory/closed_loop_trajectory.csv",
                timesync=f"captures/c{i // 2}/timesync.csv",
                calibration=f"{folder_of(i)}/trajectory/online_calibration.jsonl",
                camera="aria01_214-1",
                timesync_end=365,
                duration_s=240.0,
                n_frames=7200,
            )
            for i in range(TAKES)
        ],
    )


def segments_table() -> pa.Table:
    """151,838 segments, spread evenly over the takes."""
    n = np.arange(SEGMENTS)
    take = n % TAKES
    place = n // TAKES
    ids = np.array([f"egoexo4d:{uid_of(i)}" for i in range(TAKES)])[take]
    split = np.where(take < TEST_TAKES, "test", "train")
    text = np.array([f"c does thing {i}" for i in range(LABELS)])[n % LABELS]
    columns = {
        "segment_id": np.char.add(np.char.add(ids, ":"), np.char.zfill(place.astype(str), 4)),
        "take_id": ids,
        "split": split,
        "position": place,
        "run": np.zeros(SEGMENTS, int),
        "start_s": 4.0 * place,
        "end_s": 4.0 * place + 4,
        "anchor_s": 4.0 * place + 2,
        "raw_text": text,
        "label": text,
        "label_id": np.array([f"label{i:05d}" for i in range(LABELS)])[n % LABELS],
        "annotation_uid": ids,
        "annotator": split,
    }
    return pa.table(columns).cast(arrow_schema(Segment)).sort_by("segment_id")


def windows_table(segments: pa.Table) -> pa.Table:
    """Windows of one horizon; who looks at a root reads none of them."""
    ids = segments["segment_id"].to_pylist()
    whole = [at for at in range(len(ids) - HORIZON) if ids[at][:-5] == ids[at + HORIZON - 1][:-5]]
    each = pa.array([ids[at : at + HORIZON] for at in whole])
    taken = segments.take(whole)
    columns = {"window_id": [f"{ids[at]}:h{HORIZON}" for at in whole], "take_id": taken["take_id"]}
    rest = {"split": taken["split"], "horizon": [HORIZON] * len(whole), "segment_ids": each}
    return pa.table({**columns, **rest}).cast(arrow_schema(Window))


def outcomes_table(windows: pa.Table) -> pa.Table:
    """Outcomes of two rows on as many windows as six horizons give."""
    test = windows.filter(pc.equal(windows["split"], "test")).select(["window_id", "take_id"])
    n = test.num_rows
    labels, ranks = (pa.array([[value] * 3] * n) for value in ("label00001", 1))
    same = {"mid_right": np.arange(n) % 3, "label_ids": labels, "decoded_ids": labels, "ranks": ranks}
    gate = {"gate": [0.5] * n, "opened": np.arange(n) % 2 == 0, "candidate": pa.nulls(n, pa.string())}
    parts = []
    for horizon, variant in product(range(3, 9), ("no_traj", "scorer")):
        ids = pc.binary_join_element_wise(test["window_id"], f"h{horizon}", "")
        place = {"window_id": ids, "take_id": test["take_id"], "horizon": [horizon] * n, "variant": [variant] * n}
        parts.append(pa.table({**place, **same, **gate}).cast(arrow_schema(Outcome)))
    return pa.concat_tables(parts)


def pretend_ingest(work: Work) -> None:
    """Write the tables of ingest, with one reject per hundred takes."""
    segments = segments_table()
    labels = [
        Label(label_id=f"label{i:05d}", label=f"thing {i}", paraphrases=(f"thing {i}",), n_train=1, n_dev=0, n_test=1)
        for i in range(LABELS)
    ]
    lost = [reject("ingest", RejectCode.UNSURE, f"egoexo4d:{uid_of(i)}", "unsure") for i in range(0, TAKES, 100)]
    work.sink.table("takes", takes_table())
    work.sink.table("segments", segments)
    work.sink.table("labels", table_of(Label, labels))
    windows = windows_table(segments)
    work.sink.table("windows", windows)
    work.sink.table("take_contents", contents_of(takes_table(), segments, windows))
    for name, schema in EXTRAS.items():
        work.sink.table(name, schema.empty_table())
    work.sink.reject(lost)
    work.sink.count(SEGMENTS + len(lost), SEGMENTS)


def pretend_shards(work: Work) -> None:
    """Deliver one small shard per take; every hundredth loses a row."""
    for number, source in enumerate(work.pending):
        lost = [reject("shards", RejectCode.TRAJ_GAP, source.shard, "gap")] if number % 100 == 0 else []
        work.sink.shard(source.shard, SHARD, lost, 1 + len(lost))


def pretend_trainings(work: Work, stage: AnyStage) -> None:
    """Deliver a model and a curve per training."""
    models, *curves = stage.writes
    for source in work.pending:
        with work.sink.training(source.shard) as share:
            share.model(models, source.shard, {"w": np.zeros(1, np.float32)})
            share.models(models, {})
            for name in curves if stage.name == "scorer" else curves[:1]:
                share.table(name, pa.table({"of": [source.shard]}))


def pretend_conclusion(work: Work, stage: AnyStage) -> None:
    """Write what trainings leave to the end; the folds are the real ones."""
    work.sink.models(stage.writes[0], {})
    if "folds" in stage.writes:
        splits = zip(*(takes_table()[name].to_pylist() for name in ("take_id", "split")), strict=True)
        folds = draw_folds([take for take, split in splits if split == "train"], work.config)
        work.sink.table("folds", pa.table({"take_id": list(folds), "fold": list(folds.values())}))
    work.sink.count(1, 1)


def pretend_whole(work: Work, stage: AnyStage) -> None:
    """Write something of the right kind under every declared name."""
    for name in stage.writes:
        if name == "outcomes":
            work.sink.table(name, outcomes_table(work.inputs.table("windows")))
        elif "." in name:
            work.sink.document(name, name.encode())
        else:
            work.sink.table(name, pa.table({"of": [name]}))
    work.sink.count(1, 1)


def pretended(stage: AnyStage) -> AnyStage:
    if stage.conclude is not None:
        run, conclude = (partial(write, stage=stage) for write in (pretend_trainings, pretend_conclusion))
        return replace(stage, run=run, conclude=conclude)
    if stage.name == "ingest":
        return replace(stage, run=pretend_ingest)
    return replace(stage, run=partial(pretend_whole, stage=stage) if stage.shard_by is None else pretend_shards)


def table_bytes_once(table: pa.Table) -> bytes:
    return SHARD_BYTES if table is SHARD else table_bytes(table)


def write_root(root: Path, corpus: Path) -> RunOptions:
    """Run all stages so that the real ones are found fresh; returns the options of the run.

    No file is synced: what is measured is a root on disk, not the writing of it.
    """
    options, recipe = RunOptions(root=str(root), data_root=str(corpus), device="cpu"), atomic()
    config = recipe.replace(text_bank=recipe.text_bank.replace(encoder="bag_of_words"))  # SETTINGS
    stages = {name: pretended(stage) for name, stage in STAGES.items()}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "fsync", lambda handle: None)
        patched.setattr(files, "_sync_folder", lambda folder: None)
        patched.setattr(sink, "table_bytes", table_bytes_once)
        for stage in stages.values():
            execute(stage, config, options, stages)
    return options


pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]
LIMIT = 18.0
"""CPU time from the start of the process on, in units of a loop that the same process runs, not of one processor.

Measured on one AMD EPYC, idle and beside two busy processes: status 6.5 to 7.0, plan 9.4 to 11.3.
"""
ASK = """
import sys, time
from deployments.cli.main import main
try:
    main()
finally:
    heavy = sorted({"torch", "prefect"} & set(sys.modules))
    used_s = time.process_time()
    total = sum(n * n for n in range(5_000_000))
    sys.stderr.write(f"{used_s / (time.process_time() - used_s)} {' '.join(heavy)}")
"""


class Answer(NamedTuple):
    rows: dict[str, list[str]]
    """Stage -> the other cells of its row in the first table."""
    last: str
    units: float
    loaded: list[str]


def ask(arguments: list[str]) -> Answer:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, *arguments],
        env={**os.environ, "COLUMNS": "400", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    units, *loaded = done.stderr.split()
    lines = done.stdout.strip().splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    return Answer({row[0]: row[1:] for row in reversed(cells)}, lines[-1], float(units), loaded)


def check(answer: Answer) -> None:
    assert answer.loaded == [], f"loaded {answer.loaded}"
    assert answer.units < LIMIT, f"took {answer.units:.1f} units"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(corpus, root): 2,549 takes, 151,838 segments, all stages fresh."""
    folder = tmp_path_factory.mktemp("scale")
    corpus = write_corpus(folder / "corpus")
    write_root(folder / "root", corpus)
    return corpus, folder / "root"


def options(place: tuple[Path, Path]) -> list[str]:
    settings = [text for setting in SETTINGS for text in ("--set", setting)]
    return ["--data", str(place[0]), "--root", str(place[1]), "--device", "cpu", *settings]


def test_status_of_a_whole_corpus_is_quick_and_light(place: tuple[Path, Path]) -> None:
    answer = ask(["status", *options(place)])
    assert [row[0] for row in answer.rows.values()] == ["fresh"] * len(STAGES)
    assert answer.rows["ingest"][1] == "151,838"
    assert answer.rows["features"][1] == "2,549"
    check(answer)


def test_plan_after_an_update_is_quick_and_light_and_counts_right(place: tuple[Path, Path]) -> None:
    corpus, _ = place
    paths = [corpus / folder_of(n) / "trajectory/closed_loop_trajectory.csv" for n in (5, 7, 200, 300)]
    kept = [path.stat() for path in paths]
    for path in paths:
        os.utime(path)
    answer = ask(["plan", *options(place), "--set", "features.batch=4"])
    for path, stat in zip(paths, kept, strict=True):
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert answer.rows["trajectories"][:5] == ["stale", "at least 2,545", "at most 4", "0", "at least 24"]
    assert answer.rows["trajectories"][6].startswith("4 takes touched: ")
    assert answer.rows["features"][:3] == ["stale", "0", "exactly 2,549"]
    assert answer.rows["features"][6] == "batch 8 -> 4"
    assert answer.rows["alignment"][6] == "unknown until trajectories has run"
    assert answer.last.startswith("total: up to ")
    check(answer)


def test_the_guard_is_red_for_a_heavy_library_and_for_a_slow_answer(place: tuple[Path, Path]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys.modules[__name__], "ASK", "import sys; sys.modules['torch'] = sys\n" + ASK)
        heavy = ask(["status", *options(place)])
    with pytest.raises(AssertionError, match="loaded"):
        check(heavy)
    with pytest.raises(AssertionError, match="took 18"):
        check(Answer({}, "", 18.04, []))
