"""Measure what it costs to share `features` out: one process, then 1, 2 and 4 CPU workers, and the bytes that come out.

    python benchmarks/fan_out.py --folder <scratch> [--takes 40] [--group-video-s 120] [--workers 1 2 4]

Writes a simulated world, computes `features` once in one process, then starts a Prefect server of its own on a free
port of 127.0.0.1, deploys to it, and runs the deployment `features` with `trajpilot workers --gpu-workers N` on CPUs.
The run that shares out holds a worker and works too, so 1 worker is sharing out with nobody.

CPU seconds are user and system of the whole process tree: wall seconds mean little while others load the machine.
"""

import argparse
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

CHECKOUT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent
LIMIT_S = 3600.0
BUSY = 503
"""Status that a server gives while it starts or has too much to do."""
START = """
import time
def spent(what, load):
    cpu, wall = time.process_time(), time.monotonic()
    load()
    print(f"{what}: {time.process_time() - cpu:.1f} s CPU, {time.monotonic() - wall:.1f} s")
def encoder():
    import tempfile, pathlib
    from deployments.recipes.simulated import demo
    from trajpilot_core.encoders.video.embed import load_embedder
    load_embedder(demo().features, "cpu", pathlib.Path(tempfile.mkdtemp(dir=SCRATCH)))
SCRATCH = {scratch!r}
spent("import of Prefect", lambda: __import__("prefect"))
spent("import of torch", lambda: __import__("torch"))
spent("flow and encoder", lambda: (__import__("flows.groups"), encoder()))
"""
ALONE = """
from schemas.config import RunOptions
from deployments.recipes.simulated import demo
from trajpilot_core.stages import STAGES
from trajpilot_core.engine.execution.execute import execute
if __name__ == "__main__":
    run = RunOptions(root={root!r}, data_root={data!r}, device="cpu", workers=1, max_reject_ratio=0.6)
    execute(STAGES[{stage!r}], demo(), run, STAGES)
"""


class Cost(NamedTuple):
    wall_s: float
    cpu_s: float


def environment(folder: Path) -> dict[str, str]:
    """Return the environment of everything that a measurement starts: one thread each, a Prefect of its own."""
    said = {
        "OMP_NUM_THREADS": "1",
        "PREFECT_HOME": str(folder / "prefect"),
        "DO_NOT_TRACK": "1",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PYTHONPATH": str(CHECKOUT),
    }
    return os.environ | said


def waited(process: subprocess.Popen[Any], began: float) -> Cost:
    """Wait for a process; its CPU seconds are with all that it waited for."""
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(time.monotonic() - began, used.ru_utime + used.ru_stime)


def timed(code: str, environment: dict[str, str]) -> Cost:
    """Run Python code in a process of its own."""
    began = time.monotonic()
    process = subprocess.Popen([sys.executable, "-c", code], cwd=CHECKOUT, env=environment)
    cost = waited(process, began)
    if process.returncode:
        raise SystemExit(f"failed with {process.returncode}")
    return cost


def digests(root: Path) -> dict[str, str]:
    """sha256 of every artifact file, the run records left out."""
    files = [p for p in (root / "artifacts").rglob("*") if p.is_file() and p.name != "run_record.json"]
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


def ask(url: str, body: object = None) -> Any:
    """Call the API; a body makes it a POST. A server that is busy is asked again."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    for pause_s in (1.0, 3.0, 9.0, 0.0):
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except urllib.error.HTTPError as error:
            if error.code != BUSY or not pause_s:
                raise
            time.sleep(pause_s)


def until(what: Callable[[], bool]) -> None:
    """Wait until something is so."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            if what():
                return
        except OSError:
            pass
        if time.monotonic() > end:
            raise SystemExit("it took too long")
        time.sleep(0.5)


@contextmanager
def server(folder: Path, environment: dict[str, str]) -> Iterator[str]:
    """Run a Prefect server on a free port; ended by its id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}/api"
    command = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(port)]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        until(lambda: bool(ask(f"{url}/health")))
        yield url
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


class Spread(NamedTuple):
    cost: Cost
    """CPU: of the workers, their starts and all their runs; wall: from the start of the run to its end."""
    groups: list[dict[str, Any]]


def spread(url: str, root: Path, folder: Path, n_workers: int, group_video_s: float, env: dict[str, str]) -> Spread:
    """Run the deployment `features` with so many workers and wait for its end."""
    command = [str(BIN / "trajpilot"), "workers", "--gpu-workers", str(n_workers), "--cpu-workers", "0"]
    logs = folder / f"workers-{n_workers}"
    process = subprocess.Popen([*command, "--logs", str(logs)], cwd=CHECKOUT, env=env, stdout=subprocess.DEVNULL)
    try:
        pool = f"{url}/work_pools/trajpilot-gpu/workers/filter"
        until(lambda: sum("started!" in log.read_text() for log in logs.glob("*.log")) == n_workers)
        until(lambda: len(ask(pool, {})) >= n_workers)
        deployment = ask(f"{url}/deployments/name/features/features")["id"]
        options = {"root": str(root), "group_video_s": group_video_s, "workers": 1, "max_reject_ratio": 0.6}
        began = time.monotonic()
        run = ask(f"{url}/deployments/{deployment}/create_flow_run", {"parameters": {"run": options}})["id"]
        until(lambda: ask(f"{url}/flow_runs/{run}")["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED"))
        wall_s = time.monotonic() - began
        state = ask(f"{url}/flow_runs/{run}")["state"]
        if state["type"] != "COMPLETED":
            raise SystemExit(f"the run ended {state['name']}: {state['message']}; logs under {logs}")
    finally:
        process.send_signal(signal.SIGINT)
        cost = waited(process, time.monotonic())
    wanted = {"artifacts": {"key": {"any_": ["features-groups"]}, "flow_run_id": {"any_": [run]}}}
    (table,) = ask(f"{url}/artifacts/filter", wanted)
    return Spread(Cost(wall_s, cost.cpu_s), json.loads(table["data"]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--takes", type=int, default=40)
    parser.add_argument("--group-video-s", type=float, default=120.0)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    env = environment(folder)
    data, before, single = folder / "world", folder / "before", folder / "single"
    train, test = asked.takes * 3 // 4, asked.takes - asked.takes * 3 // 4
    world = (
        "from pathlib import Path; from schemas.world import soak_world; "
        "from trajpilot_core.simworld.write import write_world; from trajpilot_core.engine.stage import no_progress; "
        f"w = soak_world().replace(train_takes={train}, test_takes={test}, "
        "segments=12, segment_s=1.5, fps=15, size_px=128); "
        f"write_world(w, Path({str(data)!r}), 1, no_progress)"
    )
    print(f"world of {asked.takes} takes: {timed(world, env).cpu_s:.0f} s CPU", flush=True)
    timed(ALONE.format(root=str(before), data=str(data), stage="ingest"), env)
    shutil.copytree(before, single)
    alone = timed(ALONE.format(root=str(single), data=str(data), stage="features"), env)
    wanted = digests(single)
    print(f"{'':>22}{'groups':>8}{'wall s':>9}{'CPU s':>9}{'more CPU':>10}{'a group':>9}  equal bytes", flush=True)
    print(f"{'one process':>22}{'':>8}{alone.wall_s:9.0f}{alone.cpu_s:9.0f}", flush=True)
    with server(folder, env) as url:
        env["PREFECT_API_URL"] = url
        deploy = [str(BIN / "trajpilot"), "deploy", "--data", str(data), "--root", str(before), "--recipe", "demo"]
        subprocess.run(deploy, cwd=CHECKOUT, env=env, check=True, stdout=subprocess.DEVNULL)
        for n_workers in asked.workers:
            root = folder / f"with-{n_workers}"
            shutil.copytree(before, root)
            done = spread(url, root, folder, n_workers, asked.group_video_s, env)
            more, away = done.cost.cpu_s - alone.cpu_s, sum(row["where"] != "this run" for row in done.groups)
            name = f"{n_workers} worker{'s' * (n_workers > 1)} ({away} away)"
            row = f"{name:>22}{len(done.groups):8}{done.cost.wall_s:9.0f}{done.cost.cpu_s:9.0f}{more:10.0f}"
            print(f"{row}{more / len(done.groups):9.1f}  {digests(root) == wanted}", flush=True)
    subprocess.run(
        [sys.executable, "-c", START.replace("{scratch!r}", repr(str(folder)))], cwd=CHECKOUT, env=env, check=True
    )


if __name__ == "__main__":
    main()
