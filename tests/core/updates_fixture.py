"""A tiny simulated corpus on disk, data updates that change it in place, and the whole pipeline run over it."""

import csv
import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np

from deployments.recipes import demo
from schemas.config import PipelineConfig, RunOptions
from schemas.world import WorldConfig, tiny_world
from trajpilot_core.pipeline import STAGES
from trajpilot_core.simworld.faults import with_zeros
from trajpilot_core.simworld.video import write_video
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages.execute import Outcome, execute
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import CURRENT, current_manifest, files_of, manifest_path, stage_folder

Json = dict[str, Any]
FPS = 10
SHARDED = ("trajectories", "features")


def world() -> WorldConfig:
    """Eight short takes, none of them broken."""
    return tiny_world().replace(
        name="updates", broken="none", size_px=64, fps=FPS, segments=6, segment_s=1.0, dense_takes=0
    )


def settings() -> PipelineConfig:
    """The demo's settings with models and trainings of a second: this is about bytes, not about accuracy."""
    base = demo()
    short = base.predictor.train.replace(epochs=1, patience=None)
    return base.replace(
        ingest=base.ingest.replace(dev_min=1, max_horizon=4),
        features=base.features.replace(n_frames=2),
        alignment=base.alignment.replace(train=short, width=16, hidden=16, layers=1, heads=2),
        predictor=base.predictor.replace(train=short, width=16, heads=2, hidden=16, layers=1),
        scorer=base.scorer.replace(train=short, width=16, candidates=4, prefetch=8, ablations=()),
        evaluation=base.evaluation.replace(bootstrap=100, shuffles=1),
        report=base.report.replace(examples=1),
    )


def write_corpus(folder: Path) -> Path:
    """Write the corpus as if it was recorded (nothing says how it was drawn); one training take's video is damaged."""
    write_world(world(), folder, 1, lambda done, total, what: None)
    (folder / "world.json").unlink()
    video = video_of(folder, takes_of(folder, "train")[1])
    video.write_bytes(with_zeros(video.read_bytes()))
    return folder


def options(root: Path, corpus: Path) -> RunOptions:
    return RunOptions(root=str(root), data_root=str(corpus), device="cpu", workers=1, max_reject_ratio=0.9)


def run_all(root: Path, corpus: Path, until: str = "report") -> dict[str, Outcome]:
    """Run the stages in order."""
    done: dict[str, Outcome] = {}
    for stage in STAGES.values():
        done[stage.name] = execute(stage, settings(), options(root, corpus), STAGES)
        if stage.name == until:
            break
    return done


def counted_bytes(root: Path) -> dict[str, bytes]:
    """Path -> bytes of everything that counts: pointers, manifests, and the files that these name."""
    folder = open_folder(str(root))
    found: dict[str, bytes] = {}
    for stage in STAGES:
        manifest = current_manifest(folder, stage)
        if manifest is None:
            continue
        base = stage_folder(stage)
        paths = [f"{base}/{CURRENT}", manifest_path(stage, manifest.key)]
        paths += [f"{base}/{file.name}" for file in files_of(manifest)]
        found |= {path: folder.read(path) for path in paths}
    return found


def shards_of(root: Path, stage: str) -> dict[str, str]:
    """Take -> key of its shard."""
    manifest = current_manifest(open_folder(str(root)), stage)
    assert manifest is not None
    return {name.removeprefix("shard:"): key for name, key in manifest.inputs.items() if name.startswith("shard:")}


# The corpus as its files say it.


def read(corpus: Path, name: str) -> Any:
    return json.loads((corpus / name).read_text())


def write(corpus: Path, name: str, content: object) -> None:
    (corpus / name).write_text(json.dumps(content))


def takes_of(corpus: Path, split: str) -> list[str]:
    """Uids of the takes of a released split, sorted."""
    splits = read(corpus, "annotations/splits.json")["take_uid_to_split"]
    return sorted(uid for uid, named in splits.items() if named == split)


def record_of(corpus: Path, uid: str) -> Json:
    return next(record for record in read(corpus, "takes.json") if record["take_uid"] == uid)


def folder_of(corpus: Path, uid: str) -> Path:
    return corpus / record_of(corpus, uid)["root_dir"]


def video_of(corpus: Path, uid: str) -> Path:
    return next(folder_of(corpus, uid).rglob("*.mp4"))


def edit_json(corpus: Path, name: str, change: Callable[[Any], None]) -> None:
    """Read a document, let `change` edit it, write it."""
    content = read(corpus, name)
    change(content)
    write(corpus, name, content)


def capture_of(corpus: Path, uid: str) -> Path:
    return corpus / record_of(corpus, uid)["capture"]["root_dir"]


def edit_csv(path: Path, ending: str, change: Callable[[str], str]) -> None:
    """Let `change` edit the filled cells of the one column whose name ends so."""
    rows = list(csv.DictReader(io.StringIO(path.read_text())))
    (column,) = (name for name in rows[0] if name.endswith(ending))
    for row in rows:
        row[column] = change(row[column]) if row[column] else ""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(out.getvalue())


# The updates. Each returns the uid of the take that it is about.


def video_changed(corpus: Path) -> str:
    """A take's video is released anew: the same frames, darker."""
    uid = takes_of(corpus, "train")[0]
    path = video_of(corpus, uid)
    with av.open(str(path)) as container:
        frames = [np.asarray(frame.to_ndarray(format="rgb24") // 2, np.uint8) for frame in container.decode(video=0)]
    write_video(path, frames, FPS, 28)
    return uid


def trajectory_replaced(corpus: Path) -> str:
    """A take's pose file is released anew: the same path, a tenth larger."""
    uid = takes_of(corpus, "train")[2]
    path = folder_of(corpus, uid) / "trajectory/closed_loop_trajectory.csv"
    edit_csv(path, "tx_world_device", lambda metres: f"{1.1 * float(metres):.6f}")
    return uid


def take_added(corpus: Path) -> str:
    """A take appears: files and annotations of another one under names of its own."""
    old, uid, name, capture = takes_of(corpus, "train")[0], "00000000-added", "added_1", "added"
    record = {**record_of(corpus, old), "take_uid": uid, "take_name": name, "root_dir": f"takes/{name}"}
    before = corpus / record["capture"]["root_dir"]
    record["capture"] = {**record["capture"], "root_dir": f"captures/{capture}", "capture_name": capture}
    shutil.copytree(folder_of(corpus, old), corpus / f"takes/{name}")
    shutil.copytree(before, corpus / f"captures/{capture}")
    edit_json(corpus, "takes.json", lambda takes: takes.append(record))
    edit_json(corpus, "annotations/splits.json", lambda found: found["take_uid_to_split"].update({uid: "train"}))
    edit_json(corpus, descriptions("train"), lambda f: f["annotations"].update({uid: f["annotations"][old]}))
    return uid


def take_removed(corpus: Path) -> str:
    """A take is withdrawn: files, record, split and annotations."""
    uid = takes_of(corpus, "train")[0]
    shutil.rmtree(folder_of(corpus, uid))
    kept = [record for record in read(corpus, "takes.json") if record["take_uid"] != uid]
    write(corpus, "takes.json", kept)
    edit_json(corpus, "annotations/splits.json", lambda found: found["take_uid_to_split"].pop(uid))
    edit_json(corpus, descriptions("train"), lambda found: found["annotations"].pop(uid))
    return uid


def take_renamed(corpus: Path) -> str:
    """The take with the damaged video gets another name and folder; its uid stays."""
    uid = takes_of(corpus, "train")[1]

    def rename(takes: list[Json]) -> None:
        for record in takes:
            if record["take_uid"] == uid:
                record |= {"take_name": "renamed_1", "root_dir": "takes/renamed_1"}

    folder_of(corpus, uid).rename(corpus / "takes/renamed_1")
    edit_json(corpus, "takes.json", rename)
    return uid


def label_fixed(corpus: Path) -> str:
    """The annotations are released anew with one description corrected."""
    uid = takes_of(corpus, "train")[0]

    def fix(found: Json) -> None:
        for annotation in found["annotations"][uid]:
            annotation["descriptions"][2]["text"] = "C polishes the silver spoon."

    edit_json(corpus, descriptions("train"), fix)
    return uid


def split_moved(corpus: Path) -> str:
    """A take moves from train to val, in the splits and in the annotations."""
    uid = takes_of(corpus, "train")[0]
    moved = read(corpus, descriptions("train"))["annotations"][uid]
    edit_json(corpus, "annotations/splits.json", lambda found: found["take_uid_to_split"].update({uid: "val"}))
    edit_json(corpus, descriptions("train"), lambda found: found["annotations"].pop(uid))
    edit_json(corpus, descriptions("val"), lambda found: found["annotations"].update({uid: moved}))
    return uid


def calibration_replaced(corpus: Path) -> str:
    """A take's calibration is released anew: the camera sits a centimetre further along x."""
    uid = takes_of(corpus, "train")[2]
    path = folder_of(corpus, uid) / "trajectory/online_calibration.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for line in lines:
        for camera in line["CameraCalibrations"]:
            camera["T_Device_Camera"]["Translation"][0] += 0.01
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return uid


def timesync_replaced(corpus: Path) -> str:
    """The clock of a take's capture is released anew: its frames were taken 20 ms later."""
    uid = takes_of(corpus, "train")[2]
    edit_csv(
        capture_of(corpus, uid) / "timesync.csv",
        "_214-1_capture_timestamp_ns",
        lambda ns: str(int(ns) + 20_000_000),
    )
    return uid


def paraphrases_changed(corpus: Path) -> str:
    """The table of paraphrases gets its first line corrected; returns no uid: it is about labels."""
    path = corpus / "annotations/paraphrases.csv"
    head, first, *rest = path.read_text().splitlines()
    path.write_text("\n".join([head, f"{first} again", *rest]) + "\n")
    return ""


def video_withheld(corpus: Path) -> str:
    """A take's video has not been downloaded yet."""
    uid = takes_of(corpus, "train")[3]
    video_of(corpus, uid).unlink()
    return uid


def descriptions(split: str) -> str:
    return f"annotations/atomic_descriptions_{split}.json"
