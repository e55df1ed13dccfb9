"""The commands of the pages: each is valid, no help text loses a word to markup, and the README's blocks run.

The blocks run word for word in a shell that knows no path and no variable of ours. A block is a fence of `sh`, known by
its first command. Blocks of `RUN` run after a small run; those of `NOT_RUN` are listed with the reason. A block in
neither list fails. The checkout is a folder of links, so that `.venv` and `runs/demo` belong to the test.
"""

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import typer
from checkout import CHECKOUT
from pydantic import BaseModel
from rich.errors import MarkupError
from rich.markup import render
from whole_run import Ran

from deployments.cli.main import app
from deployments.recipes import RECIPES
from schemas.config import PipelineConfig
from schemas.world import demo_world
from trajpilot_core.simworld.sample import PRESETS, sample_world

pytestmark = pytest.mark.timeout(1200)
PAGES = sorted([CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *(CHECKOUT / "docs").rglob("*.md")])
SHOWN = re.compile(r"(?:^ {4}|^)(?:\.venv/bin/)?trajpilot (?P<rest>(?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
INLINE = re.compile(r"`(?:\.venv/bin/)?trajpilot (?P<rest>[a-z][^`]*)`", re.DOTALL)
FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}[^\n]*\n)+", re.MULTILINE)
CHOICES = {"--recipe": set(RECIPES), "--against": set(RECIPES), "--world": set(PRESETS)}
ELLIPSIS = {"...", "|", "NAME", "N"}


def commands_of(text: str) -> Iterator[str]:
    """Yield the arguments of `trajpilot` in the code blocks and code spans of a page."""
    blocks = FENCE.findall(text) + INDENTED.findall(text)
    for command in (command for block in blocks for command in SHOWN.finditer(block)):
        yield command["rest"].replace("\\\n", " ").partition(" #")[0]
    for span in INLINE.finditer(text):
        yield " ".join(span["rest"].split())


def faults_of(rest: str) -> list[str]:
    """Return the faults of a command; an option quoted in prose may lack its value."""
    words = [word.strip("[]") for word in shlex.split(rest.partition(" &&")[0].partition(" >")[0])]
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        name = words.pop(0)
        if name not in command.commands:
            return [f"no command {name}"]
        command = command.commands[name]
    known = [param for param in command.params if param.param_type_name == "option"]
    options = {name for param in known for name in (*param.opts, *param.secondary_opts)}
    faults = []
    for place, word in enumerate(words):
        option, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        if not word.startswith("-") or word in ELLIPSIS:
            continue
        if option not in options:
            faults.append(f"no option {option}")
            continue
        given = value if has_value else words[place + 1] if place + 1 < len(words) else ""
        if option in CHOICES and given and given.rstrip(",") not in CHOICES[option] | ELLIPSIS:
            faults.append(f"{option} has no {given}")
        if option == "--set" and "=" in given and not is_setting(given.partition("=")[0]):
            faults.append(f"no setting {given}")
    return faults


def is_setting(path: str) -> bool:
    """Whether --set accepts a path."""
    at: object = PipelineConfig()
    for name in path.split("."):
        if not isinstance(at, BaseModel) or name not in type(at).model_fields:
            return at is None
        at = getattr(at, name)
    return True


def test_the_commands_of_the_pages_are_valid_and_planted_mistakes_are_seen() -> None:
    shown = {(page.name, rest) for page in PAGES for rest in commands_of(page.read_text())}
    assert len(shown) > 70
    assert {command: faults for command in shown if (faults := faults_of(command[1]))} == {}
    block = "```sh\n.venv/bin/trajpilot run --datta a \\\n    --recipe atomc\n```\n"
    page = f"    trajpilot rum --root a\n\n{block}`trajpilot demo --world tinny`"
    assert [faults_of(rest) for rest in commands_of(page)] == [
        ["no option --datta", "--recipe has no atomc"],
        ["no command rum"],
        ["--world has no tinny"],
    ]
    assert faults_of("run --set features.sise_px=3") == ["no setting features.sise_px=3"]
    assert faults_of("run --set scorer.train.epochs=3 --set features.size_px=256") == []


def commands_below(command: Any, name: str = "trajpilot") -> Iterator[tuple[str, click.Command]]:
    yield name, command
    for below in getattr(command, "commands", {}).values():
        yield from commands_below(below, f"{name} {below.name}")


COMMANDS = list(commands_below(typer.main.get_command(app)))
CLASS = re.compile(r"\b(?:[A-Z][A-Za-z0-9]*Config|RunOptions)\.[a-z_]+")
SECTION = "|".join(PipelineConfig.model_fields)
SETTING = re.compile(rf"(?:(?<=--set )|(?<![\w./-]))(?:{SECTION})(?:\.[a-z_0-9]+)+(?![\w(*])")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
NO_SETTINGS = ("rejects", "json", "html", "css", "js", "j2", "md", "tex")
"""What stands after a section's name where an entry of the store or a file is meant."""
OTHER_PROGRAMS = ("egoexo ", "ego4d ", "python ", "prefect ", "vllm ", "--query-gpu", "--format")


def messages() -> Iterator[tuple[str, str]]:
    """Yield (file:line, text) of every string that is no docstring; f-strings with `{}` where a value stands."""
    for room in ("schemas", "trajpilot_core", "tasks", "flows", "deployments"):
        for path in sorted((CHECKOUT / room).rglob("*.py")):
            nodes = list(ast.walk(ast.parse(path.read_text())))
            skipped = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
            skipped |= {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
            for node in nodes:
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    if id(node) not in skipped:
                        yield f"{path}:{node.lineno}", node.value
                elif isinstance(node, ast.JoinedStr):
                    parts = (str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
                    yield f"{path}:{node.lineno}", "".join(parts)


def unknown(text: str, known: frozenset[str]) -> list[str]:
    """Return the settings, flags and classes of a message that no user can write."""
    settings = [found for found in SETTING.findall(text) if found.rsplit(".", 1)[1] not in NO_SETTINGS]
    written = FLAG.findall(text) if " " in text and not text.startswith(OTHER_PROGRAMS) else []
    wrong = [path for path in settings if not is_setting(path)]
    return wrong + [flag for flag in written if flag not in known] + CLASS.findall(text)


def test_every_setting_and_flag_of_a_message_exists_and_no_class_is_named() -> None:
    known = frozenset(flag for _, command in COMMANDS for param in command.params for flag in param.opts)
    texts = list(messages())
    assert {where: found for where, text in texts if (found := unknown(text, known))} == {}
    assert sum("--set " in text for _, text in texts) > 20
    planted = ["raise RunOptions.max_reject_ratio", "lower IngestConfig.dev_min", "raise --max-reject-ratio to go on"]
    planted += ["none, or --set ingest.dev_minimum=2", "see ingest.goalstep.video.deep now"]
    assert [text for text in planted if not unknown(text, frozenset({"--set"}))] == []
    assert not unknown("lower it with --set ingest.dev_min=2, see report.json", frozenset({"--set"}))


def lost(text: str) -> bool:
    """Whether markup swallows a part of a text; a backslash before a bracket protects it."""
    try:
        return render(text).plain != text.replace("\\[", "[")
    except MarkupError:
        return True


def test_no_help_text_loses_a_word_to_markup() -> None:
    helps = {name: command.help or "" for name, command in COMMANDS}
    helps |= {f"{at} {one.name}": getattr(one, "help", None) or "" for at, found in COMMANDS for one in found.params}
    assert len(helps) > 100
    assert [place for place, text in helps.items() if lost(text)] == []
    assert all(lost(text) for text in ("pip install '.[viz]'", "a [bold]b", "ends in [/x]"))


README = (CHECKOUT / "README.md").read_text()
RUN = (".venv/bin/trajpilot status", ".venv/bin/trajpilot predict")
NOT_RUN = {
    "make demo": "sets up the environment that the other blocks use",
    "egoexo -o": "needs licensed data and weights",
    "cp .env.example": "needs Docker",
}
DEMO_VIDEO = re.compile(r"runs/demo/world/\S+\.mp4")
OWN = (".venv", "runs", ".git")


def blocks_to_run(text: str) -> list[str]:
    """Return the blocks of commands that run after the demo; a block in neither list is a ValueError."""
    blocks = FENCE.findall(text)
    for commands in blocks:
        if not commands.startswith((*RUN, *NOT_RUN)):
            raise ValueError(f"add this block of the README to RUN or to NOT_RUN, with the reason:\n{commands}")
    return [commands for commands in blocks if commands.startswith(RUN)]


def run_block(commands: str, folder: Path) -> str:
    """Run commands in a fresh shell in a folder; return their output, or fail with it."""
    bare = {"HOME": str(folder), "PATH": "/usr/bin:/bin", "COLUMNS": "200", "OMP_NUM_THREADS": "1"}
    bare |= {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    shell = ["/bin/sh", "-e", "-c", commands]
    done = subprocess.run(shell, cwd=folder, env=bare, capture_output=True, text=True, timeout=200, check=False)
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


def test_the_readme_has_every_listed_block_and_one_in_neither_list_is_refused() -> None:
    blocks = FENCE.findall(README)
    assert [name for name in (*RUN, *NOT_RUN) if sum(block.startswith(name) for block in blocks) != 1] == []
    with pytest.raises(ValueError, match="add this block"):
        blocks_to_run(README.replace("cp .env.example", "cp .env.sample", 1))


@pytest.mark.slow
@pytest.mark.parametrize("commands", DEMO_BLOCKS, ids=lambda commands: commands.split()[1])
def test_a_block_of_the_readme_works_word_for_word(commands: str, demo_checkout: Path) -> None:
    assert run_block(commands, demo_checkout).strip()


@pytest.mark.slow
def test_a_wrong_command_of_the_readme_is_seen(demo_checkout: Path) -> None:
    commands = DEMO_BLOCKS[0].replace(".venv/bin/trajpilot status", "trajpilot status", 1)
    assert commands != DEMO_BLOCKS[0]
    with pytest.raises(AssertionError, match="not found"):
        run_block(commands, demo_checkout)


def test_the_video_of_the_example_is_a_test_take_of_the_demo() -> None:
    world = sample_world(demo_world())
    (named,) = DEMO_VIDEO.findall(README)
    take = next(take for take in world.takes if f"/{take.name}/" in named)
    camera = world.captures[take.capture].camera
    assert named == f"runs/demo/world/takes/{take.name}/frame_aligned_videos/{camera}_214-1.mp4"
    assert (take.split, take.fault) == ("val", None)
