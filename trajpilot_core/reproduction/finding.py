"""What recomputing one statement of the paper gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

Verdict = Literal["contradicted", "strained", "holds", "textual"]
VERDICTS: dict[Verdict, str] = {
    "contradicted": "the paper's own numbers rule the statement out",
    "strained": "the numbers neither rule it out nor show it: it needs slack, or a figure that the paper does not give",
    "holds": "recomputed, the numbers agree",
    "textual": "two passages disagree and no printed number decides; the arithmetic gives sizes only",
}


@dataclass(frozen=True)
class Grid:
    """A small table of printed figures."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Finding:
    """One statement of the paper against its tables."""

    number: int
    title: str
    claim: str
    """The statement in our words."""
    places: tuple[str, ...]
    """Labels of the paper's source where it stands and where the numbers come from."""
    figures: Grid | None
    says: str
    """What the figures say; every number in it is computed."""
    verdict: Verdict


def fixed(value: float, digits: int = 2) -> str:
    """Print a number with a true minus; what rounds to zero has no sign."""
    text = f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) != 0 else f"{0:.{digits}f}"


def signed(value: float, digits: int = 2) -> str:
    """Print a difference with its sign."""
    text = f"{value:+.{digits}f}"
    return text.replace("-", "−") if float(text) != 0 else f"{0:.{digits}f}"


def by_horizon(rows: Mapping[str, Mapping[int, str]]) -> Grid:
    """Lay out rows over the horizons that any of them has; an absent figure is an empty cell."""
    columns = sorted({h for row in rows.values() for h in row})
    head = ("", *(f"H={h}" for h in columns))
    return Grid(head, tuple((name, *(row.get(h, "") for h in columns)) for name, row in rows.items()))


def printed(values: Mapping[int, float], digits: int = 2) -> dict[int, str]:
    """Print a row of numbers."""
    return {h: fixed(value, digits) for h, value in values.items()}


def differences(values: Mapping[int, float], digits: int = 2) -> dict[int, str]:
    """Print a row of differences."""
    return {h: signed(value, digits) for h, value in values.items()}


def minus(left: Mapping[int, float], right: Mapping[int, float]) -> dict[int, float]:
    """Subtract by horizon."""
    return {h: left[h] - right[h] for h in left}


def name_horizons(values: Sequence[int]) -> str:
    """Name horizons: `H = 3, 4`, or `no H`."""
    return "H = " + ", ".join(str(h) for h in values) if values else "no H"


def falls(values: Sequence[float]) -> bool:
    """Return whether each value is below the one before."""
    return all(after < before for before, after in pairwise(values))


def rises(values: Sequence[float]) -> bool:
    """Return whether each value is above the one before."""
    return falls([-value for value in values])


def span(values: Sequence[float], digits: int = 1) -> str:
    """Print the least and the most of some values."""
    return f"{fixed(min(values), digits)} to {fixed(max(values), digits)}"
