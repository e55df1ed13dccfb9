"""Measure what the engine adds to trainings that are shared out over a pool: stand-ins that sleep, and a lost worker.

    python benchmarks/pool_of_trainings.py --folder <scratch> [--trainings 40] [--seconds 60] [--workers 4] [--kill]

Starts a Prefect server of its own, deploys, and runs `predictor` with a stand-in for its trainings. Nothing computes,
so wall seconds are what is wanted: trainings x seconds / workers is the least, the rest is the engine's. With --kill
the process of one training that another worker computes is killed half-way. The models must come out the same.
"""

import argparse
import json
import math
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from fan_out import BIN, CHECKOUT, ask, digests, environment, server, until, waited

DEPLOYMENTS = {"predictor/predictor": "predictor", "predictor-group/predictor-group": "predictor_group"}

LEAST_KILL_S = 30.0


def replace_flows(url: str) -> None:
    """Let the two deployments of the stage run the stand-in."""
    for name, flow in DEPLOYMENTS.items():
        deployment = ask(f"{url}/deployments/name/{name}")["id"]
        body = json.dumps({"entrypoint": f"benchmarks/pool_flows.py:{flow}"})
        command = ["curl", "-sf", "-X", "PATCH", "-H", "Content-Type: application/json", "-d", body]
        subprocess.run([*command, f"{url}/deployments/{deployment}"], check=True)


def group_rows(url: str, run: str) -> list[dict[str, Any]]:
    """Read the table of groups of a run, the newest version."""
    wanted = {"artifacts": {"key": {"any_": ["predictor-groups"]}, "flow_run_id": {"any_": [run]}}}
    found = ask(f"{url}/artifacts/filter", wanted)
    return json.loads(found[0]["data"]) if found else []


def kill_one(url: str, run: str) -> str:
    """Kill the process of one group that another worker computes; return where it was."""
    away: list[dict[str, Any]] = []

    def is_away() -> bool:
        running = [row for row in group_rows(url, run) if row["state"] == "running"]
        away[:] = [row for row in running if process_of(row).isdigit()]
        return bool(away)

    until(is_away)
    time.sleep(5.0)
    os.kill(int(process_of(away[0])), signal.SIGKILL)
    return str(away[0]["where"])


def process_of(row: dict[str, Any]) -> str:
    """Return the process number of a group, which may stand after its machine; something else where it has none."""
    return str(row["where"]).rsplit(":", 1)[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--trainings", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kill", action="store_true")
    asked = parser.parse_args()
    if asked.kill and asked.seconds < LEAST_KILL_S:
        parser.error(f"--kill needs trainings of {LEAST_KILL_S:.0f} s: shorter ones end before the table shows them")
    folder = asked.folder.resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "data").mkdir(parents=True)
    (folder / "stand_in.json").write_text(json.dumps({"trainings": asked.trainings, "seconds": asked.seconds}))
    root = folder / "root"
    env = environment(folder)
    with server(folder, env) as url:
        env["PREFECT_API_URL"] = url
        deploy = [str(BIN / "trajpilot"), "deploy", "--data", str(folder / "data"), "--root", str(root)]
        subprocess.run([*deploy, "--recipe", "demo"], cwd=CHECKOUT, env=env, check=True, stdout=subprocess.DEVNULL)
        replace_flows(url)
        command = [str(BIN / "trajpilot"), "workers", "--gpu-workers", str(asked.workers), "--cpu-workers", "0"]
        logs, killed = folder / "logs", ""
        process = subprocess.Popen([*command, "--logs", str(logs)], cwd=CHECKOUT, env=env, stdout=subprocess.DEVNULL)
        try:
            pool = f"{url}/work_pools/trajpilot-gpu/workers/filter"
            until(lambda: len(ask(pool, {})) >= asked.workers)
            deployment = ask(f"{url}/deployments/name/predictor/predictor")["id"]
            began = time.monotonic()
            options = {"run": {"group_video_s": 1.0, "workers": 1}}
            run = ask(f"{url}/deployments/{deployment}/create_flow_run", {"parameters": options})["id"]
            if asked.kill:
                killed = kill_one(url, run)
            until(lambda: ask(f"{url}/flow_runs/{run}")["state"]["type"] in ("COMPLETED", "FAILED", "CRASHED"))
            wall_s, state = time.monotonic() - began, ask(f"{url}/flow_runs/{run}")["state"]
            rows = group_rows(url, run)
        finally:
            process.send_signal(signal.SIGINT)
            cost = waited(process, time.monotonic())
    if state["type"] != "COMPLETED":
        raise SystemExit(f"the run ended {state['name']}: {state['message']}; logs under {logs}")
    least_s = math.ceil(asked.trainings / asked.workers) * asked.seconds
    names = {path for path in digests(root) if path.endswith(".safetensors")}
    again = [row for row in rows if row["attempts"] > 1]
    print(f"{asked.trainings} trainings of {asked.seconds:.0f} s on {asked.workers} workers: {wall_s:.0f} s")
    print(f"least {least_s:.0f} s, the engine {wall_s - least_s:.0f} s; CPU of workers and runs {cost.cpu_s:.0f} s")
    print(f"{len(names)} models; computed away {sum(row['where'] != 'this run' for row in rows)}")
    if killed:
        print(f"killed {killed}; started again: {[row['work'] for row in again]}")
    if len(names) != asked.trainings or (killed and not again):
        raise SystemExit("models are missing, or the lost training was not started again")


if __name__ == "__main__":
    main()
