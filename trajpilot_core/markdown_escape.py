"""Texts of the data (labels, names, error messages) in what the Prefect UI renders as Markdown."""

import re

MEANING = re.compile(r"[\\`*\[\]<&!|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|^[>#+=-]|^\d+(?=[.)])")
"""What begins emphasis, code, a link, a picture, HTML, an entity, a table, a quotation, a title or a list."""


def literal(text: str) -> str:
    """Return text that Markdown shows as it is, on one line: no HTML, no link, no picture that a browser would fetch.

    The UI runs no script of a text, but without this it does load pictures that a text names (docs/security.md).
    """
    return MEANING.sub(escaped, " ".join(text.split()))


def escaped(match: re.Match[str]) -> str:
    """Put a backslash before a sign, and an entity in place of a number that would begin a list."""
    sign = match[0]
    return f"&#{ord(sign[0])};{sign[1:]}" if sign[0].isdigit() else f"\\{sign}"
