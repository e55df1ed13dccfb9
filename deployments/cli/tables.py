"""Tables and numbers of commands: whole words at any width, every number with its unit."""

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

NARROW, WIDE = 120, 160
"""Line widths in characters: below the first, tables are compact; from the second on, they have a column of reasons."""
STYLES = {"fresh": "green", "stale": "yellow", "missing": "red", "unknown": "magenta"}
STYLES |= {"ok": "green", "note": "yellow", "bad": "red"}


def coloured(word: str) -> str:
    """Return a state or a verdict with its colour."""
    return f"[{STYLES[word]}]{word}[/]"


def table_of(console: Console, columns: Sequence[str], title: str | None = None) -> Table:
    """Return an empty table whose first column is not wrapped and whose other cells are wrapped, never cut."""
    close = console.width < NARROW
    table = Table(title=title, box=box.SQUARE if close else box.HEAVY_HEAD, padding=(0, 0 if close else 1))
    for column, name in enumerate(columns):
        table.add_column(name, overflow="fold", no_wrap=column == 0)
    return table


def show(console: Console, columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    """Print rows whose last cell is free text; on narrow terminals each text is printed once, below the table.

    All cells but the last of a row may contain markup.
    """
    fits = console.width >= WIDE
    table = table_of(console, columns if fits else columns[:-1], title)
    below: dict[str, list[str]] = {}
    for *cells, text in rows:
        table.add_row(*cells, *([escape(text)] if fits else []))
        if text and not fits:
            below.setdefault(text, []).append(cells[0])
    console.print(table)
    for text, names in below.items():
        say(console, f"{', '.join(names)}: {text}")


def say(console: Console, text: str) -> None:
    """Print a line without wrapping or markup."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def time(seconds: float) -> str:
    """Format the duration of work for people; it is never shown as taking no time."""
    if seconds < 120:
        return f"{max(seconds, 1.0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def number(value: float | None) -> str:
    """Format a number for a table; empty for None."""
    if value is None:
        return ""
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
