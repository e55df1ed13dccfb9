"""status and plan answer in seconds for a corpus of the paper's size, and load neither torch nor Prefect."""

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import paper_scale
import pytest

from trajpilot_core.stages import STAGES

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(3600)]
LIMIT = 18.0
"""CPU time from the start of the process on, in units of a loop that the same process runs, not of one processor.

Measured on one AMD EPYC, idle and beside two busy processes: status 6.5 to 7.0, plan 9.4 to 11.3.
"""
ASK = """
import sys, time
from deployments.cli.main import main
try:
    main()
finally:
    heavy = sorted({"torch", "prefect"} & set(sys.modules))
    used_s = time.process_time()
    total = sum(n * n for n in range(5_000_000))
    sys.stderr.write(f"{used_s / (time.process_time() - used_s)} {' '.join(heavy)}")
"""


class Answer(NamedTuple):
    rows: dict[str, list[str]]
    """Stage -> the other cells of its row in the first table."""
    last: str
    units: float
    loaded: list[str]


def ask(arguments: list[str]) -> Answer:
    """Run a command in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", ASK, *arguments],
        env={**os.environ, "COLUMNS": "400", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    units, *loaded = done.stderr.split()
    lines = done.stdout.strip().splitlines()
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]
    return Answer({row[0]: row[1:] for row in reversed(cells)}, lines[-1], float(units), loaded)


def check(answer: Answer) -> None:
    assert answer.loaded == [], f"loaded {answer.loaded}"
    assert answer.units < LIMIT, f"took {answer.units:.1f} units"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """(corpus, root): 2,549 takes, 151,838 segments, all stages fresh."""
    folder = tmp_path_factory.mktemp("scale")
    corpus = paper_scale.write_corpus(folder / "corpus")
    paper_scale.write_root(folder / "root", corpus)
    return corpus, folder / "root"


def options(place: tuple[Path, Path]) -> list[str]:
    settings = [text for setting in paper_scale.SETTINGS for text in ("--set", setting)]
    return ["--data", str(place[0]), "--root", str(place[1]), "--device", "cpu", *settings]


def test_status_of_a_whole_corpus_is_quick_and_light(place: tuple[Path, Path]) -> None:
    answer = ask(["status", *options(place)])
    assert [row[0] for row in answer.rows.values()] == ["fresh"] * len(STAGES)
    assert answer.rows["ingest"][1] == "151,838"
    assert answer.rows["features"][1] == "2,549"
    check(answer)


def test_plan_after_an_update_is_quick_and_light_and_counts_right(place: tuple[Path, Path]) -> None:
    corpus, _ = place
    paths = [corpus / paper_scale.folder_of(n) / "trajectory/closed_loop_trajectory.csv" for n in (5, 7, 200, 300)]
    kept = [path.stat() for path in paths]
    for path in paths:
        os.utime(path)
    answer = ask(["plan", *options(place), "--set", "features.batch=4"])
    for path, stat in zip(paths, kept, strict=True):
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert answer.rows["trajectories"][:5] == ["stale", "at least 2,545", "at most 4", "0", "at least 24"]
    assert answer.rows["trajectories"][6].startswith("4 takes touched: ")
    assert answer.rows["features"][:3] == ["stale", "0", "exactly 2,549"]
    assert answer.rows["features"][6] == "batch 8 -> 4"
    assert answer.rows["alignment"][6] == "unknown until trajectories has run"
    assert answer.last.startswith("total: up to ")
    check(answer)


def test_the_guard_is_red_for_a_heavy_library_and_for_a_slow_answer(place: tuple[Path, Path]) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sys.modules[__name__], "ASK", "import sys; sys.modules['torch'] = sys\n" + ASK)
        heavy = ask(["status", *options(place)])
    with pytest.raises(AssertionError, match="loaded"):
        check(heavy)
    with pytest.raises(AssertionError, match="took 18"):
        check(Answer({}, "", 18.04, []))
