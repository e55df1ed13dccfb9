"""Commands of this checkout, formatted so that they work when pasted into a shell, independent of PATH."""

import shlex
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def command(*words: str, program: str = "trajpilot") -> str:
    """Format a command for a new shell: with the path of its program, quoted where needed.

    Args:
        words: its arguments; format folders with `shown`.
        program: one that is installed next to this Python.
    """
    installed = Path(sys.executable).absolute().parent / program
    return shlex.join([shown(installed) if installed.exists() else program, *words])


def shown(place: str | Path) -> str:
    """Format a path: relative if it is in the checkout and that is the current folder, else absolute."""
    if "://" in str(place):
        return str(place)
    path = Path(place).absolute()
    is_short = Path.cwd() == CHECKOUT and path.is_relative_to(CHECKOUT) and path != CHECKOUT
    return str(path.relative_to(CHECKOUT) if is_short else path)
