"""What running a stage came to, in counts."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.annotation import CorpusCount
from schemas.artifacts import ArtifactRef, Manifest
from schemas.rejects import RejectCode
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
    unit: str | None
    """What a shard is, e.g. `take`; None: the stage is not sharded."""
    counts: tuple[CorpusCount, ...] = ()
    """Counts that the stage wrote for comparison with the paper's."""

    def lost(self) -> int:
        """Return the units that were dropped."""
        return units_lost(self.rejected)

    def message(self) -> str:
        """Return the counts as people read them: in shards, or in rows where the stage is computed whole."""
        if self.unit is None:
            done = "reused" if self.cached else "computed"
            rows = f"{done}, {self.n_in:,} rows in, {self.n_out:,} out, rejected {self.lost():,}"
            return f"{rows}{self._beside_the_paper()}"
        if not (self.reused or self.computed or self.removed or self.lost()):
            return f"no {self.unit} to compute"
        return f"reused {self.reused:,}, computed {self.computed:,}, removed {self.removed:,}, rejected {self.lost():,}"

    def _beside_the_paper(self) -> str:
        stated = [row for row in self.counts if row.paper is not None]
        same = sum(row.ours == row.paper for row in stated)
        return f"; {same} of {len(stated)} counts are the paper's" if stated else ""

    def summary(self) -> list[dict[str, str | int | float]]:
        """Return the rows of a table: rows in and out, one per reject code with its meaning, units, time and speed."""
        rows = [_row("rows in", self.n_in, "what the stage was given"), _row("rows out", self.n_out, "what it wrote")]
        rows += [_reject(RejectCode(code), n) for code, n in self.rejected.items()]
        rows += [_row(row.what, row.ours, _paper(row)) for row in self.counts]
        if self.unit is None:
            rows += [
                _row("computed", 0 if self.cached else 1, "the stage is computed whole"),
                _row("reused", 1 if self.cached else 0, "nothing that it depends on has changed"),
            ]
        else:
            rows += [
                _row(f"{self.unit}s computed", self.computed, "in this run"),
                _row(f"{self.unit}s reused", self.reused, "nothing that they depend on has changed"),
                _row(f"{self.unit}s removed", self.removed, "there the last time, not now"),
            ]
        rows.append(_row("seconds", round(self.seconds, 1), "from the first look to the last file"))
        if self.unit is not None:
            per_s = self.computed / max(self.seconds, 1e-9)
            rows.append(_row(f"{self.unit}s per second", round(per_s, 2), "computed takes over those seconds"))
        return rows


def _row(what: str, count: float, meaning: str) -> dict[str, str | int | float]:
    return {"figure": what, "count": count, "meaning": meaning}


def _paper(row: CorpusCount) -> str:
    """State what the paper counted, and what decides ours where the two differ."""
    if row.paper is None:
        return "the paper states no such count" if not row.setting else f"decided by {row.setting}"
    if row.paper == row.ours:
        return "as in the paper"
    return f"the paper has {row.paper:,}" + (f"; decided by {row.setting}" if row.setting else "")


def _reject(code: RejectCode, n: int) -> dict[str, str | int | float]:
    """State what a code means; a drop costs rows, a repair or a warning none. The report says what to do about each."""
    did = {"drop": "rejected", "repair": "repaired", "warn": "warned"}[code.severity]
    return _row(f"{did}: {code.value}", n, code.meaning)


def units_lost(rejected: Mapping[str, int]) -> int:
    """Return the units lost among counts by code (repairs and warnings cost none)."""
    return sum(n for code, n in rejected.items() if RejectCode(code).severity == "drop")


def check_ratio(manifest: Manifest, allowed: float) -> None:
    """Refuse an output that lost too large a share of its rows to damage (what a setting leaves out is no damage).

    Raises:
        InputError: names the codes and how many units each cost.
    """
    damaged = {code: n for code, n in manifest.rejected.items() if not RejectCode(code).by_choice}
    chosen = manifest.n_in - units_lost(manifest.rejected) + units_lost(damaged)
    lost = units_lost(damaged)
    if chosen and lost / chosen > allowed:
        codes = ", ".join(f"{code} {n:,}" for code, n in damaged.items())
        raise InputError(
            f"stage {manifest.stage} rejects {lost:,} of {chosen:,} rows ({lost / chosen:.0%}), "
            f"allowed are {allowed:.0%}: {codes}; fix the input, or raise --max-rejects "
            "(max_reject_ratio in Prefect's form)"
        )
