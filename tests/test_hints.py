"""What a message tells the user to write exists: settings of --set and flags of commands, never names of classes."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from typer.main import get_command

from deployments.cli.main import app
from schemas.config import PipelineConfig

ROOT = Path(__file__).parents[1]
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
        for path in sorted((ROOT / room).rglob("*.py")):
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


def flags(command: object) -> Iterator[str]:
    """Yield every option of a command and of those below it."""
    for parameter in getattr(command, "params", ()):
        yield from parameter.opts
    for below in getattr(command, "commands", {}).values():
        yield from flags(below)


def is_setting(path: str) -> bool:
    """Return whether --set accepts a path."""
    place: object = PipelineConfig().values()
    for part in path.split("."):
        if not isinstance(place, dict) or part not in place:
            return False
        place = place[part]
    return True


def unknown(text: str, known: frozenset[str]) -> list[str]:
    """Return the settings, flags and classes of a message that no user can write."""
    settings = [found for found in SETTING.findall(text) if found.rsplit(".", 1)[1] not in NO_SETTINGS]
    written = FLAG.findall(text) if " " in text and not text.startswith(OTHER_PROGRAMS) else []
    wrong = [path for path in settings if not is_setting(path)]
    return wrong + [flag for flag in written if flag not in known] + CLASS.findall(text)


def test_every_setting_and_flag_of_a_message_exists_and_no_class_is_named() -> None:
    known = frozenset(flags(get_command(app)))
    texts = list(messages())
    wrong = {where: found for where, text in texts if (found := unknown(text, known))}
    assert not wrong
    assert sum("--set " in text for _, text in texts) > 20


WRONG = (
    *("raise RunOptions.max_reject_ratio", "lower IngestConfig.dev_min", "raise --max-reject-ratio to go on"),
    *("none, or --set ingest.dev_minimum=2", "--set trajectories.odometry.rate", "see ingest.goalstep.level.deep now"),
)


def test_what_nobody_can_write_is_seen() -> None:
    assert [text for text in WRONG if not unknown(text, frozenset({"--set"}))] == []
    assert not unknown("lower it with --set ingest.dev_min=2, see report.json", frozenset({"--set"}))
