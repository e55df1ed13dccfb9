"""A seeded soak of kills that can be interrupted and goes on where it stopped, with a row of a log per kill.

    python tests/crashes/soak.py --kills 150 --flows 30 --seed 0 --log runs/soak.jsonl

`--kills` end a process of the stages at its n-th write, fsync, rename or checkpoint, without a server; `--flows` are
kill -9 of `trajpilot run` at random moments. `--prove` plants the faults that the checks are there for.
"""

import argparse
import json
import logging
import os
import platform
import sys
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import Any

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(_name, "1")  # before numpy: a process with threads must not fork

import countdown  # noqa: E402
import planted  # noqa: E402

if __name__ == "__mp_main__":  # a process that a run spawned
    planted.plant()
    countdown.arm()

log = logging.getLogger("soak")
WORKERS = (1, 2)
WARM = (
    "torch",
    "pyarrow.parquet",
    "scipy.stats",
    "jinja2",
    "safetensors.torch",
    "trajpilot_core.stages",
    "trajpilot_core.training.scorer_fit",
    "trajpilot_core.encoders.video.frozen_vjepa",
    "trajpilot_core.report.build",
)
"""What takes long to import, once for all runs, and nothing that starts threads of its own (polars does)."""


def main() -> None:
    """Run the soak, print the summary, end with 1 where anything is red."""
    asked = arguments()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    asked.work.mkdir(parents=True, exist_ok=True)
    asked.log.parent.mkdir(parents=True, exist_ok=True)
    for name in WARM:
        import_module(name)
    import kills

    from schemas.world import soak_world
    from trajpilot_core.simworld.write import write_world

    write_world(soak_world(), asked.work / "world", 1, lambda *_: None)
    workers = WORKERS[: 1 if asked.narrow else 2]
    known = kills.reference(asked.work, workers)
    say(kills.checks.row_of("undisturbed", known.problems, seconds=known.seconds))
    if asked.prove:
        sys.exit(prove(asked, known))
    if asked.faults:
        sys.exit(fail(asked, known))
    rows = read_log(asked.log, asked.seed)
    if asked.kills:
        rows = count_down(asked, known, rows)
    if asked.flows:
        import flows_killed

        rows = flows_killed.kill_flows(asked, known, rows, append)
    summary(rows, asked)
    sys.exit(1 if known.problems or any(row["verdict"] == "red" for row in rows) else 0)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--kills", type=int, default=150, help="kills by countdown")
    parser.add_argument("--flows", type=int, default=0, help="kill -9 of `trajpilot run`")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=Path("runs/soak.jsonl"))
    parser.add_argument("--work", type=Path, default=Path("runs/soak"), help="folder for world and roots")
    parser.add_argument("--narrow", action="store_true", help="one process at a time in every round")
    parser.add_argument("--faults", type=int, default=0, help="failing disks: so many by countdown, and the real ones")
    parser.add_argument("--prove", nargs="*", help="plant these faults (all without a name); each must turn red")
    asked = parser.parse_args()
    asked.work, asked.prove = asked.work.resolve(), asked.prove if asked.prove != [] else list(planted.PLANTS)
    return asked


def count_down(asked: argparse.Namespace, known: Any, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Do the rounds that the log does not have yet."""
    import kills
    from plan import rounds

    whole = {row["round"] for row in rows if row["row"] == "round"}
    rows = [row for row in rows if row["row"] == "flow" or row["round"] in whole]
    write_log(asked.log, asked.seed, rows)
    for planned in rounds(asked.seed, asked.kills, known.operations):
        for row in kills.run_round(asked.work, planned, known) if planned.number not in whole else ():
            rows.append(row)
            append(asked.log, row)
    return rows


def fail(asked: argparse.Namespace, known: Any) -> int:
    """Let the disk fail under the stages; return 0 where every failure was clean."""
    import faults

    red = 0
    for row in faults.all_faults(asked.work, known, asked.seed, asked.faults):
        say(row)
        red += row["verdict"] == "red"
    return 1 if red else 0


def prove(asked: argparse.Namespace, known: Any) -> int:
    import checks
    from kills import needs, prove_one

    missed = []
    for name in [name for name in asked.prove if needs(name) in known.operations]:
        problems = prove_one(asked.work, name, known)
        say(checks.row_of("planted", problems[:4], fault=name))
        missed += [] if problems else [name]
    return 1 if missed else 0


def read_log(path: Path, seed: int) -> list[dict[str, Any]]:
    """Return the rows of an earlier run; nothing where there is none. A log of another seed ends the soak."""
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if rows and rows[0]["seed"] != seed:
        raise SystemExit(f"{path} is of seed {rows[0]['seed']}; choose another --log, or that seed")
    return rows[1:]


def write_log(path: Path, seed: int, rows: list[dict[str, Any]]) -> None:
    """Rewrite the log: its head, which stays, then the rows."""
    machine = {"machine": platform.machine(), "cpus": os.cpu_count(), "python": platform.python_version()}
    written = datetime.now(UTC).isoformat(timespec="seconds")
    head: dict[str, Any] = {"row": "head", "seed": seed, "written": written, **machine, "verdict": "head"}
    if path.exists():
        head = json.loads(path.read_text().splitlines()[0])
    temporary = path.with_suffix(".new")
    temporary.write_text("".join(json.dumps(row) + "\n" for row in (head, *rows)))
    temporary.replace(path)


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as out:
        out.write(json.dumps(row) + "\n")
    say(row)


def say(row: dict[str, Any]) -> None:
    hidden = {"row", "verdict", "problems", "why"}
    shown = {name: value for name, value in row.items() if name not in hidden and value not in ("", {}, 0)}
    facts = " ".join(f"{name}={value}" for name, value in shown.items())
    log.info("%-6s %s %s %s", row["verdict"], row["row"], facts, "; ".join(row.get("problems", [])))


def summary(rows: list[dict[str, Any]], asked: argparse.Namespace) -> None:
    log.info("")
    for name, kind in (("kills by countdown", "kill"), ("kills of flows", "flow"), ("roots", "round")):
        found = [row for row in rows if row["row"] in (kind, f"{kind}_end")]
        if found:
            red, spent = sum(row["verdict"] == "red" for row in found), sum(row["seconds"] for row in found)
            log.info("%s: %d, red %d, %.0f s", name, sum(row["row"] == kind for row in found), red, spent)
    log.info("log %s", asked.log)


if __name__ == "__main__":
    main()
