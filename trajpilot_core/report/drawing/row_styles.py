"""Style sheet of the rows, made from their records: a row has its colour, dashes and mark wherever it is drawn."""

from collections.abc import Mapping

from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import RowStyle

SPARE: Mapping[str, tuple[str, str]] = {
    "curve-1": ("#0b6e8f", "#6cc5e4"),
    "curve-2": ("#c2601c", "#ffb080"),
    "curve-3": ("#5a7d2a", "#a8d070"),
    "curve-4": ("#a3458a", "#f0a0dc"),
    "curve-5": ("#6a3d9a", "#b48be0"),
    "curve-6": ("#8a6d00", "#e0c060"),
    "curve-7": ("#39424e", "#d5dae0"),
    "curve-8": ("#1f8a5f", "#63dba6"),
}
"""Style -> colour on white and on black, for lines without a row."""


def colours() -> dict[str, tuple[str, str]]:
    """Return style of a line -> its colour on white and on black."""
    return {method.id: (method.style.light, method.style.dark) for method in METHODS} | dict(SPARE)


def style_of(variant: str) -> RowStyle:
    """Return how a row is drawn; a line without a row has the default style."""
    return next((method.style for method in METHODS if method.id == variant), RowStyle())


def page_rules() -> str:
    """Return the rules of a page: `--<id>` for any use of the colour of a row, by theme, and those of the rows."""
    light, dark = (" ".join(f"--{name}: {pair[at]};" for name, pair in colours().items()) for at in (0, 1))
    themes = f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    return themes + row_rules()


def row_rules() -> str:
    """Return the rules of the rows: `.<id>` for lines, `.k-<id>` for chips, dashes and widths of lines."""
    rules = [f".{name}, .k-{name} {{ color: var(--{name}); }}" for name in colours()]
    for method in METHODS:
        dash = f"stroke-dasharray: {method.style.dash};" if method.style.dash else ""
        width = f"stroke-width: {method.style.width};" if method.style.width != RowStyle.width else ""
        if dash or width:
            rules.append(f".line.{method.id} polyline {{ {' '.join(filter(None, (dash, width)))} }}")
    return "\n".join(rules) + "\n"
