"""Whether both entries of a world, video files and encoded frames, put the rows into the same order."""

from dataclasses import dataclass
from itertools import combinations

from schemas.claims import BASE, FEATURE_SPACE, ClaimsConfig, curve_worlds, world_seeds
from trajpilot_core.methods import with_role
from trajpilot_core.studies.claims.evidence.contrasts import contrast, untrained
from trajpilot_core.studies.claims.evidence.statistics import Estimate, mean_of
from trajpilot_core.studies.claims.evidence.tables import CEILING, Evidence
from trajpilot_core.studies.claims.verdicts.doubts import Doubt, undertrained, withheld
from trajpilot_core.studies.claims.verdicts.words import Verdict

Pair = tuple[str, str]
"""A world by files and a world by features."""


def pairs(cfg: ClaimsConfig) -> tuple[Pair, ...]:
    """Return the compared worlds: the planned pair, then the largest world of the learning curve for `feature_space`.

    The second was added after the first tables had been seen: its models are fitted on about as many takes as those of
    `base`, those of `feature_space` on little more than half (docs/decisions/claims-statistics.md).
    """
    sizes = curve_worlds(cfg)
    return ((BASE, FEATURE_SPACE), *((BASE, name) for name in sizes if sizes[name] == max(sizes.values())))


@dataclass(frozen=True)
class Swap:
    """Two rows that the entries order differently, with row - reference in each."""

    row: str
    reference: str
    by_video: Estimate
    by_frames: Estimate

    def is_shown(self) -> bool:
        """Return whether the intervals exclude zero on different sides, so that chance does not explain it."""
        low, high = sorted((self.by_video, self.by_frames), key=lambda figure: figure.value)
        return low.is_below_zero() and high.is_above_zero()


@dataclass(frozen=True)
class EntryOrders:
    """The two orders in one metric."""

    metric: str
    worlds: Pair
    seeds: tuple[int, ...]
    """Those that both worlds are planned with."""
    figures: tuple[tuple[str, Estimate, Estimate], ...]
    """(row, by files, by features), highest first by files."""
    tau: float | None
    """Kendall's rank correlation of the two orders; None below two rows."""
    swaps: tuple[Swap, ...]
    verdict: Verdict
    gap: str
    """What is missing, or which models are not trained and what the intervals say, for the reader."""


def compare_entries(
    evidence: Evidence, metric: str, cfg: ClaimsConfig, worlds: Pair = (BASE, FEATURE_SPACE)
) -> EntryOrders:
    """Order the rows that both worlds have, in both.

    It holds where no two rows stand in opposite order, fails where two do beyond chance, and is undecided where chance
    explains every such pair.

    Args:
        evidence: the tables.
        metric: one of `tables.METRICS`.
        cfg: planned seeds and resampling; seeds that one of the worlds is not planned with are left out.
        worlds: by files and by features.
    """
    seeds = tuple(seed for seed in world_seeds(cfg, worlds[0]) if seed in world_seeds(cfg, worlds[1]))
    cfg = cfg.replace(seeds=seeds)
    rows = sorted(rows_of(evidence, worlds[0]) & rows_of(evidence, worlds[1]))
    figures: list[tuple[str, Estimate, Estimate]] = []
    swaps: list[Swap] = []
    gaps: set[str] = set()
    for row in rows:
        read, missing = _in_both(evidence, worlds, row, None, metric, cfg)
        gaps |= missing
        if len(read) == len(worlds):
            figures.append((row, read[0], read[1]))
    figures.sort(key=lambda item: (-item[1].value, item[0]))
    for one, two in combinations(figures, 2):
        if (one[1].value - two[1].value) * (one[2].value - two[2].value) < 0:
            read, missing = _in_both(evidence, worlds, one[0], two[0], metric, cfg)
            gaps |= missing
            swaps += [Swap(one[0], two[0], *read)] if len(read) == len(worlds) else []
    n_pairs = len(figures) * (len(figures) - 1) // 2
    gap = "; ".join(sorted(gaps)) or ("" if n_pairs else "no rows that both worlds have")
    weak = [model for world in worlds for model in untrained(evidence, world, rows, cfg)]
    doubts = [Doubt("undertrained", undertrained(weak))] if weak else []
    tau = 1 - 2 * len(swaps) / n_pairs if n_pairs else None
    shown: Verdict = "fails" if any(swap.is_shown() for swap in swaps) else "undecided" if swaps else "holds"
    return EntryOrders(metric, worlds, seeds, tuple(figures), tau, tuple(swaps), *withheld(shown, gap, doubts))


def rows_of(evidence: Evidence, world: str) -> set[str]:
    """Return the rows of a world that some seed has, without ceilings and floors.

    Floors are no method, and the same through both entries by definition.
    """
    held = {row for scores in evidence.scores.get(world, {}).values() for row in scores.rows}
    return {row for row in held if not row.startswith(CEILING) and row not in with_role("floor")}


def _in_both(
    evidence: Evidence, worlds: Pair, row: str, reference: str | None, metric: str, cfg: ClaimsConfig
) -> tuple[list[Estimate], set[str]]:
    """Return a row or a difference in both worlds, as far as it was run, and what is missing of it."""
    found = [contrast(evidence, world, row, reference, metric, cfg) for world in worlds]
    read = [figure for of, _ in found if (figure := mean_of(of, cfg)) is not None]
    return read, {gap for _, gap in found if gap}
