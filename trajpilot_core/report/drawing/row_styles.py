"""Style sheet of the rows, made from their records: a row has its colour, dashes and mark wherever it is drawn."""

from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import Method, RowStyle

SHORTEST, BETWEEN, LONGEST = "shortest", "between", "longest"
"""Styles of lines of one row at several horizons, next to the colour of the row."""
DASHES = {SHORTEST: "1 3", BETWEEN: "6 3"}


def mark_of(variant: str) -> str:
    """Return the mark of a row's points; a line that stands for no row has circles."""
    return next((one.style.mark for one in METHODS if one.id == variant), RowStyle.mark)


def page_rules() -> str:
    """Return the rules of a page: `.<id>` for lines, `.k-<id>` for chips, `--<id>` for whatever else has the colour."""
    rules = [
        f":root {{ {_variables('light')} }}",
        f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables('dark')} }} }}",
        *(f".{one.id}, .k-{one.id} {{ color: var(--{one.id}); }}" for one in METHODS),
        *line_rules(),
    ]
    return "\n".join(rules) + "\n"


def answer_rules() -> str:
    """Return the rules of the page of a plan, where the row that decides has the colour of its answer's edge."""
    rules = (f".answer.r-{one.id} li {{ border-top-color: var(--{one.id}); }}" for one in _answering())
    return "\n".join(rules) + "\n"


def picture_rules() -> str:
    """Return the rules of a picture that stands alone, on white."""
    colours = (f".{one.id} {{ color: {one.style.light}; }}" for one in METHODS)
    return "\n".join([*colours, *line_rules()]) + "\n"


def line_rules() -> list[str]:
    """Return dashes and widths of the rows' lines, and dashes of horizons; full lines of the usual width need none."""
    rules = [f".{name} polyline {{ stroke-dasharray: {dash}; }}" for name, dash in DASHES.items()]
    for one in METHODS:
        dash = f"stroke-dasharray: {one.style.dash};" if one.style.dash else ""
        width = f"stroke-width: {one.style.width};" if one.style.width != RowStyle.width else ""
        if dash or width:
            rules.append(f".line.{one.id} polyline {{ {' '.join(filter(None, (dash, width)))} }}")
    return rules


def _variables(theme: str) -> str:
    """Return the rows' colours of one theme, `light` or `dark`, as variables."""
    return " ".join(f"--{one.id}: {one.style.light if theme == 'light' else one.style.dark};" for one in METHODS)


def _answering() -> list[Method]:
    """Return the rows that answer a video of one's own."""
    return [one for one in METHODS if one.plans is not None]
