"""Commands `slurm` and `pilot`: workers as jobs of a cluster."""

import signal
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from trajpilot_core.errors import InputError
from trajpilot_core.store.locations import resolved

IdleS = Annotated[int, typer.Option("--idle-s", min=10, help="A worker without a run for so many seconds ends.")]
Logs = Annotated[Path, typer.Option("--logs", help="Folder for script and logs; the nodes must see it.")]
LOGS = Path("runs/slurm")


class Pool(StrEnum):
    """Which pool of the server a worker works for."""

    gpu = "trajpilot-gpu"
    cpu = "trajpilot-cpu"


OfPool = Annotated[Pool, typer.Option("--pool", help="Pool that the workers work for.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(slurm)
    app.command()(pilot)


def slurm(
    workers: Annotated[int, typer.Option("--workers", min=1, help="Jobs of the array: runs at a time.")] = 1,
    pool: OfPool = Pool.gpu,
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="GPUs of a worker; none for the pool without.")] = 1,
    cpus: Annotated[int, typer.Option("--cpus", min=1, help="Cores of a worker.")] = 4,
    time: Annotated[str, typer.Option("--time", help="Longest life of a job, as Slurm writes it.")] = "24:00:00",
    idle_s: IdleS = 900,
    sbatch: Annotated[list[str], typer.Option("--sbatch", help="Further option, with its dashes.")] = [],  # noqa: B006
    logs: Logs = LOGS,
    dry: Annotated[bool, typer.Option("--dry", help="Print the script; submit nothing.")] = False,
) -> None:
    """Submit an array of Slurm jobs, each a worker that does one run at a time for the server of PREFECT_API_URL.

    A job that is preempted, or whose time is up, goes back into the queue, and its run to the next worker. A worker
    that finds nothing to do ends.
    """
    from deployments.settings import server_login, server_of_deployments
    from deployments.slurm import PilotArray, submit
    from deployments.workers import refuse_unready

    gpus = gpus if pool is Pool.gpu else 0
    array = PilotArray(workers, pool.value, gpus, cpus, time, idle_s, resolved(logs), tuple(sbatch))
    if dry:
        typer.echo(array.script(), nl=False)
        return
    server = server_of_deployments()
    refuse_unready(server, server_login()[0], [pool.value])
    job, file = submit(array)
    typer.echo(f"job {job}: {workers} workers of {pool.value} for {server}; script {file}, logs beside it")
    if server is not None and any(host in server for host in ("127.0.0.1", "localhost", "[::1]")):
        typer.echo(f"only this machine reaches {server}: workers on other nodes need an address that they can reach")


def pilot(
    pool: OfPool = Pool.gpu,
    idle_s: IdleS = 900,
    logs: Logs = LOGS,
) -> None:
    """Work for a pool, one run at a time, until nothing is left to do: what each job of `trajpilot slurm` runs.

    On SIGTERM, or USR1 when the job's time is almost up, it gives its run back to the server and ends.
    """
    from deployments.pilot import Pilot, give_back, requeue
    from deployments.settings import (
        named_gpus,
        prefect_without_noise,
        server_login,
        server_of_deployments,
        slurm_job,
    )
    from deployments.workers import Kept, WorkerPlan, refuse_unready
    from trajpilot_core.engine.resolve import gpu_count

    refuse_unready(server_of_deployments(), server_login()[0], [pool.value])
    prefect_without_noise()
    job = slurm_job()
    gpus = named_gpus(gpu_count()) if pool is Pool.gpu else []
    plan = WorkerPlan(f"slurm-{job[1]}" if job else "pilot", pool.value, 1, ",".join(gpus) or None)
    logs.mkdir(parents=True, exist_ok=True)
    flown = Pilot(Kept(plan, resolved(logs) / f"{plan.name}-worker.log"), idle_s, typer.echo, give_back)

    def told(number: int, _: FrameType | None) -> None:
        flown.asked = "time" if number == signal.SIGUSR1 else "told"

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, told)
    why = flown.fly()
    if why == "died":
        raise InputError(f"the worker ended by itself; see {flown.worker.log}")
    typer.echo({"idle": f"no run for {idle_s} s", "told": "told to go", "time": "the job's time is almost up"}[why])
    if why == "time" and job is not None:
        requeue(job[0])
