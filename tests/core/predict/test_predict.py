"""A plan for a user's video, on the soak world: the rows of the evaluation, nothing from the video's own take."""

import json
import runpy
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from once import Worlds
from pi3_fixture import pi3_package
from predict_fixture import Ready, ready, same_as_the_evaluation
from video_fixture import in_process

import trajpilot_core as tp
from schemas.predict import Plan
from trajpilot_core.errors import CheckpointError, InputError, StoreError
from trajpilot_core.poses.aria import closed_loop
from trajpilot_core.poses.aria.device import read_column, take_clock
from trajpilot_core.predict import footage
from trajpilot_core.predict.answers import Clips, answer_with, load_chain
from trajpilot_core.predict.footage import clip_features
from trajpilot_core.predict.motion import head_motion
from trajpilot_core.predict.plan import plan_rows
from trajpilot_core.predict.run import SCRATCH, WrittenPlan, predict
from trajpilot_core.predict.trained import open_trained
from trajpilot_core.store.reading import refuse_mixed
from trajpilot_core.video import isolate, probe

pytestmark = pytest.mark.slow
ROWS = ["scorer", "endpoint_traj", "no_traj"]


@pytest.fixture(autouse=True)
def fewer_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe and decode in this process; `tested` and `learned`, and odometry, have processes of their own."""
    real = isolate.run_jobs
    monkeypatch.setattr(probe, "run_jobs", in_process)
    monkeypatch.setattr(
        isolate, "run_jobs", lambda jobs, **how: (real if "command" in how else in_process)(jobs, **how)
    )


@pytest.fixture(scope="module")
def soak_root(worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Ready:
    return ready(tmp_path_factory.mktemp("root"), worlds)


@pytest.fixture(scope="module")
def tested(soak_root: Ready) -> WrittenPlan:
    """The plan for a window of a test take."""
    return predict(soak_root.query(soak_root.window("test")), soak_root.run)


@pytest.fixture(scope="module")
def learned(soak_root: Ready) -> Plan:
    """The plan for a window of the bank."""
    return soak_root.plan(soak_root.window("train"))


def test_a_plan_for_a_test_take_equals_the_answers_of_the_evaluation(soak_root: Ready, tested: WrittenPlan) -> None:
    assert same_as_the_evaluation(tested.plan, soak_root, soak_root.window("test")) == ROWS
    assert [row.decides for row in tested.plan.rows] == [True, False, False]
    own = tested.plan.own_take
    assert (own.split, len(own.annotated)) == ("test", 5)


def test_the_clips_are_measured_bit_for_bit_as_the_stages_measured_them(
    soak_root: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    window = soak_root.window("test")
    query = soak_root.query(window)
    seen = footage.open_footage(query, soak_root.trained)
    vectors, _ = clip_features(seen, soak_root.trained, soak_root.run, tmp_path)
    moved = head_motion(query, seen, soak_root.trained, soak_root.run, tmp_path)
    features, motions = arrays(soak_root, window)
    np.testing.assert_array_equal(vectors, features)
    np.testing.assert_array_equal(moved.motions, motions)


def arrays(soak_root: Ready, window: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Features (2, D) and motions (2, 16, 6) of the ends of a window."""
    found = []
    for table, column, dtype in (("features", "vector", np.float16), ("motions", "motions", np.float32)):
        rows = {row["segment_id"]: row[column] for row in soak_root.trained.inputs.table(table).to_pylist()}
        found.append(np.array([rows[window["segment_ids"][at]] for at in (0, -1)], dtype))
    return found[0], found[1].reshape(2, 16, 6)


def test_every_horizon_gives_the_rows_of_the_evaluation(soak_root: Ready, tested: WrittenPlan) -> None:
    chain = load_chain(soak_root.trained, None, "cpu")
    for horizon in (3, 4, 6, 7):
        window = soak_root.window("test", horizon)
        given = answer_with(chain, Clips(*arrays(soak_root, window)), horizon, window["take_id"])
        rows = plan_rows(given, soak_root.trained, frozenset())
        assert same_as_the_evaluation(tested.plan.replace(rows=rows), soak_root, window) == ROWS


def test_a_take_of_the_bank_never_retrieves_itself(soak_root: Ready, learned: Plan) -> None:
    assert learned.own_take.split == "train"
    assert len(learned.nearest) > 1
    assert learned.own_take.take_id not in {window.take_id for window in learned.nearest}
    assert any("the models were trained on it" in note for note in learned.notes)


def test_without_knowing_the_take_it_would_retrieve_itself(
    soak_root: Ready, learned: Plan, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted leak that the exclusion prevents."""
    monkeypatch.setattr(footage, "own_take", lambda *_: None)
    nearest = soak_root.plan(soak_root.window("train")).nearest[0]
    assert nearest.take_id == learned.own_take.take_id
    assert nearest.cosine > 0.9999


def test_a_copy_elsewhere_is_identified_by_its_content(soak_root: Ready, tmp_path: Path, tested: WrittenPlan) -> None:
    window = soak_root.window("test")
    copy = shutil.copy(soak_root.video(window), tmp_path / "holiday.mp4")
    plan = soak_root.plan(window, video=str(copy))
    assert plan.own_take == tested.plan.own_take
    assert plan.rows == tested.plan.rows


def test_poses_that_the_query_names_need_their_time_and_their_calibration(
    soak_root: Ready, tested: WrittenPlan, tmp_path: Path
) -> None:
    window = soak_root.window("test")
    poses = Path(soak_root.run.data_root, str(soak_root.trained.takes[window["take_id"]].trajectory))
    with pytest.raises(InputError, match="give with --trajectory-offset the second of the video"):
        soak_root.plan(window, trajectory=str(poses))
    guessed = soak_root.plan(window, trajectory=str(poses), trajectory_offset_s=-0.3)
    assert any("the first pose was taken at -0.3 s of the video" in note for note in guessed.notes)
    assert guessed.rows != tested.plan.rows
    begin_s = first_pose_s(soak_root, window, poses)
    close = soak_root.plan(window, trajectory=str(poses), trajectory_offset_s=begin_s)
    same_steps = [[step.label for step in row.steps] for row in tested.plan.rows]
    assert [[step.label for step in row.steps] for row in close.rows] == same_steps, "the offset of the take"
    named = {"trajectory": str(shutil.copy(poses, tmp_path / "poses.csv")), "trajectory_offset_s": begin_s}
    with pytest.raises(InputError, match=r"name online_calibration\.jsonl with --calibration"):
        soak_root.plan(window, **named)
    calibration = poses.with_name("online_calibration.jsonl")
    assert soak_root.plan(window, **named, calibration=str(calibration)).rows == close.rows


def first_pose_s(soak_root: Ready, window: dict[str, Any], poses: Path) -> float:
    """Second of a take's video at which its first pose was taken, by its timesync file."""
    take = soak_root.trained.takes[window["take_id"]]
    column = read_column(soak_root.run.data_root, str(take.timesync), take.camera)
    stamps_us = closed_loop.parse(poses.read_bytes(), str(poses)).stamp_us
    return float(stamps_us[0] / 1e6 - take_clock(column, take, str(take.timesync)).ns[0] / 1e9)


def test_without_head_motion_only_no_traj_answers_and_a_note_explains_it(soak_root: Ready) -> None:
    window = soak_root.window("test")
    plan = soak_root.plan(window, poses="none")
    assert same_as_the_evaluation(plan, soak_root, window) == ["no_traj"]
    assert plan.nearest == ()
    assert any(note.startswith("No head motion, so only No-Traj answers") for note in plan.notes)


def test_an_unknown_video_gets_its_motion_from_the_video_and_no_traj_decides_unless_the_query_names_the_source(
    soak_root: Ready, tested: WrittenPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = soak_root.window("test")
    copy = shutil.copy(soak_root.video(window), tmp_path / "mine.mp4")
    monkeypatch.setattr(footage, "own_take", lambda *_: None)
    plan = soak_root.plan(window, video=str(copy))
    assert plan.own_take is None
    assert [row.row for row in plan.rows] == ["no_traj", *ROWS[:2]]
    assert (plan.motion.source, plan.motion.scale) == ("odometry", "arbitrary")
    assert any("MIXED HEAD MOTION" in note for note in plan.notes)
    assert plan.decided.steps == tested.plan.rows[-1].steps
    asked = soak_root.plan(window, video=str(copy), poses="odometry")
    assert [row.row for row in asked.rows] == ROWS
    assert any("MIXED HEAD MOTION" in note for note in asked.notes)
    assert not any("MIXED HEAD MOTION" in note for note in tested.plan.notes), "the source that the models know"


def test_pi3_uses_the_weights_that_the_query_names(
    soak_root: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pi3_package(tmp_path, monkeypatch) as weights:
        plan = soak_root.plan(soak_root.window("test"), poses="pi3", weights=str(weights))
    assert [row.row for row in plan.rows] == ROWS
    assert (plan.motion.source, plan.motion.frame, plan.motion.scale) == ("pi3", "camera", "arbitrary")
    assert any("MIXED HEAD MOTION" in note for note in plan.notes)


def test_a_video_in_an_ego_exo4d_download_finds_its_own_poses_and_leaves_no_scratch(
    soak_root: Ready, tested: WrittenPlan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(footage, "own_take", lambda *_: None)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    plan = soak_root.plan(soak_root.window("test"))
    assert not list(tmp_path.glob(f"{SCRATCH}*"))
    assert "timesync file" in plan.motion.clock
    assert plan.rows == tested.plan.rows


def test_the_page_is_self_contained_and_marked_as_simulated(tested: WrittenPlan) -> None:
    page = Path(tested.folder, "plan.html").read_text()
    assert "<strong>SIMULATED.</strong>" in page
    assert "http://" not in page.replace("http://www.w3.org/2000/svg", "")
    assert "https://" not in page
    n_frames = page.count('src="data:image/jpeg;base64,')
    assert n_frames == 6 + (5 if tested.plan.nearest else 0)
    assert Plan.model_validate(json.loads(Path(tested.folder, "plan.json").read_text())) == tested.plan


def test_an_encoder_of_other_settings_is_refused(soak_root: Ready, tmp_path: Path) -> None:
    other = soak_root.trained.features.replace(interpolate_rope=False)
    seen = footage.open_footage(soak_root.query(soak_root.window("test")), soak_root.trained)
    with pytest.raises(CheckpointError, match="other weights or another preprocessing"):
        clip_features(seen, replace(soak_root.trained, features=other), soak_root.run, tmp_path)


def test_outputs_of_two_runs_are_refused(soak_root: Ready) -> None:
    trained = soak_root.trained
    refuse_mixed(trained.inputs, trained.manifests, "here")
    old = trained.manifests["scorer"]
    doctored = {**trained.manifests, "scorer": old.replace(inputs={**old.inputs, "features": "0" * 64})}
    with pytest.raises(StoreError, match="scorer under here was made from an older 'features'"):
        refuse_mixed(trained.inputs, doctored, "here")


def test_a_root_without_scorers_is_refused_with_the_stage_to_run(soak_root: Ready, tmp_path: Path) -> None:
    shutil.copytree(Path(soak_root.run.root, "artifacts"), tmp_path / "artifacts")
    shutil.rmtree(tmp_path / "artifacts" / "scorer")
    with pytest.raises(StoreError, match=r"needs .scorers. of stage scorer.*run scorer first"):
        open_trained(str(tmp_path))


def test_a_query_that_cannot_be_answered_is_refused_with_the_reason(soak_root: Ready) -> None:
    for changes, said in (
        ({"video": "/nowhere/at/all.mp4"}, "video /nowhere/at/all.mp4 does not exist"),
        ({"video": __file__}, "give a video that plays"),
        ({"start": "3.0-2.0"}, "--start 3-2 ends before it begins"),
        ({"start": "1.0-1.05"}, "at least 0.2 s are needed"),
        ({"goal": "9000-9001"}, "--goal 9000-9001 reaches past the end of the video"),
        ({"start": "1-3", "goal": "2-4"}, "--goal begins at 2 s, before --start ends at 3 s"),
        ({"horizon": 12}, "--horizon 12: the models were trained for 3, 4"),
        ({"seed": 7}, "--seed 7: there are models of the seeds 0"),
        ({"trajectory": "/nowhere.csv"}, "trajectory /nowhere.csv does not exist"),
        ({"trajectory": __file__, "poses": "odometry"}, "exclude each other"),
        ({"poses": "pi3"}, "no head motion from pi3|needs the package pi3"),
        ({"weights": "/nowhere"}, "--weights belongs to --poses pi3"),
        ({"trajectory": __file__}, "not a closed-loop pose file"),
    ):
        with pytest.raises(InputError, match=said):
            soak_root.plan(soak_root.window("test"), **changes)


def test_from_python_the_plan_is_the_same_and_nothing_is_written(soak_root: Ready, tested: WrittenPlan) -> None:
    run, window = tp.open(soak_root.run.root), soak_root.window("test")
    before = written_at(soak_root)
    start, goal = soak_root.ends(window)
    plan = run.predict(str(soak_root.video(window)), start, goal, device="cpu")
    assert plan == tested.plan
    features, motions = arrays(soak_root, window)
    predictor = run.predictor()
    assert predictor.predict(features, motions, 5, window["take_id"]) == plan.rows
    assert [row.row for row in predictor.predict(features, None, 5, window["take_id"])] == ["no_traj"]
    for asked, said in (
        ((features[:1],), r"features have the shape \(1, "),
        ((features, motions * np.nan), "motions contain numbers that are not finite"),
        ((features, motions, 40), "--horizon 40: the models were trained for 3"),
        ((features, motions, 5, "nobody"), "this corpus has no take 'nobody'"),
    ):
        with pytest.raises(InputError, match=said):
            predictor.predict(*asked)
    assert written_at(soak_root) == before


def written_at(soak_root: Ready) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in Path(soak_root.run.root).rglob("*") if path.is_file()}


def test_from_python_every_table_and_model_is_read_and_checked(soak_root: Ready, tmp_path: Path) -> None:
    run = tp.open(soak_root.run.root)
    assert run.warning.startswith("SIMULATED")
    assert run.table("predictions").to_dicts() == soak_root.predictions
    assert all(run.table(name).height >= 0 for name in run.tables())
    assert all(run.model(name) for name in run.models())
    assert set(run.compare(run)["difference"].to_list()) == {0.0}
    with pytest.raises(InputError, match=r"has no table 'soup'; it has .*predictions"):
        run.table("soup")
    with pytest.raises(InputError, match=r"has no model 'soup'; it has .*e_tau"):
        run.model("soup")
    damaged = Path(shutil.copytree(soak_root.run.root, tmp_path / "root"))
    (file,) = damaged.rglob(Path(run.outputs["evaluation"].entries["predictions"].files[0].name).name)
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError, match="is damaged: sha256"):
        tp.open(damaged).table("predictions")


def test_an_example_runs_and_marks_its_figures_as_simulated(
    soak_root: Ready, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for script in sorted(Path("examples").glob("*.py")):
        monkeypatch.setattr("sys.argv", [str(script), soak_root.run.root])
        runpy.run_path(str(script))
        said = capsys.readouterr().out
        assert said.startswith("SIMULATED world"), script
        assert len(said.splitlines()) > 10, script
