"""Ego-Exo4D with atomic descriptions: the tree of a download, its metadata and the captions of what the wearer does."""

from trajpilot_core.simworld.layouts import tree
from trajpilot_core.simworld.layouts.base import Layout, NamedFiles, one_file
from trajpilot_core.simworld.layouts.metadata import metadata_files
from trajpilot_core.simworld.world.truth import World


def rest(world: World) -> NamedFiles:
    """Yield captures, metadata and atomic descriptions."""
    yield from tree.capture_files(world)
    yield from metadata_files(world).items()


LAYOUT = Layout(has_poses=True, parts=one_file, take_files=tree.take_files, rest=rest)
