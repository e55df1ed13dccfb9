"""Selects the windows of the gallery by a fixed rule.

Rule: windows are classified by the number of middle steps that two rows have right, first seed: No-Traj, and the
examined row (`methods.examined`). If that row was not run, or differs from No-Traj in no window because its gate never
opened, the row that sees the true motion is used instead. `helped`: more steps right than No-Traj; `hurt`: fewer; `all
wrong`: other windows in which no row of the gallery that does not see the truth has a middle step right. Windows of no
class are counted. Equal shares of every class are sampled at random with the seed of the report; a class with too few
windows is not filled up. Source: docs/decisions/report.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from schemas.config import ReportConfig
from trajpilot_core.methods import METHODS, examined, method
from trajpilot_core.methods.base import REFERENCE

HELPED, HURT, ALL_WRONG = "trajectory helped", "trajectory hurt", "all wrong"
CLASSES = (HELPED, HURT, ALL_WRONG)


@dataclass(frozen=True)
class GalleryWindows:
    """The windows of the gallery."""

    classes: Mapping[str, tuple[str, ...]]
    """Class -> window ids, in the sampled order."""
    sizes: Mapping[str, int]
    """Class -> number of its windows."""
    row: str = ""
    """The row that is compared with No-Traj; empty where nothing was sampled."""
    n_windows: int = 0
    """Number of all windows, those of no class included."""

    def window_ids(self) -> list[str]:
        """Return all sampled windows."""
        return [window for windows in self.classes.values() for window in windows]

    def share(self, name: str) -> float:
        """Return the share of a class among all windows, percent."""
        return 100.0 * self.sizes[name] / max(1, self.n_windows)

    @property
    def n_rest(self) -> int:
        """Number of windows of no class."""
        return self.n_windows - sum(self.sizes.values())


def draw(outcomes: pa.Table, cfg: ReportConfig) -> GalleryWindows:
    """Sample the windows of the gallery; `outcomes`: columns window_id, variant, mid_right."""
    shown = [row for row in METHODS if row.in_gallery]
    of_row = {row.id: outcomes.filter(pc.equal(outcomes["variant"], row.id)).sort_by("window_id") for row in shown}
    windows = of_row[REFERENCE]["window_id"]
    ids = np.array(windows.to_pylist(), dtype=object)
    right = {row: t["mid_right"].to_numpy() for row, t in of_row.items() if len(t) and t["window_id"].equals(windows)}
    moving = [row.id for row in shown if row.sees == "all_motion"]
    candidates = [row for row in dict.fromkeys((examined().id, *moving)) if row in right] if REFERENCE in right else []
    differing = (row for row in candidates if (right[row] != right[REFERENCE]).any())
    row = next(differing, candidates[0] if candidates else None)
    if row is None:
        return GalleryWindows({name: () for name in CLASSES}, dict.fromkeys(CLASSES, 0))
    gained = right[row] - right[REFERENCE]
    free = [members for row, members in right.items() if not method(row).uses_the_truth]
    inside = {HELPED: gained > 0, HURT: gained < 0, ALL_WRONG: (gained == 0) & (np.stack(free).max(axis=0) == 0)}
    members = {name: ids[inside[name]] for name in CLASSES}
    shares = [cfg.examples // 3 + (i < cfg.examples % 3) for i in range(3)]
    chosen = {
        name: tuple(
            members[name][np.random.default_rng([cfg.seed, i]).permutation(len(members[name]))[: shares[i]]].tolist()
        )
        for i, name in enumerate(CLASSES)
    }
    return GalleryWindows(chosen, {name: len(members[name]) for name in CLASSES}, row, len(ids))
