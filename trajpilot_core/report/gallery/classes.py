"""Which windows the gallery shows, by a fixed rule.

Rule: windows fall into classes by the number of middle steps that two rows have right, of the first seed: No-Traj, and
the row that is examined (`methods.examined`). Where that one differs from No-Traj in no window, because its gate never
opened, or was not run, the row that is told the true motion stands in. `helped`: more steps right than No-Traj; `hurt`:
fewer; `all wrong`: of the others those in which no row of the gallery that is not told the truth has a middle step
right. What is in no class is counted. Equal shares of every class are drawn at random by the seed of the report,
whatever they look like; a class with too few is not filled up. Source: docs/decisions/report.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from schemas.config import ReportConfig
from trajpilot_core.methods import METHODS, examined, method
from trajpilot_core.methods.base import REFERENCE

HELPED, HURT, ALL_WRONG = "trajectory helped", "trajectory hurt", "all wrong"
CLASSES = (HELPED, HURT, ALL_WRONG)
Right = NDArray[np.integer[Any]]
"""(N,) middle steps of N windows that a row has right."""


@dataclass(frozen=True)
class GalleryWindows:
    """The windows of the gallery."""

    classes: Mapping[str, tuple[str, ...]]
    """Class -> window ids, in the order of the draw."""
    sizes: Mapping[str, int]
    """Class -> windows that it holds."""
    row: str = ""
    """The row whose steps are held against those of No-Traj; empty where nothing was drawn."""
    n_windows: int = 0
    """All windows that were looked at, those of no class included."""

    def window_ids(self) -> list[str]:
        """All windows drawn."""
        return [window for windows in self.classes.values() for window in windows]

    def share(self, name: str) -> float:
        """Return the share of a class among all windows, percent."""
        return 100.0 * self.sizes[name] / max(1, self.n_windows)

    @property
    def n_rest(self) -> int:
        """Windows of no class."""
        return self.n_windows - sum(self.sizes.values())


def draw(outcomes: pa.Table, cfg: ReportConfig) -> GalleryWindows:
    """Draw the windows of the gallery; `outcomes`: columns window_id, variant, mid_right."""
    ids, right = _by_row(outcomes)
    row = _judged_by(right)
    if row is None:
        return GalleryWindows({name: () for name in CLASSES}, dict.fromkeys(CLASSES, 0))
    gained = right[row] - right[REFERENCE]
    free = [held for one, held in right.items() if not method(one).uses_the_truth]
    inside = {HELPED: gained > 0, HURT: gained < 0, ALL_WRONG: (gained == 0) & (np.stack(free).max(axis=0) == 0)}
    held = {name: ids[inside[name]] for name in CLASSES}
    shares = [cfg.examples // 3 + (i < cfg.examples % 3) for i in range(3)]
    chosen = {
        name: tuple(held[name][np.random.default_rng([cfg.seed, i]).permutation(len(held[name]))[: shares[i]]].tolist())
        for i, name in enumerate(CLASSES)
    }
    return GalleryWindows(chosen, {name: len(held[name]) for name in CLASSES}, row, len(ids))


def _by_row(outcomes: pa.Table) -> tuple[NDArray[np.object_], dict[str, Right]]:
    """Return the windows of No-Traj, sorted, and what each row that has the same windows has right."""
    tables = {
        one.id: outcomes.filter(pc.equal(outcomes["variant"], one.id)).sort_by("window_id")
        for one in METHODS
        if one.in_gallery
    }
    windows = tables[REFERENCE]["window_id"]
    right = {one: t["mid_right"].to_numpy() for one, t in tables.items() if len(t) and t["window_id"].equals(windows)}
    return np.array(windows.to_pylist(), dtype=object), right


def _judged_by(right: Mapping[str, Right]) -> str | None:
    """Return the row that decides, by the rule; None where there is none to compare."""
    told = [one.id for one in METHODS if one.in_gallery and one.sees == "all_motion"]
    held = [one for one in dict.fromkeys((examined().id, *told)) if one in right] if REFERENCE in right else []
    differing = (one for one in held if (right[one] != right[REFERENCE]).any())
    return next(differing, held[0] if held else None)
