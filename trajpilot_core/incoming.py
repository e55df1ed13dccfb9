"""Text from outside: the only reader of JSON and text files, the limits of single values, escapes for Markdown.

Every external text (a file, an option, the response of a server or a model) is read here. Unusable text is one error
with its position. Paths are checked in `store/locations.py`. A test lists the other modules that call `json.loads`.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from trajpilot_core.errors import InputError

BOM = b"\xef\xbb\xbf"
LEVELS = 100
"""Deepest nesting of lists and tables in a setting."""
LONGEST = 120
"""Characters of an external text that a message repeats."""
MEANING = re.compile(r"[\\`*\[\]<&!|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[>#+=-]|^\d+(?=[.)])")
"""Start of emphasis, code, a link, a picture, HTML, an entity, a table, a quotation, a title or a list."""


class TextFaultError(InputError):
    """A text from outside cannot be read."""

    todo: ClassVar[str] = "correct it"

    def __init__(self, where: str, detail: str, at: int | None = None, unit: str = "byte") -> None:
        """Describe the fault of the text `where`, and `at` which byte or line reading stopped, if known."""
        place = "" if at is None else f" at {unit} {at}"
        super().__init__(f"{where} cannot be read: {detail}{place}; {self.todo}")
        self.detail, self.at = detail, at


class NoJsonError(TextFaultError):
    """The text is not JSON."""


def parse_json(
    text: str | bytes,
    where: str,
    *,
    object_pairs_hook: Callable[[list[tuple[str, Any]]], Any] | None = None,
) -> Any:
    """Parse the document `where`; bytes are UTF-8 without a byte order mark.

    `object_pairs_hook` is that of `json.loads`; an InputError that it raises is passed on.

    Raises:
        NoJsonError: it is not JSON; with the byte offset.
        TextFaultError: not UTF-8, a byte order mark, nested too deeply for Python, or an integer with too many digits.
    """
    whole = decode_text(text, where) if isinstance(text, bytes) else text
    try:
        return json.loads(whole, object_pairs_hook=object_pairs_hook)
    except json.JSONDecodeError as error:
        offset = len(whole[: error.pos].encode(errors="surrogatepass"))
        raise NoJsonError(where, f"no JSON ({error.msg})", offset) from error
    except RecursionError as error:
        raise TextFaultError(where, "objects are nested too deeply") from error
    except ValueError as error:
        raise TextFaultError(where, f"no usable JSON ({error})") from error


def decode_text(content: bytes, where: str) -> str:
    """Decode UTF-8.

    Raises:
        TextFaultError: other bytes, with their offset, or a byte order mark.
    """
    if content.startswith(BOM):
        raise TextFaultError(where, "the file starts with a byte order mark; save it as UTF-8 without one", 0)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise TextFaultError(where, f"not UTF-8 ({error.reason})", error.start) from error


def read_text(path: Path) -> str:
    """Read a text file.

    Raises:
        OSError: it cannot be read.
        TextFaultError: see `decode_text`.
    """
    return decode_text(path.read_bytes(), str(path))


def check_value(value: object, where: str) -> None:
    """Refuse a value of the setting `where` that no setting can have, so that later code need not expect it.

    Raises:
        InputError: over LEVELS levels, an integer of over 64 bits, infinity or NaN, a NUL or a surrogate.
    """
    waiting: list[tuple[object, int]] = [(value, 0)]
    while waiting:
        item, level = waiting.pop()
        fault = f"lists or tables in more than {LEVELS} levels" if level > LEVELS else _fault(item)
        if fault is not None:
            raise InputError(
                f"{shortened(where)}: the value contains {fault}, which no setting accepts; choose another"
            )
        if isinstance(item, dict):
            waiting += [(inner, level + 1) for pair in item.items() for inner in pair]
        elif isinstance(item, (list, tuple)):
            waiting += [(inner, level + 1) for inner in item]


def _fault(value: object) -> str | None:
    """Return the fault of a single value, or None."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"the number {value}, which is not finite"
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return "an integer of more than 64 bits"
    return text_fault(value) if isinstance(value, str) else None


def text_fault(text: str) -> str | None:
    """Return why a text cannot be stored and shown, or a path cannot be opened; None: it can."""
    if "\0" in text:
        return "a NUL"
    try:
        text.encode()
    except UnicodeEncodeError:
        return f"bytes that are not UTF-8 ({shortened(ascii(text))})"
    return None


def shortened(text: str) -> str:
    """Return a text for a message: its beginning where it is long."""
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def literal(text: str) -> str:
    """Return text that Markdown renders verbatim, on one line: no HTML, no link, no picture that a browser would fetch.

    The UI runs no scripts in texts, but it would load pictures that they name (docs/security.md).
    """
    return MEANING.sub(_escaped, " ".join(text.split()))


def _escaped(match: re.Match[str]) -> str:
    """Put a backslash before a character, or replace a number that would begin a list with an entity."""
    sign = match[0]
    return f"&#{ord(sign[0])};{sign[1:]}" if sign[0].isdigit() else f"\\{sign}"
