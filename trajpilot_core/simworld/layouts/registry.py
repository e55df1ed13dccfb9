"""LAYOUTS: name -> how a world is written, one module each; which there are, the corpora say (corpora/registry.py)."""

from importlib import import_module
from typing import cast

from trajpilot_core.corpora.registry import layouts
from trajpilot_core.simworld.layouts.base import Layout


def layout_of(name: str) -> Layout:
    """Return the `LAYOUT` of the module in this folder that is called as the layout."""
    return cast(Layout, import_module(f"{__package__}.{name}").LAYOUT)


LAYOUTS: dict[str, Layout] = {name: layout_of(name) for name in layouts()}
"""WorldConfig.layout -> how a world is written."""
