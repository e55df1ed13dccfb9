"""The verdict of a run in one sentence, derived from the paired differences of the metrics table and their intervals.

The question is the paper's: does a retrieved head motion help? The row that answers it is the one whose gate is looked
at window by window; in a run without it the first main row that is not told the truth. What is called best is so by the
plain mean over the horizons. Source: docs/decisions/report.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pydantic import JsonValue

from schemas.results import GateRow, Judgement, Metric
from trajpilot_core.evaluation.trained_rows import JUDGED, JUDGED_BY_HEADS
from trajpilot_core.methods import METHODS, examined, method, with_role
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.tables.closed import OVERALL
from trajpilot_core.report.tables.groups import GroupedTable
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.results import ResultCell, Results, build_table
from trajpilot_core.report.tables.table import interval, number

Effect = Literal["helps", "hurts", "undecided", "nothing"]
OPENING = ("M@1", "MSeq")
"""Columns of the main rows where labels are ranked by their texts; class heads have those of the paper's closed
table."""
FAULTS = ("identity: ", "leak: ", "demo: ")
"""How checks begin whose failure speaks of a fault; a ceiling that is broken leaves no verdict at all."""
BROKEN = "No verdict: a row lies above its ceiling, so no figure of this run can be relied on."
NOTHING = "No verdict: no row with head motion was compared with No-Traj."


@dataclass(frozen=True)
class DerivedVerdict:
    """What the run says of its question."""

    state: Effect
    """`helps` and `hurts`: the interval excludes zero; `nothing`: there is none, or a model is not trained."""
    text: str
    judged: Metric | None = None
    """The difference that decides."""

    def json(self) -> JsonValue:
        """Return the sentence, and which difference decided."""
        m = self.judged
        judged: JsonValue = None if m is None else {"variant": m.variant, "metric": m.metric}
        return {"state": self.state, "text": self.text, "judged": judged}


def opening_table(results: Results, *, has_heads: bool) -> list[GroupedTable[ResultCell]]:
    """Return the main rows, mean of the horizons, in the columns that a first look needs; without figures none."""
    columns = OVERALL if has_heads else OPENING
    title = "The main rows, mean of the horizons"
    table = build_table("opening", title, results, with_role("main"), columns, poolings=("plain",))
    return [table] if table.groups else []


def verdict_of(
    results: Results, *, simulated: bool, has_heads: bool, is_broken: bool, gate: Sequence[GateRow] = ()
) -> DerivedVerdict:
    """Derive the verdict; `has_heads`: class heads rank the labels, so that the decoded sequence is judged."""
    if is_broken:
        return DerivedVerdict("nothing", BROKEN)
    metric = JUDGED_BY_HEADS if has_heads else JUDGED
    gains = {
        m.variant: m
        for m in results.metrics
        if (m.reference, m.pooling, m.metric) == (REFERENCE, "plain", metric) and not method(m.variant).anticipates
    }
    asked = _asked(gains)
    if asked is None:
        return DerivedVerdict("nothing", NOTHING)
    state = _state(gains[asked], results)
    where = "In this simulated world" if simulated else "On the takes that were scored"
    gain = gains[asked]
    value = f"{number(gain.value, is_signed=True)} points of {metric}"
    gained = f"{row_name(asked)} − {row_name(REFERENCE)} = {value} {interval(gain.low, gain.high, is_signed=True)}"
    said = [f"{where}, {_claim(state, asked, results)}: {gained}"]
    said += _rest(gains, asked, results)
    said += _opened(gate) if asked == examined().id else []
    text = f"{'; '.join(said)} (95 % intervals over {_takes(results, gains[asked])})."
    return DerivedVerdict(state, text, gains[asked])


def _opened(gate: Sequence[GateRow]) -> list[str]:
    """State on how many test windows the gate opened; nothing where that is not known."""
    whole = [row for row in gate if row.horizon is None]
    opened, windows = sum(row.n_opened for row in whole), sum(row.n_windows for row in whole)
    if not windows:
        return []
    name, fallback = examined().name, row_name(REFERENCE)
    where = f"{windows:,} test windows" + (f" (each counted for {len(whole)} seeds)" if len(whole) > 1 else "")
    if not opened:
        return [f"the gate never opened on {where}, so {name} is {fallback} here"]
    return [f"the gate opened on {opened:,} of {where}, on the others {name} is {fallback}"]


def _takes(results: Results, gain: Metric) -> str:
    """Count the test takes of a mean over the horizons: all, and those of the horizon that has the fewest."""
    every = results.get(gain.variant, gain.reference, "sample", gain.metric)
    n_takes = gain.n_takes if every is None else every.n_takes
    fewest = f", {gain.n_takes} at the horizon with the fewest" if gain.n_takes < n_takes else ""
    return f"{n_takes} test takes{fewest}"


def with_faults(verdict: DerivedVerdict, judgements: Sequence[Judgement]) -> DerivedVerdict:
    """Return the verdict, followed by the checks whose failure speaks of a fault, where any of them fails."""
    failed = [f"{j.check} ({j.detail})" for j in judgements if j.verdict == "fails" and j.check.startswith(FAULTS)]
    if not failed:
        return verdict
    return replace(verdict, text=f"{verdict.text} This run FAILS its own check {'; and '.join(failed)}.")


def _asked(gains: dict[str, Metric]) -> str | None:
    """Return the row that answers the question."""
    main = [one for one in with_role("main") if not method(one).uses_the_truth]
    return next((one for one in (examined().id, *main) if one in gains), None)


def _state(gain: Metric, results: Results) -> Effect:
    """Judge a difference by its interval; infinite ends, and models that are not trained, say nothing."""
    if {gain.variant, REFERENCE} & results.undertrained or gain.low == float("-inf"):
        return "nothing"
    return "undecided" if gain.low <= 0 <= gain.high else "helps" if gain.value > 0 else "hurts"


def _claim(state: Effect, asked: str, results: Results) -> str:
    """Word the state."""
    subject = "a retrieved trajectory" if method(asked).follows else row_name(asked)
    weak = [row_name(one) for one in (asked, REFERENCE) if one in results.undertrained]
    reason = f"{' and '.join(weak)} UNDERTRAINED" if weak else "too few takes for an interval"
    return {
        "helps": f"{subject} helps",
        "hurts": f"{subject} hurts",
        "undecided": f"no effect of {subject} is shown",
        "nothing": f"nothing can be said of {subject} ({reason})",
    }[state]


def _rest(gains: dict[str, Metric], asked: str, results: Results) -> Sequence[str]:
    """State what the true motion adds, and which other row is the best of those that are not told the truth."""
    trained = {one: m for one, m in gains.items() if one not in results.undertrained}
    told = [one.id for one in METHODS if one.id in trained and one.role == "main" and one.uses_the_truth]
    free = [one for one in trained if not method(one).uses_the_truth]
    said = [
        f"the window’s own true motion ({row_name(one)}) changes {row_name(REFERENCE)} by "
        f"{number(trained[one].value, is_signed=True)} {interval(trained[one].low, trained[one].high, is_signed=True)}"
        for one in told
    ]
    best = max(free, key=lambda one: trained[one].value, default=asked)
    if best != asked:
        gain = trained[best]
        said.append(
            f"best of the rows that are not told the truth is {row_name(best)}, "
            f"{number(gain.value, is_signed=True)} {interval(gain.low, gain.high, is_signed=True)}"
        )
    return said
