"""kill -9 of `trajpilot run`, as a user has it with its own server, at random moments; then the same command again."""

import argparse
import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checks
import forked
from kills import Reference

from trajpilot_core.stages import STAGES

MARK = "TRAJPILOT_TEST_FLOW"
KILLS_PER_ROOT = 3
WIDE_EVERY = 3
"""Every so many roots trainings run side by side."""
STARTING_S = 6.0
"""A kill before the first stage comes within so many seconds."""
LIMIT_S = 900.0
Append = Callable[[Path, dict[str, Any]], None]


def command(root: Path, world: Path, workers: int) -> list[str]:
    trajpilot = str(Path(sys.executable).with_name("trajpilot"))
    places = ["--data", str(world), "--root", str(root)]
    options = ["--recipe", "soak", "--device", "cpu", "--workers", str(workers), "--checkpoint-s", "0"]
    return [trajpilot, "run", *places, *options]


def kill_flows(
    asked: argparse.Namespace, known: Reference, rows: list[dict[str, Any]], append: Append
) -> list[dict[str, Any]]:
    """Do the kills that the log does not have yet, up to three to a root; the last command of a root ends well."""
    ended = {row["root"] for row in rows if row["row"] == "flow_end"}
    done = sum(row["row"] == "flow" and row["root"] in ended for row in rows)
    number = len(ended)
    while done < asked.flows:
        for row in one_root(asked, known, number, min(KILLS_PER_ROOT, asked.flows - done)):
            rows.append(row)
            append(asked.log, row)
            done += row["row"] == "flow"
        number += 1
    return rows


def one_root(asked: argparse.Namespace, known: Reference, number: int, n_kills: int) -> list[dict[str, Any]]:
    """Kill the runs into one root at moments drawn by seed, run to the end, and return a row for each."""
    chance = random.Random(f"{asked.seed}:{number}")
    root, mark = asked.work / f"flow-{number}", f"{os.getpid()}-{number}"
    shutil.rmtree(root, ignore_errors=True)
    if (asked.work / "prefect").exists():  # an empty database, which a server need not make
        shutil.copytree(asked.work / "prefect", root / "prefect")
    rows: list[dict[str, Any]] = []
    typed = command(root, asked.work / "world", 2 if number % WIDE_EVERY == WIDE_EVERY - 1 else 1)
    moments = sorted((chance.randrange(-1, len(STAGES)), chance.uniform(0.0, 1.0)) for _ in range(n_kills))
    for at, share in moments:
        began = time.monotonic()
        kept = committed(root)
        child = start(root, typed, mark)
        reached = wait_for(root, child, at, share, known)
        child.kill()
        status = child.wait()
        if status != -signal.SIGKILL:
            break  # it came to its end before the moment
        problems = [f"left: {text}" for text in gone(mark)]
        problems += [*checks.nothing_torn(root, known.tree), *made_again(root, kept)] if root.exists() else []
        facts = {"root": number, "stage": reached, "share": round(share, 3), "shards_kept": len(kept)}
        rows.append(checks.row_of("flow", problems, **facts, seconds=round(time.monotonic() - began, 2)))
    rows.append(last_run(known, root, typed, number, mark))
    if all(row["verdict"] == "green" for row in rows):
        shutil.rmtree(root)
    return rows


def last_run(known: Reference, root: Path, typed: list[str], number: int, mark: str) -> dict[str, Any]:
    began, kept = time.monotonic(), committed(root)
    child = start(root, typed, mark)
    try:
        status = child.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        child.kill()
        status = child.wait()
    seconds = time.monotonic() - began
    problems = [] if status == 0 else [f"the last run ended with {status}: {output(root).read_text()[-2000:]}"]
    problems += [f"left in the end: {text}" for text in gone(mark)]
    problems += made_again(root, kept)
    left = len(checks.temporaries(root))
    problems += [*checks.swept(root, known.tree), *checks.no_row_twice(root)]
    problems += [] if (root / "reports" / "report.html").is_file() else ["there is no report"]
    output(root).unlink()
    facts = {"root": number, "shards_kept": len(kept), "temporaries": left, "seconds": round(seconds, 2)}
    return checks.row_of("flow_end", problems, **facts)


def start(root: Path, typed: list[str], mark: str) -> "subprocess.Popen[bytes]":
    """Start the command; all of its processes carry the mark in their environment."""
    with output(root).open("ab") as out:
        return subprocess.Popen(typed, stdout=out, stderr=out, start_new_session=True, env={**os.environ, MARK: mark})


def output(root: Path) -> Path:
    return root.parent / f"{root.name}.out"


def wait_for(root: Path, child: "subprocess.Popen[bytes]", at: int, share: float, known: Reference) -> str:
    """Wait until the run is at a share of the stage with this number (-1: of its start), or has ended."""
    end = time.monotonic() + LIMIT_S
    before = set((root / "logs").glob("*.log")) if root.exists() else set()
    if at < 0:
        pause(child, share * STARTING_S)
        return "start"
    stage = list(STAGES)[at]
    while child.poll() is None and time.monotonic() < end:
        logs = set((root / "logs").glob("*.log")) - before
        if any(f"{stage} " in line and "started" in line for log in logs for line in log.read_text().splitlines()):
            pause(child, share * known.stage_s[stage])
            break
        time.sleep(0.02)
    return stage


def pause(child: "subprocess.Popen[bytes]", seconds: float) -> None:
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(seconds)


def committed(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in (root / "artifacts").glob("*/shards/*/record.json")}


def made_again(root: Path, kept: dict[str, int]) -> list[str]:
    now = committed(root)
    return [f"done again: {path}" for path, written in kept.items() if now.get(path) != written]


def gone(mark: str) -> list[str]:
    """Return the marked processes that do not end by themselves, and end them."""
    return forked.ended(lambda: marked(mark))


def marked(mark: str) -> dict[int, str]:
    """Return process id -> command of the living processes whose environment has the mark."""
    token, found = f"{MARK}={mark}".encode(), {}
    for pid, text in forked.alive(lambda fields: True).items():
        with contextlib.suppress(OSError):
            if token in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                found[pid] = text
    return found
