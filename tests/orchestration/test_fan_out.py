"""Stages shared out over process workers of a Prefect server: equal bytes, lost groups, the table of groups."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any, NamedTuple

import pytest
from checkout import CHECKOUT
from once import Worlds
from prefect import flow, runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.flow_engine import run_flow
from prefect.flows import load_flow_from_entrypoint
from prefect.states import Pending
from prefect.utilities.callables import parameter_schema
from stack_processes import artifact_bytes, kill, processes_of, wait_for

from deployments.deploy import make_pool
from deployments.recipes.simulated import soak
from deployments.settings import GPU_POOL, POOLS
from flows.stages import features_gpu_group, predictor_group
from schemas.config import PipelineConfig, RunOptions
from schemas.world import soak_world
from tasks import fan_out
from tasks.fan_out import Board
from tasks.stage import stage_output
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.stages import STAGES

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
LIMIT_S, GROUP_S = 240.0, 32.0
"""To wait for a worker; of video in a group: three groups of the world's twelve takes."""
SMALL = soak()
TWO_FOLDS = SMALL.replace(alignment=SMALL.alignment.replace(folds=2))


@contextmanager
def worker(folder: Path, name: str) -> Iterator[Path]:
    """A process worker that does one run at a time; ended with all that it started, which is found by the mark."""
    mark = folder / f"worker-{name}"
    environment = {**os.environ, "PREFECT_WORKER_QUERY_SECONDS": "1", "MARK": str(mark)}
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", GPU_POOL, "--limit", "1", "--name", name]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield mark
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        kill(processes_of(mark))


@contextmanager
def killed_first(mark: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill the first flow run of a worker; until then the run that shares out leaves the last groups to workers."""

    def runs() -> list[int]:
        return [pid for pid, line in processes_of(mark).items() if "prefect.engine" in line]

    killed = Event()
    last_waiting = Board.last_waiting
    patch.setattr(Board, "last_waiting", lambda board: last_waiting(board) if killed.is_set() else None)

    def kill() -> None:
        wait_for(lambda: bool(runs()), LIMIT_S)
        os.kill(runs()[0], signal.SIGKILL)
        killed.set()

    killer = Thread(target=kill)
    killer.start()
    yield
    killer.join()


def shared_out(run: RunOptions, stage: str = "features", config: PipelineConfig = SMALL) -> list[dict[str, Any]]:
    """Run a stage as a deployed run would; return the rows of the table of groups that it has left."""

    @flow(name=stage)
    def one_stage() -> str:
        stage_output(stage, config, run)
        return str(runtime.flow_run.id)

    key, of_run = ArtifactFilterKey(any_=[f"{stage}-groups"]), ArtifactFilterFlowRunId(any_=[one_stage()])
    with get_client(sync_client=True) as client:
        (found,) = client.read_artifacts(artifact_filter=ArtifactFilter(key=key, flow_run_id=of_run))
    return list(json.loads(str(found.data)))


def deploy_groups(client: SyncPrefectClient) -> None:
    """Make the work pools and the deployments of groups on a machine without a GPU, as prefect.yaml does."""
    for pool in POOLS:
        make_pool(client, pool)
    for found in (features_gpu_group, predictor_group):
        client.create_deployment(
            flow_id=client.create_flow(found),
            name=found.name,
            work_pool_name=GPU_POOL,
            entrypoint=f"deployments/deployed.py:{found.name.replace('-', '_')}",
            parameter_openapi_schema=parameter_schema(found).model_dump(),
            enforce_parameter_schema=True,
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": str(CHECKOUT)}}],
        )


def copied(root: Path, other: Path) -> Path:
    shutil.copytree(root / "artifacts", other / "artifacts")
    return other


def options(root: Path, data: Path, **changes: object) -> RunOptions:
    stated = {"root": str(root), "data_root": str(data), "device": "cpu", "workers": 1, "max_reject_ratio": 0.6}
    return RunOptions.model_validate({**stated, **changes})


class Ground(NamedTuple):
    """A world, and a root with `ingest` alone; the server has the deployments."""

    data: Path
    before: Path


@pytest.fixture(scope="module")
def ground(prefect_server: str, worlds: Worlds, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    folder = tmp_path_factory.mktemp("pool")
    worlds.copy(soak_world(), folder / "data")
    execute(STAGES["ingest"], SMALL, options(folder / "before", folder / "data"), STAGES)
    with get_client(sync_client=True) as client:
        deploy_groups(client)
    return Ground(folder / "data", folder / "before")


def do_first() -> None:
    """Do the first group that waits in the pool, as the process does that a worker starts for it."""
    with get_client(sync_client=True) as client:
        deployed = client.read_deployment_by_name("features-gpu-group/features-gpu-group")
        waiting = (one.flow_run for one in client.get_scheduled_flow_runs_for_work_pool(GPU_POOL))
        run = next(run for run in waiting if run.deployment_id == deployed.id)
        client.set_flow_run_state(run.id, Pending())
        run_flow(load_flow_from_entrypoint(str(deployed.entrypoint)), flow_run=client.read_flow_run(run.id))


def test_groups_that_a_worker_and_the_run_itself_compute_have_the_bytes_of_one_process(
    ground: Ground, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(STAGES["features"], SMALL, options(copied(ground.before, tmp_path / "alone"), ground.data), STAGES)
    last_waiting, workers = Board.last_waiting, [Thread(target=do_first)]

    def after_the_worker(board: Board) -> fan_out.Row | None:
        if not workers:
            return last_waiting(board)
        worker = workers.pop()
        worker.start()
        worker.join()
        return None

    monkeypatch.setattr(Board, "last_waiting", after_the_worker)
    run = options(copied(ground.before, tmp_path / "root"), ground.data, group_video_s=GROUP_S)
    rows = shared_out(run)
    assert [(row["state"], row["attempts"]) for row in rows] == [("done", 1)] * 3
    assert [row["where"] for row in rows] == ["", "this run", "this run"]
    assert artifact_bytes(tmp_path / "root") == artifact_bytes(tmp_path / "alone")


@pytest.mark.parametrize(
    ("stage", "config", "n_workers", "group_s", "attempts"),
    [
        pytest.param("features", SMALL, 2, GROUP_S, [1, 1, 2], marks=pytest.mark.stack),
        pytest.param("predictor", TWO_FOLDS, 4, 1.0, [1] * 6 + [2], marks=pytest.mark.campaign),
    ],
    ids=["features", "trainings"],
)
def test_workers_make_the_same_bytes_and_a_killed_group_is_done_again(
    stage: str,
    config: PipelineConfig,
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
        marks = [workers.enter_context(worker(tmp_path, name)) for name in names]
        with get_client(sync_client=True) as client:
            wait_for(lambda: {one.name for one in client.read_workers_for_work_pool(GPU_POOL)} >= set(names), LIMIT_S)
        if 2 in attempts:
            workers.enter_context(killed_first(marks[0], monkeypatch))
        rows = shared_out(run, stage, config)
    assert [row["state"] for row in rows] == ["done"] * len(attempts)
    assert sorted(row["attempts"] for row in rows) == attempts
    assert ["Crashed: " in row["why it failed"] for row in rows].count(True) == attempts.count(2)
    assert {row["where"] for row in rows} > {"this run"}
    assert artifact_bytes(root) == artifact_bytes(alone)
