"""Strict JSON: UTF-8 without a byte order mark, no NaN where it is refused, objects with repeated keys marked."""

import json
import re
from collections.abc import Callable, Iterator
from typing import NoReturn

from trajpilot_core.errors import InputError
from trajpilot_core.incoming import TextFaultError, decode_text, parse_json

TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|-?Infinity|NaN', re.DOTALL)
"""Strings are matched first so that a NaN inside of one is passed over."""


SPACE = re.compile(r"[ \t\n\r]*")


class FileFaultError(TextFaultError):
    """A file differs from the format that the corpus documents."""

    todo = "download the file again"


class Repeated(dict[str, object]):
    """An object that contains a key twice, which makes its content ambiguous."""

    pairs: list[tuple[str, object]]


def parse(content: bytes, where: str, *, refuse_nan: bool) -> object:
    """Parse a JSON file; an object with a repeated key comes out as `Repeated`.

    Args:
        refuse_nan: a NaN or Infinity literal (no JSON, but Python writes it) is an error; else it becomes a float, and
            the reader of the record has to refuse.

    Raises FileFaultError: not UTF-8, a byte order mark, no JSON, or a refused literal, with the byte offset.
    """
    refuse = _refuse(content, where) if refuse_nan else None
    try:
        return parse_json(content, where, object_pairs_hook=_object, parse_constant=refuse)
    except FileFaultError:
        raise
    except TextFaultError as error:
        raise FileFaultError(where, error.detail, error.at) from error


def parse_records(content: bytes, where: str) -> Iterator[object]:
    """Parse a JSON file that is one list, record by record: thousands of large ones are never in memory together.

    Args:
        content: the whole file; a NaN or Infinity literal in it is an error.

    Yields:
        The records, each as `parse` returns it; none where the file is not a list.

    Raises FileFaultError: as of `parse`; the records before the fault were yielded by then.
    """
    text = text_of(content, where)
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_refuse(content, where))
    at, opening = _after_space(text, 0), "["
    try:
        while text[at : at + 1] == opening:
            opening = ","
            record, at = decoder.raw_decode(text, _after_space(text, at + 1))
            yield record
            at = _after_space(text, at)
    except (ValueError, RecursionError) as error:
        if isinstance(error, InputError):
            raise
    if text[at : at + 1] != "]" or _after_space(text, at + 1) != len(text):
        parse(content, where, refuse_nan=True)  # raises the error with its place


def _after_space(text: str, at: int) -> int:
    space = SPACE.match(text, at)
    assert space is not None
    return space.end()


def text_of(content: bytes, where: str) -> str:
    """Decode a file of a corpus. Raises FileFaultError: not UTF-8, or a byte order mark."""
    try:
        return decode_text(content, where)
    except TextFaultError as error:
        raise FileFaultError(where, error.detail, error.at) from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    fields = dict(pairs)
    if len(fields) == len(pairs):
        return fields
    marked = Repeated(fields)
    marked.pairs = pairs
    return marked


def _refuse(content: bytes, where: str) -> Callable[[str], NoReturn]:
    def refuse(literal: str) -> NoReturn:
        wanted = literal.encode()
        offset = next((m.start() for m in TOKEN.finditer(content) if m.group() == wanted), None)
        raise FileFaultError(where, f"the literal {literal} is no JSON", offset)

    return refuse
