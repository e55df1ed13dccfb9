"""What running a stage came to, in counts."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.artifacts import ArtifactRef, Manifest
from schemas.rejects import MEANING, RejectCode
from trajpilot_core.errors import InputError


@dataclass(frozen=True)
class Outcome:
    """What running a stage came to. A unit is a shard, or the whole stage where it is not sharded."""

    ref: ArtifactRef
    reused: int
    computed: int
    removed: int
    rejected: Mapping[str, int]
    """Reject code -> units lost, or rows touched where the code costs none."""
    n_in: int
    n_out: int
    seconds: float
    cached: bool

    def lost(self) -> int:
        """Return the units that were dropped."""
        return units_lost(self.rejected)

    def message(self) -> str:
        """Return the counts as people read them."""
        return f"reused {self.reused:,}, computed {self.computed:,}, removed {self.removed:,}, rejected {self.lost():,}"

    def summary(self) -> list[dict[str, str | int | float]]:
        """Return the rows of a table: the counts, then one row per reject code."""
        rows: list[dict[str, str | int | float]] = [
            {"what": "units reused", "count": self.reused},
            {"what": "units computed", "count": self.computed},
            {"what": "units removed", "count": self.removed},
            {"what": "rows in", "count": self.n_in},
            {"what": "rows out", "count": self.n_out},
            {"what": "seconds", "count": round(self.seconds, 1)},
        ]
        return rows + [{"what": f"{MEANING[RejectCode(c)].severity} {c}", "count": n} for c, n in self.rejected.items()]


def units_lost(rejected: Mapping[str, int]) -> int:
    """Return the units lost among counts by code (repairs and warnings cost none)."""
    return sum(n for code, n in rejected.items() if MEANING[RejectCode(code)].severity == "drop")


def check_ratio(manifest: Manifest, allowed: float) -> None:
    """Refuse an output that lost too large a share of its rows.

    Raises:
        InputError: names the codes and how many units each cost.
    """
    lost = units_lost(manifest.rejected)
    if manifest.n_in and lost / manifest.n_in > allowed:
        codes = ", ".join(f"{code} {n:,}" for code, n in manifest.rejected.items())
        raise InputError(
            f"stage {manifest.stage} rejects {lost:,} of {manifest.n_in:,} rows ({lost / manifest.n_in:.0%}), "
            f"allowed are {allowed:.0%}: {codes}; mend the input, or raise RunOptions.max_reject_ratio"
        )
