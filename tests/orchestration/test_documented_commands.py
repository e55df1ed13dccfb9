"""Every `trajpilot` command on a page is valid, and no help text loses a word to markup."""

import re
import shlex
from collections.abc import Iterator
from typing import Any

import click
import typer
from checkout import CHECKOUT
from pydantic import BaseModel
from rich.errors import MarkupError
from rich.markup import render

from deployments.cli.main import app
from deployments.recipes import RECIPES
from schemas.config import PipelineConfig
from trajpilot_core.simworld.sample import PRESETS

PAGES = sorted([CHECKOUT / "README.md", CHECKOUT / "CONTRIBUTING.md", *(CHECKOUT / "docs").rglob("*.md")])
SHOWN = re.compile(r"(?:^ {4}|^)(?:\.venv/bin/)?trajpilot (?P<rest>(?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)
INLINE = re.compile(r"`(?:\.venv/bin/)?trajpilot (?P<rest>[a-z][^`]*)`", re.DOTALL)
FENCE = re.compile(r"^```sh\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r"(?:^ {4}[^\n]*\n)+", re.MULTILINE)
CHOICES = {"--recipe": set(RECIPES), "--against": set(RECIPES), "--world": set(PRESETS)}
ELLIPSIS = {"...", "|", "NAME", "N"}


def commands_of(text: str) -> Iterator[str]:
    """Yield the arguments of `trajpilot` in the code blocks and code spans of a page."""
    blocks = [fence["text"] for fence in FENCE.finditer(text)] + [block[0] for block in INDENTED.finditer(text)]
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
    at: object = PipelineConfig()
    for name in path.split("."):
        if not isinstance(at, BaseModel) or name not in type(at).model_fields:
            return at is None
        at = getattr(at, name)
    return True


def test_the_commands_of_the_pages_are_valid() -> None:
    shown = {(page.name, rest) for page in PAGES for rest in commands_of(page.read_text())}
    assert len(shown) > 80
    assert {command: faults for command in shown if (faults := faults_of(command[1]))} == {}


def test_planted_mistakes_are_seen() -> None:
    block = "```sh\n.venv/bin/trajpilot run --datta a \\\n    --recipe atomc\n```\n"
    page = f"    trajpilot rum --root a\n\n{block}`trajpilot demo --world tinny`"
    assert [faults_of(rest) for rest in commands_of(page)] == [
        ["no option --datta", "--recipe has no atomc"],
        ["no command rum"],
        ["--world has no tinny"],
    ]
    assert faults_of("run --set features.sise_px=3") == ["no setting features.sise_px=3"]
    assert faults_of("run --set scorer.train.epochs=3 --set features.size_px=256") == []


def texts(command: click.Command, name: str = "trajpilot") -> Iterator[tuple[str, str]]:
    """Yield every help text below a command, with its place."""
    yield name, command.help or ""
    for param in command.params:
        yield f"{name} {param.name}", getattr(param, "help", None) or ""
    for below in getattr(command, "commands", {}).values():
        yield from texts(below, f"{name} {below.name}")


def lost(text: str) -> bool:
    """Whether markup swallows a part of a text; a backslash before a bracket protects it."""
    try:
        return render(text).plain != text.replace("\\[", "[")
    except MarkupError:
        return True


def test_no_help_text_loses_a_word_to_markup() -> None:
    helps = dict(texts(typer.main.get_command(app)))
    assert len(helps) > 150
    assert [place for place, text in helps.items() if lost(text)] == []


def test_brackets_that_markup_would_swallow_are_seen() -> None:
    assert all(lost(text) for text in ("pip install '.[viz]'", "a [bold]b", "ends in [/x]"))
