"""The result of running a stage, in counts."""

from collections.abc import Mapping
from dataclasses import dataclass

from schemas.annotation import CorpusCount
from schemas.artifacts import ArtifactRef, Manifest
from schemas.rejects import RejectCode
from trajpilot_core.errors import InputError


@dataclass(frozen=True)
class Outcome:
    """The result of running a stage. A unit is a shard, or the whole stage where it is not sharded."""

    ref: ArtifactRef
    reused: int
    computed: int
    removed: int
    rejected: Mapping[str, int]
    """Reject code -> units lost, or rows affected where the code drops none."""
    n_in: int
    n_out: int
    seconds: float
    cached: bool
    unit: str | None
    """Kind of shard, e.g. `take`; None: the stage is not sharded."""
    counts: tuple[CorpusCount, ...] = ()
    """Counts that the stage wrote for comparison with the paper's."""

    def lost(self) -> int:
        """Return the units that were dropped."""
        return units_lost(self.rejected)

    def message(self) -> str:
        """Return the counts in words: in shards, or in rows for a stage without shards."""
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
        return f"; {same} of {len(stated)} counts equal the paper's" if stated else ""

    def summary(self) -> list[dict[str, str | int | float]]:
        """Return table rows: rows in and out, one row per reject code with its meaning, units, time and speed."""
        rows = [_row("rows in", self.n_in, "read by the stage"), _row("rows out", self.n_out, "written by it")]
        rows += [_reject(RejectCode(code), n) for code, n in self.rejected.items()]
        rows += [_row(row.what, row.ours, _paper(row)) for row in self.counts]
        if self.unit is None:
            rows += [
                _row("computed", 0 if self.cached else 1, "the stage has no shards"),
                _row("reused", 1 if self.cached else 0, "its inputs have not changed"),
            ]
        else:
            rows += [
                _row(f"{self.unit}s computed", self.computed, "in this run"),
                _row(f"{self.unit}s reused", self.reused, "their inputs have not changed"),
                _row(f"{self.unit}s removed", self.removed, "in the previous output, not in this one"),
            ]
        rows.append(_row("seconds", round(self.seconds, 1), "wall time of the stage"))
        if self.unit is not None:
            per_s = self.computed / max(self.seconds, 1e-9)
            rows.append(_row(f"{self.unit}s per second", round(per_s, 2), "computed in those seconds"))
        return rows


def _row(what: str, count: float, meaning: str) -> dict[str, str | int | float]:
    return {"figure": what, "count": count, "meaning": meaning}


def _paper(row: CorpusCount) -> str:
    """Return the paper's count in words, and the setting behind ours where the two differ."""
    if row.paper is None:
        return "not stated in the paper" if not row.setting else f"depends on {row.setting}"
    if row.paper == row.ours:
        return "as in the paper"
    return f"the paper has {row.paper:,}" + (f"; ours depends on {row.setting}" if row.setting else "")


def _reject(code: RejectCode, n: int) -> dict[str, str | int | float]:
    """Return the row of a reject code; a drop costs rows, a repair or a warning none."""
    did = {"drop": "rejected", "repair": "repaired", "warn": "warned"}[code.severity]
    return _row(f"{did}: {code.value}", n, code.meaning)


def units_lost(rejected: Mapping[str, int]) -> int:
    """Return the units lost, from counts by code (repairs and warnings cost none)."""
    return sum(n for code, n in rejected.items() if RejectCode(code).severity == "drop")


def check_ratio(manifest: Manifest, allowed: float) -> None:
    """Fail where too large a share of the rows was lost to damage (rows that a setting excludes are not damage).

    Raises:
        InputError: names the codes and the units that each cost.
    """
    damaged = {code: n for code, n in manifest.rejected.items() if not RejectCode(code).by_choice}
    chosen = manifest.n_in - units_lost(manifest.rejected) + units_lost(damaged)
    lost = units_lost(damaged)
    if chosen and lost / chosen > allowed:
        codes = ", ".join(f"{code} {n:,}" for code, n in damaged.items())
        raise InputError(
            f"stage {manifest.stage} rejects {lost:,} of {chosen:,} rows ({lost / chosen:.0%}), but at most "
            f"{allowed:.0%} are allowed: {codes}; fix the input, or raise --max-rejects (max_reject_ratio in Prefect's "
            "form)"
        )
