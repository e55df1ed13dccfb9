"""Help is rendered as rich markup, which reads brackets as styles: no command's help loses a word to it."""

from collections.abc import Iterator

import click
import typer
from rich.errors import MarkupError
from rich.markup import render
from typer.testing import CliRunner

from deployments.cli.main import app


def texts(command: click.Command, name: str = "trajpilot") -> Iterator[tuple[str, str]]:
    """Every help text below a command, with where it stands."""
    yield name, command.help or ""
    for param in command.params:
        yield f"{name} {param.name}", getattr(param, "help", None) or ""
    for below in getattr(command, "commands", {}).values():
        yield from texts(below, f"{name} {below.name}")


def lost(text: str) -> bool:
    """Whether markup eats a part of a text; a backslash before a bracket is how a text keeps it."""
    try:
        return render(text).plain != text.replace("\\[", "[")
    except MarkupError:
        return True


def test_no_help_text_loses_a_word_to_markup() -> None:
    found = dict(texts(typer.main.get_command(app)))
    assert len(found) > 150
    assert [where for where, text in found.items() if lost(text)] == []


def test_a_text_with_brackets_that_markup_reads_is_seen() -> None:
    assert all(lost(text) for text in ("pip install '.[viz]'", "a [bold]b", "ends in [/x]"))


def test_the_extra_that_rerun_needs_is_printed() -> None:
    assert "'.[viz]'" in CliRunner().invoke(app, ["export", "--help"]).output.replace("│", "")
