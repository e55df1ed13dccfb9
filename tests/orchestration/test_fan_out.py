"""Stages shared out over process workers of a Prefect server: equal bytes, lost groups, the table of groups."""

from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

import pytest
from once import Worlds
from pool_fixture import (
    LIMIT_S,
    artifact_bytes,
    copied,
    deploy_groups,
    killed_first,
    online,
    options,
    shared_out,
    small,
    table_of,
    worker,
)
from prefect.client.orchestration import get_client
from stack_processes import wait_for

from schemas.poses import OdometryConfig
from schemas.world import soak_world
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.stages import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
GROUP_S = 32.0
"""Three groups of the world's twelve takes."""
BEFORE = ("ingest", "trajectories", "features", "text_bank", "alignment")
NAMES = ("one", "two", "three", "four")


class Ground(NamedTuple):
    """A server with the deployments, a world, and a root whose features one process made."""

    api: str
    data: Path
    before: Path
    """Root with `ingest` alone."""
    alone: dict[str, bytes]
    """Artifacts after `features` in one process."""


@pytest.fixture(scope="module")
def ground(prefect_server: str, worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("pool")
    data, before, single = folder / "data", folder / "before", folder / "single"
    worlds.copy(soak_world(), data)
    execute(STAGES["ingest"], small(), options(before, data), STAGES)
    execute(STAGES["features"], small(), options(copied(before, single), data), STAGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_API_URL", prefect_server)
        with get_client(sync_client=True) as client:
            deploy_groups(client)
    return Ground(prefect_server, data, before, artifact_bytes(single))


def test_without_a_worker_the_run_computes_every_group_itself(ground: Ground, tmp_path: Path) -> None:
    run = options(copied(ground.before, tmp_path / "root"), ground.data, group_video_s=GROUP_S)
    rows = table_of(shared_out(run))
    assert [(row["state"], row["where"], row["attempts"]) for row in rows] == [("done", "this run", 1)] * 3
    assert artifact_bytes(tmp_path / "root") == ground.alone


def test_two_workers_make_the_same_bytes_and_a_killed_group_is_done_again(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = options(copied(ground.before, tmp_path / "root"), ground.data, group_video_s=GROUP_S)
    with (
        worker(ground.api, "trajpilot-gpu", tmp_path, "one") as first,
        worker(ground.api, "trajpilot-gpu", tmp_path, "two"),
    ):
        with get_client(sync_client=True) as client:
            wait_for(lambda: online(client, "trajpilot-gpu") == {"one", "two"}, LIMIT_S)
        with killed_first(first, monkeypatch):
            rows = table_of(shared_out(run))
    assert artifact_bytes(tmp_path / "root") == ground.alone
    assert [row["state"] for row in rows] == ["done"] * 3
    (lost,) = [row for row in rows if row["attempts"] == 2]
    assert "Crashed: " in lost["why it failed"]
    assert {row["where"] for row in rows} > {"this run"}


@pytest.mark.campaign
def test_poses_from_video_are_shared_out_over_the_workers_of_the_other_pool(ground: Ground, tmp_path: Path) -> None:
    quick = OdometryConfig(rate_hz=4, size_px=96, corners=48)
    config = small().replace(trajectories=small().trajectories.replace(source="odometry", odometry=quick))
    alone = options(copied(ground.before, tmp_path / "alone"), ground.data, max_reject_ratio=1.0)
    assert execute(STAGES["trajectories"], config, alone, STAGES).n_out > 0
    root = copied(ground.before, tmp_path / "root")
    run = options(root, ground.data, max_reject_ratio=1.0, group_video_s=GROUP_S)
    with worker(ground.api, "trajpilot-cpu", tmp_path, "poses"), get_client(sync_client=True) as client:
        wait_for(lambda: "poses" in online(client, "trajpilot-cpu"), LIMIT_S)
        rows = table_of(shared_out(run, "trajectories", config), "trajectories")
    assert [row["state"] for row in rows] == ["done"] * 3
    assert {row["where"] for row in rows} > {"this run"}
    assert artifact_bytes(root) == artifact_bytes(tmp_path / "alone")


@pytest.mark.campaign
def test_four_workers_make_the_same_models_and_a_killed_training_is_done_again(
    prefect_server: str, worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small().replace(alignment=small().alignment.replace(folds=2))
    data, before, single = tmp_path / "data", tmp_path / "before", tmp_path / "single"
    worlds.copy(soak_world(), data)
    for stage in BEFORE:
        execute(STAGES[stage], config, options(before, data), STAGES)
    execute(STAGES["predictor"], config, options(copied(before, single), data), STAGES)
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    run = options(copied(before, tmp_path / "root"), data, group_video_s=1.0)
    with ExitStack() as workers, get_client(sync_client=True) as client:
        deploy_groups(client)
        marks = [workers.enter_context(worker(prefect_server, "trajpilot-gpu", tmp_path, name)) for name in NAMES]
        wait_for(lambda: online(client, "trajpilot-gpu") >= set(NAMES), LIMIT_S)
        with killed_first(marks[0], monkeypatch):
            rows = table_of(shared_out(run, "predictor", config), "predictor")
    assert [row["state"] for row in rows] == ["done"] * 7
    assert [row["attempts"] for row in rows].count(2) == 1
    assert {row["where"] for row in rows} > {"this run"}
    assert artifact_bytes(tmp_path / "root") == artifact_bytes(single)
