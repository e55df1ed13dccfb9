"""Process workers and a root with a small simulated world, for the tests of sharing out."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from checkout import CHECKOUT
from prefect import flow, runtime
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import ArtifactFilter, ArtifactFilterFlowRunId, ArtifactFilterKey
from prefect.utilities.callables import parameter_schema
from stack_processes import kill_all_of, processes_of, wait_for

from deployments.deploy import make_pool
from deployments.recipes.simulated import soak
from deployments.settings import CPU_POOL, GPU_POOL, POOLS
from flows.stages import features_gpu_group, predictor_group, trajectories_group
from schemas.config import PipelineConfig, RunOptions
from tasks.fan_out import Board
from tasks.stage import stage_output
from trajpilot_core.store.manifest import PACKS

LIMIT_S = 240.0


@contextmanager
def worker(api: str, pool: str, folder: Path, name: str) -> Iterator[Path]:
    """A process worker that does one run at a time; ended with all that it started, which is found by the mark."""
    mark = folder / f"worker-{name}"
    stated = {"PREFECT_API_URL": api, "PREFECT_WORKER_QUERY_SECONDS": "1", "PREFECT_PLUGINS_ENABLED": "0"}
    environment = {**os.environ, **stated, "MARK": str(mark)}
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--limit", "1", "--name", name]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield mark
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        kill_all_of(mark)


def run_processes(mark: Path) -> list[int]:
    return [pid for pid, line in processes_of(mark).items() if "prefect.engine" in line]


@contextmanager
def killed_first(mark: Path, patch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kill the first flow run of a worker; until then the run that shares out leaves the last groups to workers."""
    killed = Event()
    last_waiting = Board.last_waiting
    patch.setattr(Board, "last_waiting", lambda board: last_waiting(board) if killed.is_set() else None)

    def kill() -> None:
        wait_for(lambda: bool(run_processes(mark)), LIMIT_S)
        os.kill(run_processes(mark)[0], signal.SIGKILL)
        killed.set()

    killer = Thread(target=kill)
    killer.start()
    yield
    killer.join()


def shared_out(run: RunOptions, stage: str = "features", config: PipelineConfig | None = None) -> str:
    """Run a stage as a deployed run would; return the id of the flow run."""

    @flow(name=stage)
    def one_stage() -> str:
        stage_output(stage, config or small(), run)
        return str(runtime.flow_run.id)

    return one_stage()


def table_of(flow_run: str, stage: str = "features") -> list[dict[str, Any]]:
    """Rows of the table of groups that a run has left."""
    key, run = ArtifactFilterKey(any_=[f"{stage}-groups"]), ArtifactFilterFlowRunId(any_=[flow_run])
    with get_client(sync_client=True) as client:
        (found,) = client.read_artifacts(artifact_filter=ArtifactFilter(key=key, flow_run_id=run))
    return list(json.loads(str(found.data)))


def deploy_groups(client: SyncPrefectClient) -> None:
    """Make the work pools and the deployments of groups on a machine without a GPU, as prefect.yaml does."""
    for pool in POOLS:
        make_pool(client, pool, "process")
    for found, pool in ((features_gpu_group, GPU_POOL), (predictor_group, GPU_POOL), (trajectories_group, CPU_POOL)):
        client.create_deployment(
            flow_id=client.create_flow(found),
            name=found.name,
            work_pool_name=pool,
            entrypoint=f"deployments/deployed.py:{found.name.replace('-', '_')}",
            parameter_openapi_schema=parameter_schema(found).model_dump(),
            enforce_parameter_schema=True,
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": str(CHECKOUT)}}],
        )


def online(client: SyncPrefectClient, pool: str) -> set[str]:
    return {worker.name for worker in client.read_workers_for_work_pool(pool)}


def copied(root: Path, other: Path) -> Path:
    shutil.copytree(root / "artifacts", other / "artifacts")
    return other


def artifact_bytes(root: Path) -> dict[str, bytes]:
    """Every artifact's bytes by its path; run records are left out, and packs, which are made by readers."""
    files = {str(path.relative_to(root)): path for path in (root / "artifacts").rglob("*") if path.is_file()}
    return {
        name: path.read_bytes()
        for name, path in files.items()
        if path.name != "run_record.json" and path.parent.name != PACKS
    }


def options(root: Path, data: Path, **changes: object) -> RunOptions:
    stated = {"root": str(root), "data_root": str(data), "device": "cpu", "workers": 1, "max_reject_ratio": 0.6}
    return RunOptions.model_validate({**stated, **changes})


def small() -> PipelineConfig:
    return soak()
