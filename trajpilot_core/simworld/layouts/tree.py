"""The tree of an Ego-Exo4D download, which three layouts share: videos, trajectories, captures, metadata."""

from trajpilot_core.simworld import faults
from trajpilot_core.simworld.layouts.aria import timesync_csv
from trajpilot_core.simworld.layouts.base import NamedFiles
from trajpilot_core.simworld.world.truth import TakeTruth, World


def take_files(world: World, take: TakeTruth, content: faults.TakeContents) -> NamedFiles:
    """Yield video, trajectory and calibration of a take."""
    root, camera = f"takes/{take.name}", world.captures[take.capture].camera
    for name, data in (
        (f"{root}/frame_aligned_videos/{camera}_214-1.mp4", content.video),
        (f"{root}/trajectory/closed_loop_trajectory.csv", content.trajectory),
        (f"{root}/trajectory/online_calibration.jsonl", content.calibration),
    ):
        if data is not None:
            yield name, data


def capture_files(world: World) -> NamedFiles:
    """Yield timesync.csv of every capture."""
    fault_of = {take.capture: take.fault for take in world.takes}
    for number, capture in enumerate(world.captures):
        text = faults.break_timesync(fault_of[number], timesync_csv(world, capture), capture.camera)
        if text is not None:
            yield f"captures/{capture.name}/timesync.csv", text.encode()
