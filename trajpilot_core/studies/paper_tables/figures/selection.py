"""Selects the windows of the qualitative figure: sampled like the report's gallery, or by the paper's rule.

The paper shows windows where its Scorer answers every middle step right and its vision-language row does not. Such a
selection does not show how often that happens, so the caption gives its share of all windows.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import ReportConfig
from trajpilot_core.methods import METHODS, method
from trajpilot_core.report.gallery.classes import CLASSES, HELPED, GalleryWindows, draw
from trajpilot_core.report.tables.names import row_name

SHOWN = 3
"""Windows of the figure."""
SCORER, VISION_LANGUAGE = "scorer", "qwen_sft_llm"


class ChosenWindows(NamedTuple):
    """Windows with their class, and a sentence on how they were selected."""

    gallery: GalleryWindows
    said: str


def drawn_windows(outcomes: pa.Table, cfg: ReportConfig) -> ChosenWindows:
    """Sample one window of each class of the report's gallery, by its rule and seed."""
    gallery = draw(outcomes, cfg.replace(examples=SHOWN))
    sizes = ", ".join(f"{name} {size:,}" for name, size in gallery.sizes.items())
    return ChosenWindows(gallery, f"One window of each class, sampled at random (windows in all: {sizes}).")


def by_rule_of_paper(outcomes: pa.Table, seed: int) -> ChosenWindows:
    """Sample windows in which the Scorer is exact and the other row is not, and state their share of all windows.

    The other row is the vision-language one; without it, the strongest other row that does not see the truth.

    Args:
        outcomes: columns window_id, horizon, variant, mid_right.
        seed: of the sample.
    """
    exact = _exact(outcomes)
    if SCORER not in exact:
        return ChosenWindows(_exactly(()), "The Scorer was not run.")
    rivals = {row: members for row, members in exact.items() if row != SCORER and not method(row).uses_the_truth}
    if not rivals:
        return ChosenWindows(_exactly(()), "No other row was run.")
    other = VISION_LANGUAGE if VISION_LANGUAGE in rivals else max(rivals, key=lambda row: sum(rivals[row].values()))
    instead = "" if other == VISION_LANGUAGE else f", the strongest other row, in place of {row_name(VISION_LANGUAGE)},"
    mine = exact[SCORER]
    kept = sorted(window for window in mine if mine[window] and not rivals[other].get(window, False))
    order = np.random.default_rng(seed).permutation(len(kept))[:SHOWN]
    share = 100 * len(kept) / max(1, len(mine))
    said = (
        "Windows are selected by the paper's rule: the Scorer has every middle step right, and "
        f"{row_name(other)}{instead} has not. This holds for {len(kept):,} of {len(mine):,} windows ({share:.1f} %); "
        "the others are not shown."
    )
    return ChosenWindows(_exactly(tuple(kept[at] for at in sorted(order))), said)


def _exactly(windows: tuple[str, ...]) -> GalleryWindows:
    """Return windows that are all of one class: an exact Scorer is ahead of wrong rivals, mostly of No-Traj too."""
    members = {name: windows if name == HELPED else () for name in CLASSES}
    return GalleryWindows(members, {name: len(ids) for name, ids in members.items()}, SCORER, len(windows))


def _exact(outcomes: pa.Table) -> Mapping[str, dict[str, bool]]:
    """Return row -> window -> whether every middle step is right."""
    right = pc.equal(outcomes["mid_right"], pc.subtract(outcomes["horizon"], 2))
    exact: dict[str, dict[str, bool]] = {method.id: {} for method in METHODS}
    columns = (outcomes["variant"].to_pylist(), outcomes["window_id"].to_pylist(), right.to_pylist())
    for variant, window, is_right in zip(*columns, strict=True):
        exact[variant][window] = is_right
    return {row: members for row, members in exact.items() if members}
