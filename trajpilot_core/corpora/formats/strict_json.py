"""Strict JSON: UTF-8 without a mark, no NaN where it is refused, and repeated keys noticed where they stand."""

import json
import re
from collections.abc import Callable
from typing import NoReturn

from trajpilot_core.errors import InputError

BOM = b"\xef\xbb\xbf"
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?Infinity|NaN', re.DOTALL)
"""Strings are matched first so that a NaN inside of one is passed over."""


class FileFaultError(InputError):
    """A file is not what the corpus documents."""

    def __init__(self, where: str, detail: str, at: int | None = None, unit: str = "byte") -> None:
        """Say what is wrong with the file `where`, and `at` which byte or line reading stopped, if known."""
        place = "" if at is None else f" at {unit} {at}"
        super().__init__(f"{where} cannot be read: {detail}{place}; download the file again")


class Repeated(dict[str, object]):
    """An object that holds a key twice: its content is ambiguous, so it must not be used as it is."""

    pairs: list[tuple[str, object]]


def parse(content: bytes, where: str, *, refuse_nan: bool) -> object:
    """Parse a JSON file; an object with a repeated key comes out as `Repeated`.

    Args:
        content: the whole file.
        where: its name, for the message.
        refuse_nan: a NaN or Infinity literal (no JSON, but Python writes it) is an error; else it becomes a float that
            the reader of the record has to refuse.

    Raises:
        FileFaultError: not UTF-8, a byte order mark, no JSON, or a refused literal, with the byte offset.
    """
    if content.startswith(BOM):
        raise FileFaultError(where, "the file starts with a byte order mark; save it as UTF-8 without one", 0)
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise FileFaultError(where, f"not UTF-8 ({error.reason})", error.start) from error
    refuse = _refuse(content, where) if refuse_nan else None
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=refuse)
    except json.JSONDecodeError as error:
        raise FileFaultError(where, f"no JSON ({error.msg})", len(text[: error.pos].encode())) from error
    except RecursionError as error:
        raise FileFaultError(where, "objects are nested too deeply") from error
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise FileFaultError(where, f"no usable JSON ({error})") from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    marked = Repeated(found)
    marked.pairs = pairs
    return marked


def _refuse(content: bytes, where: str) -> Callable[[str], NoReturn]:
    def refuse(literal: str) -> NoReturn:
        wanted = literal.encode()
        offset = next((m.start() for m in TOKEN.finditer(content) if m.group() == wanted), None)
        raise FileFaultError(where, f"the literal {literal} is no JSON", offset)

    return refuse
