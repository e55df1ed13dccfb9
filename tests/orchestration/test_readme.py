"""The command blocks of the README, run word for word in a shell that knows no path and no variable of ours.

A block is a fence of `sh`, known by its first command. Blocks of `RUN` run after a small run; those of `NOT_RUN` are
listed with the reason. A block in neither list fails. The checkout is a folder of links, so that `.venv` and
`runs/demo` belong to the test.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import CHECKOUT
from whole_run import Ran

from schemas.world import demo_world
from trajpilot_core.simworld.sample import sample_world

README = (CHECKOUT / "README.md").read_text()
FENCE = re.compile(r"^```sh\n(?P<commands>.*?)^```$", re.MULTILINE | re.DOTALL)
RUN = (".venv/bin/trajpilot status", ".venv/bin/trajpilot predict")
NOT_RUN = {
    "make demo": "sets up the environment that the other blocks use",
    "egoexo -o": "needs licensed data and weights",
    "cp .env.example": "needs Docker",
}
DEMO_VIDEO = re.compile(r"runs/demo/world/\S+\.mp4")
OWN = (".venv", "runs", ".git")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]


def blocks_to_run(text: str) -> list[str]:
    """Return the blocks of commands that run after the demo.

    Raises:
        ValueError: a block is in neither list.
    """
    blocks = [fence["commands"] for fence in FENCE.finditer(text)]
    for commands in blocks:
        if not commands.startswith((*RUN, *NOT_RUN)):
            raise ValueError(f"add this block of the README to RUN or to NOT_RUN, with the reason:\n{commands}")
    return [commands for commands in blocks if commands.startswith(RUN)]


def run_block(commands: str, folder: Path) -> str:
    """Run commands in a fresh shell in a folder; return their output, or fail with it."""
    bare = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    shell = ["/bin/sh", "-e", "-c", commands]
    done = subprocess.run(shell, cwd=folder, env=bare | kept, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, f"{commands}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def demo_checkout(ran: Ran, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout with a finished run, one of whose videos has the name of the README's example."""
    folder = tmp_path_factory.mktemp("checkout")
    for entry in CHECKOUT.iterdir():
        if entry.name not in OWN:
            (folder / entry.name).symlink_to(entry)
    (folder / ".venv").mkdir()
    (folder / ".venv/bin").symlink_to(Path(sys.executable).parent)
    shutil.copytree(ran.root, folder / "runs/demo", ignore=shutil.ignore_patterns("prefect"))
    video = folder / DEMO_VIDEO.findall(README)[0]
    video.parent.mkdir(parents=True)
    video.symlink_to(next(ran.world.glob("takes/*/frame_aligned_videos/**/*.mp4")))
    return folder


DEMO_BLOCKS = blocks_to_run(README)


def test_the_readme_has_every_listed_block() -> None:
    blocks = [fence["commands"] for fence in FENCE.finditer(README)]
    assert [name for name in (*RUN, *NOT_RUN) if sum(block.startswith(name) for block in blocks) != 1] == []


@pytest.mark.parametrize("commands", DEMO_BLOCKS, ids=lambda commands: commands.split()[1])
def test_a_block_of_the_readme_works_word_for_word(commands: str, demo_checkout: Path) -> None:
    assert run_block(commands, demo_checkout).strip()


def test_a_wrong_command_of_the_readme_is_seen(demo_checkout: Path) -> None:
    commands = DEMO_BLOCKS[0].replace(".venv/bin/trajpilot status", "trajpilot status", 1)
    assert commands != DEMO_BLOCKS[0]
    with pytest.raises(AssertionError, match="not found"):
        run_block(commands, demo_checkout)


def test_the_video_of_the_example_is_a_test_take_of_the_demo() -> None:
    world = sample_world(demo_world())
    (named,) = DEMO_VIDEO.findall(README)
    takes = {
        f"runs/demo/world/takes/{take.name}/frame_aligned_videos/{world.captures[take.capture].camera}_214-1.mp4": take
        for take in world.takes
    }
    assert takes[named].split == "val"
    assert takes[named].fault is None


def test_a_block_in_neither_list_is_refused() -> None:
    with pytest.raises(ValueError, match="add this block"):
        blocks_to_run(README.replace("cp .env.example", "cp .env.sample", 1))
