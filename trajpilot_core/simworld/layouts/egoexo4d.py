"""Ego-Exo4D with atomic descriptions: the tree of a download, its metadata and the captions of what the wearer does."""

from trajpilot_core.simworld.faults import TAKE_FAULTS
from trajpilot_core.simworld.layouts.base import Layout
from trajpilot_core.simworld.layouts.metadata import release_files, take_files

LAYOUT = Layout(take_files, release_files, TAKE_FAULTS, tiny={}, has_poses=True)
