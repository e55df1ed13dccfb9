"""What running a stage came to, in counts."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.artifacts import ArtifactRef, Manifest
from schemas.rejects import BY_CHOICE, MEANING, RejectCode
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
    sharded: bool

    def lost(self) -> int:
        """Return the units that were dropped."""
        return units_lost(self.rejected)

    def message(self) -> str:
        """Return the counts as people read them: in shards, or in rows where the stage is computed whole."""
        if not self.sharded:
            done = "reused" if self.cached else "computed"
            return f"{done}, {self.n_in:,} rows in, {self.n_out:,} out, rejected {self.lost():,}"
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
    """Refuse an output that lost too large a share of its rows to damage (what a setting leaves out is no damage).

    Raises:
        InputError: names the codes and how many units each cost.
    """
    damaged = {code: n for code, n in manifest.rejected.items() if RejectCode(code) not in BY_CHOICE}
    chosen = manifest.n_in - units_lost(manifest.rejected) + units_lost(damaged)
    lost = units_lost(damaged)
    if chosen and lost / chosen > allowed:
        codes = ", ".join(f"{code} {n:,}" for code, n in damaged.items())
        raise InputError(
            f"stage {manifest.stage} rejects {lost:,} of {chosen:,} rows ({lost / chosen:.0%}), "
            f"allowed are {allowed:.0%}: {codes}; mend the input, or raise RunOptions.max_reject_ratio"
        )
