"""Text and paths from outside: each has one place where it comes in, and what cannot be used is one error there."""

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from checkout import CHECKOUT
from hypothesis import given
from hypothesis import strategies as st

from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.incoming import (
    LEVELS,
    LONGEST,
    NoJsonError,
    TextFaultError,
    check_value,
    parse_json,
    read_text,
)
from trajpilot_core.store.locations import parse_location, resolved

READS_ITS_OWN = {
    "trajpilot_core/engine/execution/execute.py",
    "trajpilot_core/engine/resolve.py",
    "trajpilot_core/stages/token_parts.py",
    "trajpilot_core/store/reading.py",
    "trajpilot_core/video/child.py",
    "trajpilot_core/video/isolate.py",
    "trajpilot_core/vlm/linter.py",
    "trajpilot_core/vlm/parsing.py",  # JSON inside of the answers of models; what cannot be read is repaired or counted
    "deployments/deploy.py",
}
"""Files that parse JSON of this program itself, verified by its digest or from its own child process."""
OF_ROOMS = ("trajpilot_core/training/", "trajpilot_core/models/", "trajpilot_core/data/", "trajpilot_core/evaluation/")
"""Rooms that parse the facts of models, verified by their digests."""


def parsers(source: str) -> set[str]:
    """The functions by which a module parses JSON or TOML without the one reader."""
    return set(re.findall(r"\b(?:json|tomllib)\.(?:loads?|JSONDecoder)\b(?=\()", source))


def test_nobody_else_parses_what_comes_from_outside() -> None:
    sources = [
        path for room in ("deployments", "tasks", "flows", "trajpilot_core") for path in (CHECKOUT / room).rglob("*.py")
    ]
    found = {path.relative_to(CHECKOUT).as_posix() for path in sources if parsers(path.read_text(encoding="utf-8"))}
    own = {"trajpilot_core/incoming.py", *READS_ITS_OWN}
    assert {name for name in found if not name.startswith(OF_ROOMS)} <= own
    assert parsers("import json\nx = json.loads(text)") == {"json.loads"}, "one that reads for itself is seen"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[" * 1000, "nested too deeply"),
        ('{"a":' * 1000 + "1" + "}" * 1000, "nested too deeply"),
        ("9" * 5000, "4300 digits"),
        (b'"\xff"', "not UTF-8 .* at byte 1"),
        (b"\xef\xbb\xbf{}", "byte order mark"),
        ('{"a": }', "no JSON .* at byte 6"),
        ("", "no JSON .* at byte 0"),
    ],
)
def test_json_that_cannot_be_used_is_one_error_with_its_place(text: str | bytes, fault: str) -> None:
    with pytest.raises(TextFaultError, match=f"^note.json cannot be read: .*{fault}") as found:
        parse_json(text, "note.json")
    assert isinstance(found.value, NoJsonError) is fault.startswith("no JSON")


@given(st.binary(max_size=60))
def test_any_bytes_are_a_value_or_one_error(content: bytes) -> None:
    with suppress(TextFaultError):
        parse_json(content, "x")


def test_a_text_file_in_another_encoding_is_named(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes("ä".encode("latin-1"))
    with pytest.raises(TextFaultError, match="x cannot be read: not UTF-8"):
        read_text(tmp_path / "x")


def levels(n: int) -> object:
    value: object = 1
    for _ in range(n):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (levels(LEVELS + 1), f"more than {LEVELS} levels"),
        (levels(50_000), "levels"),
        (2**63, "64 bits"),
        (-(16**5000), "64 bits"),
        ({"a": [float("nan")]}, "the number nan"),
        (float("-inf"), "the number -inf"),
        ("a\0b", "a NUL"),
        ({"\ud800": 1}, "not UTF-8"),
        (os.fsdecode(b"\xff"), "not UTF-8"),
    ],
    ids=["levels", "deep", "64 bits", "hexadecimal", "nan", "infinite", "nul", "surrogate", "bytes"],
)
def test_a_value_that_no_setting_has_is_refused(value: object, fault: str) -> None:
    with pytest.raises(InputError, match=f"^features: the value contains .*{fault}"):
        check_value(value, "features")


def test_what_settings_have_passes_and_a_message_stays_short() -> None:
    check_value({"a": [1, -1.5, None, True, "ä", levels(LEVELS - 3)], "b": 2**63 - 1}, "x")
    with pytest.raises(InputError) as found:
        check_value(2**64, "x" * 5000)
    assert len(str(found.value)) < 2 * LONGEST


def test_a_path_is_resolved_before_it_exists(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    assert resolved(tmp_path / "link" / "new") == (tmp_path / "there" / "new").resolve()


def test_a_path_that_cannot_be_stored_is_refused() -> None:
    for path in (os.fsdecode(b"/data/\xff"), "/data/a\0b"):
        for read in (resolved, parse_location):
            with pytest.raises(StoreError, match="rename it, or give another"):
                read(path)
