"""Layout by name: one module each, called as the layout; which there are, the corpora say (corpora/registry.py)."""

from importlib import import_module
from typing import cast

from trajpilot_core.corpora.registry import layouts
from trajpilot_core.errors import WorldError
from trajpilot_core.simworld.layouts.base import Layout


def layout_of(name: str) -> Layout:
    """Return the `LAYOUT` of the module in this folder that is called as the layout.

    Raises WorldError: no corpus is written in this layout.
    """
    if name not in layouts():
        raise WorldError(f"no simulated world is written in the layout {name!r}; there are {', '.join(layouts())}")
    return cast(Layout, import_module(f"{__package__}.{name}").LAYOUT)
