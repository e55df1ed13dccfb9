"""The named worlds: those of schemas/world.py, and a tiny one in every other layout."""

from collections.abc import Callable
from functools import partial

from schemas.world import WorldConfig, court_world, demo_world, laptop_world, released_world, soak_world, tiny_world
from trajpilot_core.corpora.registry import layouts
from trajpilot_core.simworld.layouts.base import layout_of


def tiny_layout(layout: str) -> WorldConfig:
    """The tiny world written in another layout: a few good takes, and one for every fault that the layout can have."""
    return tiny_world().replace(name=f"tiny_{layout}", layout=layout, **layout_of(layout).tiny)


def released_kitchen() -> WorldConfig:
    """The tiny world in the layout of EPIC-KITCHENS-100 with released features and without any video."""
    kitchen = tiny_layout("epic_kitchens")
    return kitchen.replace(name="tiny_epic_released", released="epic_slowfast", videos=False)


PRESETS: dict[str, Callable[[], WorldConfig]] = {
    "demo": demo_world,
    "tiny": tiny_world,
    "tiny_released": released_world,
    "tiny_laptop": laptop_world,
    "tiny_epic_released": released_kitchen,
    "soak": soak_world,
    "court": court_world,
    **{f"tiny_{layout}": partial(tiny_layout, layout) for layout in layouts() if layout != tiny_world().layout},
}
