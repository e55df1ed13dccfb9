"""Colours, dashes and marks: a row has its own wherever it is drawn."""

from collections.abc import Mapping

from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import RowStyle

SPARE: Mapping[str, RowStyle] = {
    "curve-1": RowStyle("circle", "#0b6e8f", "#6cc5e4"),
    "curve-2": RowStyle("square", "#c2601c", "#ffb080"),
    "curve-3": RowStyle("triangle", "#5a7d2a", "#a8d070"),
    "curve-4": RowStyle("diamond", "#a3458a", "#f0a0dc"),
    "curve-5": RowStyle("plus", "#6a3d9a", "#b48be0"),
    "curve-6": RowStyle("cross", "#8a6d00", "#e0c060"),
    "curve-7": RowStyle("square", "#39424e", "#d5dae0"),
    "curve-8": RowStyle("triangle", "#1f8a5f", "#63dba6"),
    "attentive_probe": RowStyle("diamond", "#8c6bb1", "#c4a9e2"),
}
"""Styles of lines without a row."""


def styles() -> dict[str, RowStyle]:
    """Return the style of every row and of lines without a row."""
    return {method.id: method.style for method in METHODS} | dict(SPARE)


def style_of(name: str) -> RowStyle:
    """Return how a row, or a line without a row, is drawn."""
    return styles().get(name, RowStyle())


def page_rules() -> str:
    """Return the rules of a page: `--<id>` is the colour of a row by theme, and `.k-<id>` colours chips."""
    light, dark = (
        " ".join(f"--{name}: {getattr(style, theme)};" for name, style in styles().items())
        for theme in ("light", "dark")
    )
    chips = "\n".join(f".k-{name} {{ color: var(--{name}); }}" for name in styles())
    return f":root {{ {light} }}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{chips}\n"
