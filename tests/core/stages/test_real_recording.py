"""Real recordings through ingest, trajectories and features; the annotations are written here."""

import json
from pathlib import Path

import numpy as np
import polars as pl
from checkout import DATA

from deployments.recipes.simulated import demo
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.stages import STAGES
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

MPS, ADT = DATA / "aria_mps_sample", DATA / "adt_mini"


def annotate(corpus: Path, uid: str, times_s: list[float]) -> None:
    """Write one annotator's descriptions of one take, and put the take in the released validation split."""
    descriptions = [
        {"text": f"C takes step {n}.", "timestamp": t, "subject": "C", "ego_visible": True, "unsure": False}
        for n, t in enumerate(times_s)
    ]
    annotation = {"annotation_uid": "a", "annotator_id": "b", "rejected": False, "descriptions": descriptions}
    folder = corpus / "annotations"
    folder.mkdir(parents=True)
    splits = {"take_uid_to_split": {uid: "val"}, "split_to_take_uids": {"val": [uid]}}
    (folder / "splits.json").write_text(json.dumps(splits))
    (folder / "atomic_descriptions_val.json").write_text(json.dumps({"annotations": {uid: [annotation]}}))
    (folder / "atomic_descriptions_train.json").write_text(json.dumps({"annotations": {}}))


def settings(**trajectories: object) -> PipelineConfig:
    base = demo()
    return base.replace(
        ingest=base.ingest.replace(video="downscaled_448", paraphrase_table=None, min_segment_s=0.0),
        trajectories=base.trajectories.replace(**trajectories),
    )


def through_features(corpus: Path, root: Path, config: PipelineConfig) -> dict[str, Outcome]:
    run = RunOptions(root=str(root), data_root=str(corpus), device="cpu", workers=1)
    return {name: execute(STAGES[name], config, run, STAGES) for name in ("ingest", "trajectories", "features")}


def table(root: Path, stage: str, entry: str) -> pl.DataFrame:
    folder = open_folder(str(root))
    manifest = current_manifest(folder, stage)
    assert manifest is not None
    return pl.DataFrame(pl.from_arrow(read_entry_table(folder, manifest, entry)))


def test_a_real_aria_recording_goes_through_ingest_trajectories_and_features(tmp_path: Path) -> None:
    corpus, root = tmp_path / "corpus", tmp_path / "root"
    corpus.mkdir()
    for name in ("takes", "captures", "takes.json"):
        (corpus / name).symlink_to(MPS / name)
    uid = json.loads((MPS / "takes.json").read_text())[0]["take_uid"]
    annotate(corpus, uid, [1.5, 3.5, 5.5, 7.5, 9.5])

    done = through_features(corpus, root, settings())

    assert {name: (o.n_in, o.n_out) for name, o in done.items()} == {
        "ingest": (5, 5),
        "trajectories": (5, 5),
        "features": (5, 5),
    }
    segments = table(root, "ingest", "segments")
    assert segments["start_s"].to_list() == [0.5, 2.5, 4.5, 6.5, 8.5]
    assert segments["split"].unique().to_list() == ["test"]
    motions = table(root, "trajectories", "motions")
    motion = np.stack(motions["motions"].to_list()).reshape(5, 16, 6)
    path_m = np.linalg.norm(motion[..., :3], axis=-1).sum()
    assert 4.0 < path_m < 7.7, "the whole recording walks 7.67 m in 11.4 s; ten of them are covered"
    assert motions["quality"].min() >= 0.5
    assert motions["scale"].unique().to_list() == ["metric"]
    features = table(root, "features", "features")
    vectors = np.stack(features["vector"].to_list()).astype(np.float32)
    assert np.isfinite(vectors).all()
    assert np.linalg.norm(vectors[0] - vectors[-1]) > 0


def test_three_real_frames_of_another_device_go_through_with_their_settings(tmp_path: Path) -> None:
    corpus, root = tmp_path / "corpus", tmp_path / "root"
    write_adt(corpus)
    annotate(corpus, "adt", [0.03, 0.07])

    wide = settings(frame="device", max_bracket_gap_s=0.05)
    done = through_features(corpus, root, wide)

    assert {name: o.n_out for name, o in done.items()} == {"ingest": 2, "trajectories": 2, "features": 2}
    times = table(root, "features", "features")["frame_times_s"].to_list()
    assert {round(t, 3) for row in times for t in row} <= {0.0, 0.033, 0.067}
    motion = np.stack(table(root, "trajectories", "motions")["motions"].to_list()).reshape(2, 16, 6)
    assert 0 < np.abs(motion[..., :3]).max() < 0.001, "a standing wearer moves less than a millimetre in 3 ms"


def write_adt(corpus: Path) -> None:
    """Lay the frames and poses out as an Ego-Exo4D take."""
    take, capture = corpus / "takes" / "adt_1", corpus / "captures" / "adt"
    video = take / "frame_aligned_videos" / "downscaled" / "448" / "aria01_214-1.mp4"
    for folder in (video.parent, take / "trajectory", capture):
        folder.mkdir(parents=True)
    video.symlink_to(ADT / "aria01_214-1.mp4")
    (take / "trajectory" / "closed_loop_trajectory.csv").symlink_to(ADT / "aria_trajectory.csv")
    stamps = [int(line.split(",")[1]) for line in (ADT / "frame_timestamps.csv").read_text().split()[1:]]
    rows = [stamps[0] - 33_333_333, *stamps, stamps[-1] + 33_333_333]
    (capture / "timesync.csv").write_text("aria01_214-1_capture_timestamp_ns\n" + "".join(f"{ns}\n" for ns in rows))
    record = {
        "root_dir": "takes/adt_1",
        "take_name": "adt_1",
        "take_uid": "adt",
        "task_name": "Stand",
        "validated": True,
        "is_dropped": False,
        "has_trimmed_trajectory": True,
        "timesync_start_idx": 0,
        "timesync_end_idx": 4,
        "capture": {
            "root_dir": "captures/adt",
            "capture_name": "adt",
            "cameras": [{"cam_id": "aria01", "is_ego": True, "device_type": "aria"}],
        },
        "frame_aligned_videos": {
            "aria01": {"rgb": {"stream_id": "214-1", "relative_path": "frame_aligned_videos/aria01_214-1.mp4"}}
        },
    }
    (corpus / "takes.json").write_text(json.dumps([record]))
