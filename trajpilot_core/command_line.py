"""How commands of this checkout are written out, so that they work where they are pasted, whatever is on the path."""

import shlex
import sys
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]


def command(*words: str, program: str = "trajpilot") -> str:
    """Write a command as a fresh shell understands it: with the place of its program, and quoted where that is needed.

    Args:
        words: its arguments; a folder is best written by `shown`.
        program: one that is installed next to this Python.
    """
    beside = Path(sys.executable).absolute().parent / program
    return shlex.join([shown(beside) if beside.exists() else program, *words])


def shown(place: str | Path) -> str:
    """Write a place: short where it lies in the checkout and that is the current folder, else in full."""
    if "://" in str(place):
        return str(place)
    path = Path(place).absolute()
    is_short = Path.cwd() == CHECKOUT and path.is_relative_to(CHECKOUT) and path != CHECKOUT
    return str(path.relative_to(CHECKOUT) if is_short else path)
