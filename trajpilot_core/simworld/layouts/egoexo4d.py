"""Ego-Exo4D with atomic descriptions: the tree of a download, its metadata and the captions of what the wearer does."""

from trajpilot_core.simworld.faults import TAKE_FAULTS
from trajpilot_core.simworld.layouts.base import Layout, TableSteps
from trajpilot_core.simworld.layouts.metadata import release_files, take_files

STEPS = TableSteps(lambda world: [label.label_id for label in world.labels], are_points=True)
LAYOUT = Layout(take_files, release_files, TAKE_FAULTS, STEPS, tiny={}, has_poses=True)
