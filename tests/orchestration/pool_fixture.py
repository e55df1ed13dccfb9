"""Process workers and a root with a small simulated world, for the tests of sharing out."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from checkout import CHECKOUT
from prefect.client.orchestration import SyncPrefectClient
from stack_processes import kill_all_of, processes_of

from schemas.config import PipelineConfig, RunOptions

LIMIT_S = 240.0


@contextmanager
def worker(api: str, pool: str, folder: Path, name: str) -> Iterator[Path]:
    """A process worker that does one run at a time; ended with all that it started, which is found by the mark."""
    mark = folder / f"worker-{name}"
    stated = {
        "PREFECT_API_URL": api,
        "PREFECT_WORKER_QUERY_SECONDS": "1",
        "PREFECT_PLUGINS_ENABLED": "0",
        "MARK": str(mark),
    }
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--limit", "1", "--name", name]
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=CHECKOUT, env={**os.environ, **stated}, stdout=log, stderr=log, start_new_session=True
        )
    try:
        yield mark
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=30)
        kill_all_of(mark)


def run_processes(mark: Path) -> list[int]:
    """Ids of the processes that execute a flow run for a worker."""
    return [pid for pid, line in processes_of(mark).items() if "prefect.engine" in line]


def wait_for(what: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait until something is so."""
    end = time.monotonic() + limit_s
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.05)


def deploy_groups(client: SyncPrefectClient) -> None:
    """Make the work pools and the deployments of groups on a machine without a GPU, as prefect.yaml does."""
    from prefect.utilities.callables import parameter_schema

    from deployments.deploy import make_pool
    from deployments.settings import CPU_POOL, GPU_POOL, POOLS
    from flows.groups import features_group, trajectories_group

    for pool in POOLS:
        make_pool(client, pool, "process")
    for found, pool in ((features_group, GPU_POOL), (trajectories_group, CPU_POOL)):
        client.create_deployment(
            flow_id=client.create_flow(found),
            name=found.name,
            work_pool_name=pool,
            entrypoint=f"flows/groups.py:{found.name.replace('-', '_')}",
            parameter_openapi_schema=parameter_schema(found).model_dump(),
            enforce_parameter_schema=True,
            pull_steps=[{"prefect.deployments.steps.set_working_directory": {"directory": str(CHECKOUT)}}],
        )


def online(client: SyncPrefectClient, pool: str) -> set[str]:
    """Names of the workers of a pool that the server has heard of."""
    return {worker.name for worker in client.read_workers_for_work_pool(pool)}


def copied(root: Path, other: Path) -> Path:
    """A root with the same finished stages."""
    shutil.copytree(root / "artifacts", other / "artifacts")
    return other


def artifact_bytes(root: Path) -> dict[str, bytes]:
    """Every artifact's bytes by its path, run records left out."""
    files = [path for path in (root / "artifacts").rglob("*") if path.is_file() and path.name != "run_record.json"]
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def options(root: Path, data: Path, **changes: object) -> RunOptions:
    """Options of a run on one CPU process."""
    stated = {"root": str(root), "data_root": str(data), "device": "cpu", "workers": 1, "max_reject_ratio": 0.6}
    return RunOptions.model_validate({**stated, **changes})


def small() -> PipelineConfig:
    """The recipe `soak`."""
    from deployments.recipes import soak

    return soak()
