"""A corpus and a root of the paper's size, made without computing anything: every stage is the real declaration with a
`run` that writes rows of the right number and names, so that keys, manifests and shard records are what a run leaves.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from deployments.recipes import atomic
from schemas.annotation import CorpusCount, Label, ScenarioLabel, Segment, SegmentDetails, Take, Window
from schemas.arrow import arrow_schema, table_of
from schemas.config import PipelineConfig, RunOptions
from schemas.rejects import RejectCode, reject
from schemas.results import Outcome
from trajpilot_core.pipeline import STAGES
from trajpilot_core.stages.execute import execute
from trajpilot_core.stages.stage import Stage, Work

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
    "details": arrow_schema(SegmentDetails), "scenario_labels": arrow_schema(ScenarioLabel),
    "counts": arrow_schema(CorpusCount),
}  # fmt: skip
SHARD = pa.table({"value": pa.array([1.0], pa.float32())})


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
        "root_dir": folder_of(index), "take_name": name_of(index), "take_uid": uid_of(index), "participant_uid": 7,
        "is_dropped": not used, "task_name": "Cooking", "timesync_start_idx": 4, "timesync_end_idx": 365,
        "validated": True, "capture_uid": f"capture-{index // 2}", "has_trimmed_trajectory": True,
        "capture": {"root_dir": f"captures/c{index // 2}", "capture_name": f"c{index // 2}", "cameras": cameras},
        "frame_aligned_videos": {"aria01": {"rgb": rgb}},
    }  # fmt: skip
    rest = [{"cam_id": f"cam{n:02d}", "relative_path": f"frame_aligned_videos/cam{n:02d}.mp4"} for n in range(200)]
    record["exo"] = rest[: (RECORD_BYTES - len(json.dumps(record))) // 75]
    return record


def write_corpus(root: Path) -> Path:
    """Write the files that a look at the corpus needs; videos and poses hold a few bytes each."""
    root.mkdir(parents=True)
    (root / "takes.json").write_text(json.dumps([take_record(index) for index in range(TAKES + OTHERS)]))
    (root / "annotations").mkdir()
    splits = {uid_of(index): "val" if index < TEST_TAKES else "train" for index in range(TAKES)}
    (root / "annotations/splits.json").write_text(json.dumps({"take_uid_to_split": splits}))
    for split in ("train", "val"):
        (root / f"annotations/atomic_descriptions_{split}.json").write_text('{"annotations": {}}')
    for index in range(TAKES):
        video = root / folder_of(index) / "frame_aligned_videos/downscaled/448"
        video.mkdir(parents=True)
        (video / "aria01_214-1.mp4").write_text(f"video {index}")
        (root / folder_of(index) / "trajectory").mkdir()
        (root / folder_of(index) / "trajectory/closed_loop_trajectory.csv").write_text(f"poses {index}")
        (root / folder_of(index) / "trajectory/online_calibration.jsonl").write_text(f"calibration {index}")
    for capture in range(TAKES // 2 + 1):
        (root / f"captures/c{capture}").mkdir(parents=True)
        (root / f"captures/c{capture}/timesync.csv").write_text(f"clock {capture}")
    return root


def takes_table() -> pa.Table:
    """The takes as ingest would write them."""
    return table_of(
        Take,
        [
            Take(
                take_id=f"egoexo4d:{uid_of(i)}", corpus="egoexo4d", name=name_of(i),
                split="test" if i < TEST_TAKES else "train", scenario="Cooking", participant="7", capture=f"c{i // 2}",
                video=f"{folder_of(i)}/frame_aligned_videos/downscaled/448/aria01_214-1.mp4",
                trajectory=f"{folder_of(i)}/trajectory/closed_loop_trajectory.csv",
                timesync=f"captures/c{i // 2}/timesync.csv",
                calibration=f"{folder_of(i)}/trajectory/online_calibration.jsonl", camera="aria01_214-1",
                timesync_start=4, timesync_end=365, duration_s=240.0, fps=30.0, n_frames=7200,
            )
            for i in range(TAKES)
        ],
    )  # fmt: skip


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
        "take_id": ids, "split": split, "position": place, "run": np.zeros(SEGMENTS, int),
        "start_s": 4.0 * place, "end_s": 4.0 * place + 4, "anchor_s": 4.0 * place + 2, "raw_text": text, "label": text,
        "label_id": np.array([f"label{i:05d}" for i in range(LABELS)])[n % LABELS],
        "annotation_uid": ids, "annotator": split,
    }  # fmt: skip
    return pa.table(columns).cast(arrow_schema(Segment)).sort_by("segment_id")


def windows_table(segments: pa.Table) -> pa.Table:
    """Windows of one horizon; who looks at a root reads none of them."""
    ids = segments["segment_id"].to_pylist()
    whole = [at for at in range(len(ids) - HORIZON) if ids[at][:-5] == ids[at + HORIZON - 1][:-5]]
    each = pa.ListArray.from_arrays(
        np.arange(len(whole) + 1, dtype=np.int32) * HORIZON,
        pa.array([ids[at + k] for at in whole for k in range(HORIZON)]),
    )
    taken = segments.take(whole)
    columns = {"window_id": [f"{ids[at]}:h{HORIZON}" for at in whole], "take_id": taken["take_id"]}
    rest = {"split": taken["split"], "horizon": [HORIZON] * len(whole), "segment_ids": each}
    return pa.table({**columns, **rest}).cast(arrow_schema(Window))


def outcomes_table(windows: pa.Table) -> pa.Table:
    """Outcomes of two rows on as many windows as six horizons give."""
    test = windows.filter(pc.equal(windows["split"], "test"))
    parts = []
    for horizon in range(3, 9):
        for variant in ("no_traj", "scorer"):
            n = test.num_rows
            labels = pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * 3, pa.array(["label00001"] * 3 * n))
            ranks = pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * 3, pa.array([1] * 3 * n))
            ids = pc.binary_join_element_wise(test["window_id"], f"h{horizon}", "")
            parts.append(
                pa.table({
                    "window_id": ids, "take_id": test["take_id"], "horizon": [horizon] * n, "variant": [variant] * n,
                    "mid_right": np.arange(n) % 3, "label_ids": labels, "decoded_ids": labels, "ranks": ranks,
                    "gate": [0.5] * n, "opened": np.arange(n) % 2 == 0, "candidate": pa.nulls(n, pa.string()),
                }).cast(arrow_schema(Outcome))
            )  # fmt: skip
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
    work.sink.table("windows", windows_table(segments))
    for name, schema in EXTRAS.items():
        work.sink.table(name, schema.empty_table())
    work.sink.reject(lost)
    work.sink.count(SEGMENTS + len(lost), SEGMENTS)


def pretend_shards(work: Work) -> None:
    """Deliver one small shard per take; every hundredth loses a row."""
    for number, source in enumerate(work.pending):
        lost = [reject("shards", RejectCode.TRAJ_GAP, source.shard, "gap")] if number % 100 == 0 else []
        work.sink.shard(source.shard, SHARD, lost, 1 + len(lost))


def pretend_whole(work: Work, stage: Stage) -> None:
    """Write something of the right kind under every declared name."""
    for name in stage.writes:
        if name == "outcomes":
            work.sink.table(name, outcomes_table(work.inputs.table("windows")))
        elif "." in name:
            work.sink.document(name, name.encode())
        elif name in ("e_tau", "predictors", "scorers"):
            work.sink.model(name, {"w": np.zeros(1, np.float32)}, {})
        else:
            work.sink.table(name, pa.table({"of": [name]}))
    work.sink.count(1, 1)


def pretended(stage: Stage) -> Stage:
    """The real declaration with a run that only writes."""
    run: Callable[[Work], None] = partial(pretend_whole, stage=stage)
    if stage.name == "ingest":
        run = pretend_ingest
    elif stage.shard_by is not None:
        run = pretend_shards
    return replace(stage, run=run)


def config() -> PipelineConfig:
    """The recipe of the main experiment with SETTINGS."""
    base = atomic()
    return base.replace(text_bank=base.text_bank.replace(encoder="bag_of_words"))


def write_root(root: Path, corpus: Path) -> RunOptions:
    """Run all stages so that the real ones are found fresh; returns the options of the run."""
    options = RunOptions(root=str(root), data_root=str(corpus), device="cpu")
    stages = {name: pretended(stage) for name, stage in STAGES.items()}
    for stage in stages.values():
        execute(stage, config(), options, stages)
    return options
