"""Single fields of untrusted JSON records: each function returns None where the value is not of its kind."""

import math

from trajpilot_core.corpora.formats.strict_json import Repeated

TRUE, FALSE = ("1", "true"), ("0", "false")
SHOWN = 120


def as_object(value: object) -> dict[str, object] | None:
    """Return a JSON object; None for anything else and for an object with a repeated key."""
    return value if isinstance(value, dict) and not isinstance(value, Repeated) else None


def as_text(value: object) -> str | None:
    """Return a string that UTF-8 can hold (a lone surrogate cannot be stored), else None."""
    if not isinstance(value, str):
        return None
    try:
        value.encode()
    except UnicodeEncodeError:
        return None
    return value


def as_id(value: object) -> str | None:
    """Return an id, written as a string or as an integer, as a string."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value) if abs(value) < 10**18 else None
    return as_text(value) or None


def as_integer(value: object) -> int | None:
    """Return an integer that 64 bits hold."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    return None


def as_bool(value: object) -> bool | None:
    """Return a truth value: true, false, 0, 1, or such a string; None for anything else.

    The corpus writes "0" and "1" for some annotators, and `bool("0")` is True in Python.
    """
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return bool(value) if value in (0, 1) else None
    if isinstance(value, str):
        word = value.strip().lower()
        return True if word in TRUE else False if word in FALSE else None
    return None


def as_seconds(value: object) -> float | None:
    """Return a finite, non-negative time in seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def as_span(start: object, end: object) -> tuple[float, float] | None:
    """Return finite, non-negative start and end in seconds; the end may precede the start."""
    start_s, end_s = as_seconds(start), as_seconds(end)
    return None if start_s is None or end_s is None else (start_s, end_s)


def shown(value: object) -> str:
    """Return a value as short, storable text for a message."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except RecursionError:  # parsed in fewer frames than this
        text = "a value that is nested too deeply"
    return text[:SHOWN].encode("utf-8", "backslashreplace").decode()
