"""Escapes texts of the data (labels, names, error messages) where the Prefect UI renders Markdown."""

import re

MEANING = re.compile(r"[\\`*\[\]<&!|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[>#+=-]|^\d+(?=[.)])")
"""Start of emphasis, code, a link, a picture, HTML, an entity, a table, a quotation, a title or a list."""


def literal(text: str) -> str:
    """Return text that Markdown renders verbatim, on one line: no HTML, no link, no picture that a browser would fetch.

    The UI runs no scripts in texts, but it would load pictures that they name (docs/security.md).
    """
    return MEANING.sub(escaped, " ".join(text.split()))


def escaped(match: re.Match[str]) -> str:
    """Put a backslash before a character, or replace a number that would begin a list with an entity."""
    sign = match[0]
    return f"&#{ord(sign[0])};{sign[1:]}" if sign[0].isdigit() else f"\\{sign}"
