"""After an update of the data exactly the touched shards and stages are computed, and what counts then is, byte for
byte, what a run from scratch on the new data makes."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import polars as pl
import pytest

from deployments.recipes.simulated import demo
from schemas.config import PipelineConfig, RunOptions
from schemas.world import tiny_world
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.engine import key
from trajpilot_core.engine.execution import reuse
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.engine.sink import Sink
from trajpilot_core.engine.stage import no_progress
from trajpilot_core.simworld.faults import with_zeros
from trajpilot_core.simworld.world.render import write_video
from trajpilot_core.simworld.write import write_world
from trajpilot_core.stages import STAGES
from trajpilot_core.store import inventory
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import CURRENT, current_manifest, files_of, manifest_path, stage_folder

pytestmark = [pytest.mark.timeout(1800), pytest.mark.slow]
DESCRIPTIONS = "annotations/atomic_descriptions_train.json"
FPS = 10
SHARDED = ("trajectories", "features")
TRAININGS = ("alignment", "predictor", "scorer")


def settings() -> PipelineConfig:
    """The demo's settings with models and trainings of a second: this is about bytes, not about accuracy."""
    base = demo()
    short = base.predictor.train.replace(epochs=1, patience=None)
    return base.replace(
        ingest=base.ingest.replace(dev_min=1, max_horizon=4),
        features=base.features.replace(n_frames=2),
        alignment=base.alignment.replace(train=short, width=16, hidden=16, layers=1, heads=2),
        predictor=base.predictor.replace(train=short, width=16, heads=2, hidden=16, layers=1),
        scorer=base.scorer.replace(train=short, width=16, candidates=4, ablations=()),
        evaluation=base.evaluation.replace(bootstrap=100, shuffles=1),
        report=base.report.replace(examples=1),
    )


def write_corpus(folder: Path) -> Path:
    """Eight short takes as if they were recorded (nothing says how they were drawn); one training video is damaged."""
    sizes = {"size_px": 64, "fps": FPS, "segments": 6, "segment_s": 1.0, "dense_takes": 0}
    write_world(tiny_world().replace(name="updates", broken="none", **sizes), folder, 1, no_progress)
    (folder / "world.json").unlink()
    video = next(folder_of(folder, takes_of(folder, "train")[1]).rglob("*.mp4"))
    video.write_bytes(with_zeros(video.read_bytes()))
    return folder


def options(root: Path, corpus: Path) -> RunOptions:
    return RunOptions(root=str(root), data_root=str(corpus), device="cpu", workers=1, max_reject_ratio=0.9)


def run_all(root: Path, corpus: Path, until: str = "report") -> dict[str, Outcome]:
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


def read(corpus: Path, name: str) -> Any:
    return json.loads((corpus / name).read_text())


def takes_of(corpus: Path, split: str) -> list[str]:
    """Uids of the takes of a released split, sorted."""
    splits = read(corpus, "annotations/splits.json")["take_uid_to_split"]
    return sorted(uid for uid, named in splits.items() if named == split)


def record_of(corpus: Path, uid: str) -> dict[str, Any]:
    return next(record for record in read(corpus, "takes.json") if record["take_uid"] == uid)


def folder_of(corpus: Path, uid: str) -> Path:
    return corpus / record_of(corpus, uid)["root_dir"]


def edit_json(corpus: Path, name: str, change: Callable[[Any], object]) -> None:
    content = read(corpus, name)
    change(content)
    (corpus / name).write_text(json.dumps(content))


# The updates. Each returns the uid of the take that it is about.


def video_changed(corpus: Path) -> str:
    """A take's video is released again: the same frames, darker."""
    uid = takes_of(corpus, "train")[0]
    path = next(folder_of(corpus, uid).rglob("*.mp4"))
    with av.open(str(path)) as container:
        frames = [np.asarray(frame.to_ndarray(format="rgb24") // 2, np.uint8) for frame in container.decode(video=0)]
    write_video(path, frames, FPS, 28)
    return uid


def trajectory_replaced(corpus: Path) -> str:
    """A take's pose file is released again: the same path, a tenth larger."""
    uid = takes_of(corpus, "train")[2]
    path = folder_of(corpus, uid) / "trajectory/closed_loop_trajectory.csv"
    poses = pl.read_csv(path)
    poses.with_columns(pl.col("tx_world_device") * 1.1).write_csv(path)
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
    edit_json(corpus, DESCRIPTIONS, lambda f: f["annotations"].update({uid: f["annotations"][old]}))
    return uid


def take_removed(corpus: Path) -> str:
    """A take is withdrawn: files, record, split and annotations."""
    uid = takes_of(corpus, "train")[3]
    shutil.rmtree(folder_of(corpus, uid))
    edit_json(corpus, "takes.json", lambda takes: takes.remove(next(t for t in takes if t["take_uid"] == uid)))
    edit_json(corpus, "annotations/splits.json", lambda found: found["take_uid_to_split"].pop(uid))
    edit_json(corpus, DESCRIPTIONS, lambda found: found["annotations"].pop(uid))
    return uid


def take_renamed(corpus: Path) -> str:
    """The take with the damaged video gets another name and folder; its uid stays."""
    uid, named = takes_of(corpus, "train")[1], {"take_name": "renamed_1", "root_dir": "takes/renamed_1"}
    folder_of(corpus, uid).rename(corpus / named["root_dir"])
    edit_json(corpus, "takes.json", lambda takes: [t.update(named) for t in takes if t["take_uid"] == uid])
    return uid


class Base(NamedTuple):
    corpus: Path
    root: Path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    folder = tmp_path_factory.mktemp("base")
    write_corpus(folder / "corpus")
    with pytest.MonkeyPatch.context() as quick:
        quick.setattr(os, "fsync", lambda handle: None)
        quick.setattr(inventory, "SETTLE_S", 0.0)
        run_all(folder / "root", folder / "corpus")
    return Base(folder / "corpus", folder / "root")


@pytest.fixture
def place(base: Base, tmp_path: Path) -> Base:
    """The same somewhere else, so that an update leaves the original alone."""
    return Base(*(Path(shutil.copytree(path, tmp_path / path.name)) for path in base))


@pytest.fixture
def delivered(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Stage -> takes whose shard was computed, as they are handed over."""
    found: dict[str, list[str]] = {stage: [] for stage in SHARDED}
    kept = Sink.shard

    def noting(sink: Sink, shard: str, *rest, **named) -> None:
        found[sink.stage].append(shard)
        kept(sink, shard, *rest, **named)

    monkeypatch.setattr(Sink, "shard", noting)
    return found


def planned(place: Base) -> dict[str, PlanRow]:
    return {row.stage: row for row in plan(STAGES, settings(), options(place.root, place.corpus))}


def from_scratch(place: Base, until: str = "report") -> dict[str, bytes]:
    root = place.root.with_name("scratch")
    run_all(root, place.corpus, until)
    return counted_bytes(root)


def several(corpus: Path) -> dict[str, list[str]]:
    """A video and a pose file are released again, a take is withdrawn and one appears."""
    changes = (video_changed, trajectory_replaced, take_removed, take_added)
    video, poses, _, added = (take_id(update(corpus)) for update in changes)
    return {"trajectories": sorted([added, poses]), "features": sorted([added, video])}


def renamed(corpus: Path) -> dict[str, list[str]]:
    take = take_id(take_renamed(corpus))
    return {stage: [take] for stage in SHARDED}


@pytest.mark.parametrize(
    ("update", "removed", "cached"),
    [(several, 1, ()), pytest.param(renamed, 0, ("text_bank", *TRAININGS), marks=pytest.mark.campaign)],
)
def test_an_update_computes_what_it_touches_and_ends_with_the_bytes_of_a_run_from_scratch(
    base: Base,
    place: Base,
    delivered: dict[str, list[str]],
    update: Callable[[Path], dict[str, list[str]]],
    removed: int,
    cached: tuple[str, ...],
) -> None:
    """`cached`: whole stages that are reused. Wherever root and corpus lie, what is taken back computes nothing."""
    computed = update(place.corpus)
    done = {}
    for stage in STAGES.values():
        row = planned(place)[stage.name] if stage.name in ("ingest", *SHARDED, *TRAININGS) else None
        done[stage.name] = execute(stage, settings(), options(place.root, place.corpus), STAGES)
        n = done[stage.name].computed
        assert row is None or (n == row.compute if row.bound == "exactly" else n <= row.compute), row
    assert delivered == computed
    assert [done[name].removed for name in SHARDED] == [removed] * 2
    asked = [name for name in STAGES if done[name].reused + done[name].computed]  # no planner is
    assert tuple(name for name in asked if name not in SHARDED and done[name].cached) == cached
    assert counted_bytes(place.root) == from_scratch(place)
    assert verify(str(place.root), repair=False) == []
    assert all(row.state == "fresh" for row in planned(place).values())
    shutil.rmtree(place.corpus)
    shutil.copytree(base.corpus, place.corpus)
    assert {outcome.computed for outcome in run_all(place.root, place.corpus).values()} == {0}
    assert counted_bytes(place.root) == counted_bytes(base.root)


LOOK = """
import sys
from deployments.cli.main import main
for command in ("status", "plan"):
    sys.argv[1] = command
    try:
        main()
    except SystemExit:
        pass
print({"torch", "prefect"} & {*sys.modules})
"""


def test_a_look_at_a_root_loads_neither_torch_nor_prefect(base: Base) -> None:
    where = ["--data", str(base.corpus), "--root", str(base.root), "--device", "cpu"]
    done = subprocess.run([sys.executable, "-c", LOOK, "", *where], capture_output=True, text=True, check=True)
    assert done.stdout.count("trajectories") >= 2
    assert done.stdout.endswith("set()\n")


def test_a_key_that_is_blind_to_files_is_found_out(place: Base, monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault that the proofs catch: a shard that is reused although its pose file changed."""
    kept = key.make_shard_keys
    monkeypatch.setattr(key, "make_shard_keys", lambda *given: kept(*given[:-1], dict.fromkeys(given[-1], "")))
    shutil.rmtree(place.root)
    run_all(place.root, place.corpus, "trajectories")
    trajectory_replaced(place.corpus)
    run_all(place.root, place.corpus, "trajectories")
    assert counted_bytes(place.root) != from_scratch(place, "trajectories")


def test_rejects_that_name_files_of_before_a_renaming_are_found_out(
    place: Base, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The fault that the proof of the renamed take catches: its reject rows speak of a folder that is gone."""
    monkeypatch.setattr(reuse, "_files_named", lambda *_: set())
    take_renamed(place.corpus)
    run_all(place.root, place.corpus, "features")
    ours, theirs = counted_bytes(place.root), from_scratch(place, "features")
    assert {path: ours[path] for path in theirs if path in ours} != theirs
