"""A first part of `make soak`, and the proof that its checks see what they are there for. The preset is `soak`."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trajpilot_core.stages import STAGES

SOAK = Path(__file__).with_name("soak.py")
pytestmark = [pytest.mark.slow, pytest.mark.campaign, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def work(undisturbed: Callable[[Path], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return undisturbed(tmp_path_factory.mktemp("soak"))


def soak(work: Path, *options: str) -> tuple[int, str, list[dict]]:
    """Run the script; return its status, what it said, and the rows of its log."""
    log = work / "log.jsonl"
    places = ("--narrow", "--work", str(work), "--log", str(log))
    done = subprocess.run([sys.executable, str(SOAK), *places, *options], capture_output=True, text=True, check=False)
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return done.returncode, done.stdout + done.stderr, rows


def test_after_a_kill_in_every_stage_nothing_is_lost_or_done_twice_and_the_bytes_are_the_same(work: Path) -> None:
    status, said, rows = soak(work, "--kills", str(len(STAGES)), "--seed", "1")
    killed = [row for row in rows if row["row"] == "kill"]
    assert (status, len(killed)) == (0, len(STAGES)), said
    assert {row["stage"] for row in killed} == set(STAGES)
    assert {row["status"] for row in killed} == {-9}
    assert soak(work, "--kills", str(len(STAGES)), "--seed", "1")[2] == rows, "a soak that is done does nothing again"


def test_after_kill_9_of_the_command_the_same_command_ends_as_if_nothing_had_happened(work: Path) -> None:
    status, said, rows = soak(work, "--kills", "9", "--flows", "1", "--seed", "1")
    assert (status, sum(row["row"] == "flow" for row in rows)) == (0, 1), said


def test_every_planted_fault_turns_the_soak_red(work: Path) -> None:
    status, said, _ = soak(work, "--prove")
    assert status == 0, said
    assert said.count("red    planted") == 8, said
