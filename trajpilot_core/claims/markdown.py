"""Numbers and tables as Markdown text; every figure carries its interval."""

import math
from collections.abc import Sequence

from schemas.claims import ClaimsConfig
from trajpilot_core.claims.rules import Verdict
from trajpilot_core.claims.statistics import Equivalence, Estimate
from trajpilot_core.report.names import row_name

CEILING = "ceiling/"
METRIC_NAMES = {"m1": "M@1", "m5": "M@5", "mseq": "MSeq", "f1": "F@1", "f5": "F@5", "fseq": "FSeq"}
NOTHING = "not run"
EXTRA_NAMES = {"scorer_plus": "Scorer+"}
"""Names of rows that the report's tables may not know."""
MARKED: tuple[Verdict, ...] = ("holds", "fails")
"""Verdicts that are printed bold."""


def number(value: float, digits: int = 1, signed: bool = False) -> str:
    """Print a number with a true minus sign; a dash where there is none."""
    if not math.isfinite(value):
        return "–"
    return f"{value:{'+' if signed else ''}.{digits}f}".replace("-", "−")


def interval(low: float, high: float, digits: int = 1, signed: bool = False) -> str:
    """Print an interval in brackets."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return "(too few takes)"
    return f"[{number(low, digits, signed)}, {number(high, digits, signed)}]"


def rate(figure: Estimate | None, digits: int = 1) -> str:
    """Print a level with its interval."""
    if figure is None:
        return NOTHING
    return f"{number(figure.value, digits)} {interval(figure.low, figure.high, digits)}"


def change(figure: Estimate | Equivalence | None, digits: int = 1) -> str:
    """Print a difference with its interval, signed."""
    if figure is None:
        return NOTHING
    return f"{number(figure.value, digits, True)} {interval(figure.low, figure.high, digits, True)}"


def seeds(figure: Estimate | Equivalence | None, digits: int = 1, signed: bool = True) -> str:
    """Print the value of every seed, rising."""
    if figure is None:
        return ""
    return ", ".join(number(value, digits, signed) for _, value in figure.per_seed)


def verdict(value: str) -> str:
    """Print a verdict; what holds or fails stands out."""
    return f"**{value}**" if value in MARKED else value


def name(row: str) -> str:
    """Return the printed name of a row or of the ceiling of one."""
    if row.startswith(CEILING):
        return f"ceiling of {name(row.removeprefix(CEILING))}"
    return EXTRA_NAMES.get(row, row_name(row))


def horizons(cfg: ClaimsConfig) -> list[str]:
    """Return the headings of the horizons."""
    return [f"H={horizon}" for horizon in cfg.horizons]


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; bars inside cells are escaped. Without rows it says so."""
    if not rows:
        return "*Nothing was run for this table.*\n"
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


def section(title: str, *blocks: str, level: int = 2) -> str:
    """Return a headed section."""
    return "\n".join(
        [f"{'#' * level} {title}\n", *(block if block.endswith("\n") else block + "\n" for block in blocks)]
    )


def picture(file: str, text: str) -> str:
    """Return an image of the folder `claims/`."""
    return f"![{text}](claims/{file})\n"
