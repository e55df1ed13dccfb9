"""Stages shared out over process workers of a Prefect server: equal bytes, lost groups, the table of groups."""

from contextlib import ExitStack
from pathlib import Path
from threading import Thread
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
from prefect.flow_engine import run_flow
from prefect.flows import load_flow_from_entrypoint
from prefect.states import Pending
from stack_processes import wait_for

from deployments.settings import CPU_POOL, GPU_POOL
from schemas.config import PipelineConfig
from schemas.poses import OdometryConfig
from schemas.world import soak_world
from tasks import fan_out
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.stages import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
GROUP_S = 32.0
"""Three groups of the world's twelve takes."""
QUICK = OdometryConfig(rate_hz=4, size_px=96, corners=48)
FROM_VIDEO = small().replace(trajectories=small().trajectories.replace(source="odometry", odometry=QUICK))
TWO_FOLDS = small().replace(alignment=small().alignment.replace(folds=2))


class Ground(NamedTuple):
    """A server with the deployments, a world, and a root with `ingest` alone."""

    api: str
    data: Path
    before: Path


@pytest.fixture(scope="module")
def ground(prefect_server: str, worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("pool")
    worlds.copy(soak_world(), folder / "data")
    execute(STAGES["ingest"], small(), options(folder / "before", folder / "data"), STAGES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PREFECT_API_URL", prefect_server)
        with get_client(sync_client=True) as client:
            deploy_groups(client)
    return Ground(prefect_server, folder / "data", folder / "before")


def do_first() -> None:
    """Do the first run that waits in the pool, as the process does that a worker starts for it."""
    with get_client(sync_client=True) as client:
        run = client.get_scheduled_flow_runs_for_work_pool(GPU_POOL)[0].flow_run
        assert run.deployment_id is not None
        client.set_flow_run_state(run.id, Pending())
        entrypoint = str(client.read_deployment(run.deployment_id).entrypoint)
        run_flow(load_flow_from_entrypoint(entrypoint), flow_run=client.read_flow_run(run.id))


def test_groups_that_a_worker_and_the_run_itself_compute_have_the_bytes_of_one_process(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(STAGES["features"], small(), options(copied(ground.before, tmp_path / "alone"), ground.data), STAGES)
    last_waiting, workers = fan_out.Board.last_waiting, [Thread(target=do_first)]

    def after_the_worker(board: fan_out.Board) -> fan_out.Row | None:
        if not workers:
            return last_waiting(board)
        worker = workers.pop()
        worker.start()
        worker.join()
        return None

    monkeypatch.setattr(fan_out.Board, "last_waiting", after_the_worker)
    run = options(copied(ground.before, tmp_path / "root"), ground.data, group_video_s=GROUP_S)
    rows = table_of(shared_out(run))
    assert [(row["state"], row["attempts"]) for row in rows] == [("done", 1)] * 3
    assert [row["where"] for row in rows] == ["", "this run", "this run"]
    assert artifact_bytes(tmp_path / "root") == artifact_bytes(tmp_path / "alone")


@pytest.mark.parametrize(
    ("stage", "config", "pool", "n_workers", "group_s", "attempts"),
    [
        pytest.param("features", small(), GPU_POOL, 2, GROUP_S, [1, 1, 2], marks=pytest.mark.stack),
        pytest.param("trajectories", FROM_VIDEO, CPU_POOL, 1, GROUP_S, [1] * 3, marks=pytest.mark.campaign),
        pytest.param("predictor", TWO_FOLDS, GPU_POOL, 4, 1.0, [1] * 6 + [2], marks=pytest.mark.campaign),
    ],
    ids=["features", "poses", "trainings"],
)
def test_workers_make_the_same_bytes_and_a_killed_group_is_done_again(
    stage: str,
    config: PipelineConfig,
    pool: str,
    n_workers: int,
    group_s: float,
    attempts: list[int],
    ground: Ground,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, alone, root = tmp_path / "before", tmp_path / "alone", tmp_path / "root"
    copied(ground.before, before)
    for name in ("trajectories", "features", "text_bank", "alignment") if stage == "predictor" else ():
        execute(STAGES[name], config, options(before, ground.data), STAGES)
    single = options(copied(before, alone), ground.data, max_reject_ratio=1.0)
    assert execute(STAGES[stage], config, single, STAGES).n_out > 0
    run = options(copied(before, root), ground.data, max_reject_ratio=1.0, group_video_s=group_s)
    names = [f"{stage}-{n}" for n in range(n_workers)]
    with ExitStack() as workers:
        marks = [workers.enter_context(worker(ground.api, pool, tmp_path, name)) for name in names]
        with get_client(sync_client=True) as client:
            wait_for(lambda: online(client, pool) >= set(names), LIMIT_S)
        if 2 in attempts:
            workers.enter_context(killed_first(marks[0], monkeypatch))
        rows = table_of(shared_out(run, stage, config), stage)
    assert [row["state"] for row in rows] == ["done"] * len(attempts)
    assert sorted(row["attempts"] for row in rows) == attempts
    assert ["Crashed: " in row["why it failed"] for row in rows].count(True) == attempts.count(2)
    assert {row["where"] for row in rows} > {"this run"}
    assert artifact_bytes(root) == artifact_bytes(alone)
