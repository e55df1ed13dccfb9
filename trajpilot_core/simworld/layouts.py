"""LAYOUTS: name -> how a world is written; the only registry."""

from schemas.world import LayoutName
from trajpilot_core.simworld import (
    layout_basketball,
    layout_egoper,
    layout_epic,
    layout_goalstep,
    layout_keystep,
    layout_tree,
)
from trajpilot_core.simworld.layout import Layout

LAYOUTS: dict[LayoutName, Layout] = {
    "egoexo4d": layout_tree.LAYOUT,
    "keystep": layout_keystep.LAYOUT,
    "basketball": layout_basketball.LAYOUT,
    "goalstep": layout_goalstep.LAYOUT,
    "egoper": layout_egoper.LAYOUT,
    "epic_kitchens": layout_epic.LAYOUT,
}
