"""The question of a run, and the first sentence of its report.

The rows of the run determine the question, so each recipe has its own first screen. The sentence is derived from paired
differences and their intervals; "best" is the largest plain mean over the horizons. Source: docs/decisions/report.md.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from schemas.events import ShotContrast, TokenContrast
from schemas.planners import PLANNERS
from schemas.results import Judgement
from trajpilot_core.evaluation.trained_rows import JUDGED, JUDGED_BY_HEADS, ROW
from trajpilot_core.methods import METHODS, anticipation, charted, examined, latent, method, with_role
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.report.tables.results import OVERALL, Results, TableSpec, filled_tables
from trajpilot_core.report.tables.table import Table, interval, number, row_name

AVERAGE = "pool_mean"
"""The control next to the main rows: what their gain is without choosing. Named by hand: the first chart needs this one
question, and another control answers another."""
OPENING = ("M@1", "MSeq")
"""Columns of the first table where labels are ranked by their texts; class heads have those of the paper's closed
table."""
FAULTS = ("identity: ", "leak: ", "demo: ")
"""Prefixes of the checks whose failure is a fault; with a broken ceiling there is no verdict at all."""
BROKEN = "No verdict: a row is above its ceiling, so no figure of this run can be relied on."
NOTHING = "No verdict: no row with head motion was compared with No-Traj."


@dataclass(frozen=True)
class Story:
    """A comparison: which rows the first screen shows, and which difference answers the question."""

    question: str
    rows: tuple[str, ...]
    """Rows of the first table, in the order of the tables."""
    candidates: tuple[str, ...]
    """Rows that may answer the question: the first one that was compared with the reference does."""
    reference: str = REFERENCE
    picks_best: bool = False
    """The best candidate answers, not the first."""

    @property
    def charted(self) -> list[str]:
        """Rows whose difference to the reference the first chart shows."""
        shown = {*self.rows, AVERAGE} if self.reference == REFERENCE else {*self.rows}
        return [row.id for row in METHODS if row.id in shown - {self.reference}]


def story_of(variants: Collection[str]) -> Story:
    """Return the question of a run that scored these rows."""
    ids = set(variants)
    if latent.CEM.id in ids and latent.NO_TRAJ.id in ids:
        rows = tuple(row.id for row in latent.ROWS)
        searches = tuple(row for row in rows if not method(row).uses_the_truth and row != latent.NO_TRAJ.id)
        question = "Planning in the encoder’s latent space: does searching for a head motion help?"
        return Story(question, rows, searches, latent.NO_TRAJ.id)
    if anticipation.NO_TRAJ.id in ids:
        rows = tuple(with_role("anticipation"))
        question = "Anticipation: only the first clip is given, no goal. Does a retrieved head motion help?"
        return Story(question, rows, (anticipation.SCORER.id, anticipation.ENDPOINT_TRAJ.id), anticipation.NO_TRAJ.id)
    rows = tuple(charted())
    nets = tuple(planner for planner in PLANNERS if planner in ids)
    if nets:
        question = (
            "The steps between two clips: how do planners of other papers compare with rows that use head motion?"
        )
        return Story(question, rows, nets, picks_best=True)
    main = [row for row in with_role("main") if not method(row).uses_the_truth]
    question = "The steps between two clips: does a retrieved head motion help to predict them?"
    return Story(question, rows, tuple(dict.fromkeys((examined().id, *main))))


Effect = Literal["helps", "hurts", "undecided", "nothing"]


@dataclass(frozen=True)
class DerivedVerdict:
    """The answer of a run to its question."""

    state: Effect
    """`helps` and `hurts`: the interval excludes zero; `nothing`: there is none, or a model is not trained."""
    text: str


def opening_table(results: Results, *, has_heads: bool) -> list[Table]:
    """Return the rows of the story, mean of the horizons, in the columns of the first screen; empty without figures."""
    columns = OVERALL if has_heads else OPENING
    rows = story_of(results.variants()).rows
    return filled_tables(
        results, [TableSpec("opening", "The main rows, mean of the horizons", rows, columns, ("plain",))]
    )


def verdict_of(
    results: Results,
    *,
    simulated: bool,
    has_heads: bool,
    is_broken: bool,
    judgements: Sequence[Judgement] = (),
) -> DerivedVerdict:
    """Derive the verdict.

    Args:
        has_heads: class heads rank the labels, so the decoded sequence is judged.
        is_broken: a row is above its ceiling.
        judgements: of the run; they name faults and rows below their floors.
    """
    if is_broken:
        return with_faults(DerivedVerdict("nothing", BROKEN), judgements)
    story = story_of(results.variants())
    metric = JUDGED_BY_HEADS if has_heads else JUDGED
    gains = {
        m.variant: m
        for m in results.metrics
        if (m.reference, m.pooling, m.metric) == (story.reference, "plain", metric)
        and method(m.variant).anticipates == method(story.reference).anticipates
    }
    candidates = [row for row in story.candidates if row in gains]
    if not candidates:
        return with_faults(DerivedVerdict("nothing", NOTHING), judgements)
    if story.picks_best:
        candidates.sort(key=lambda row: (row in results.undertrained, -gains[row].value))
    decisive, gain = candidates[0], gains[candidates[0]]
    weak = {decisive, story.reference} & results.undertrained
    state = state_of(gain.value, gain.low, gain.high, is_weak=bool(weak))
    value = f"{number(gain.value, is_signed=True)} points of {metric}"
    against = row_name(story.reference)
    difference = f"{row_name(decisive)} − {against} = {value} {interval(gain.low, gain.high, is_signed=True)}"
    below = [row_name(row) for row in (story.reference, decisive) if row in weak and row in below_floors(judgements)]
    parts = [f"{_claim(state, decisive, story, [row_name(row) for row in sorted(weak)])}: {difference}"]
    free = [row for row in gains if row not in results.undertrained and not method(row).uses_the_truth]
    best = max(free, key=lambda row: gains[row].value, default=decisive)
    if best != decisive:
        m = gains[best]
        other = f"{number(m.value, is_signed=True)} {interval(m.low, m.high, is_signed=True)}"
        parts.append(f"best of the rows that do not see the truth is {row_name(best)}, {other}")
    text = f"{'; '.join(parts)} (95 % intervals over {gain.n_takes} test takes)."
    return with_faults(DerivedVerdict(state, placed(text, below, is_simulated=simulated)), judgements)


def state_of(value: float, low: float, high: float, *, is_weak: bool) -> Effect:
    """Judge a difference by its interval; models that are not trained, and infinite ends, decide nothing."""
    if is_weak or not math.isfinite(low):
        return "nothing"
    return "undecided" if low <= 0 <= high else "helps" if value > 0 else "hurts"


def worded(state: Effect, subject: str, weak: Collection[str]) -> str:
    """Put the state of a comparison into words; `weak`: names of its rows that do not count as trained."""
    reason = f"{' and '.join(weak)} UNDERTRAINED" if weak else "too few takes for an interval"
    return {
        "helps": f"{subject} helps",
        "hurts": f"{subject} hurts",
        "undecided": f"no effect of {subject} is shown",
        "nothing": f"nothing can be said of {subject} ({reason})",
    }[state]


def comparison(
    contrasts: Iterable[ShotContrast | TokenContrast],
    names: Mapping[str, str],
    metric: str,
    weak: Collection[str],
    judgements: Sequence[Judgement],
    *,
    is_simulated: bool,
) -> str:
    """Return the verdict of a page of events, Scorer against No-Traj on the same test events; empty without both.

    `names`: row -> its printed name; `weak`: rows that do not count as trained.
    """
    gain = next((c for c in contrasts if (c.row, c.against) == ("scorer", "no_traj")), None)
    if gain is None:
        return ""
    sides = (gain.against, gain.row)
    untrained = [names[row] for row in sides if row in weak]
    below = [names[row] for row in sides if row in below_floors(judgements)]
    state = state_of(gain.difference, gain.low, gain.high, is_weak=bool(untrained))
    text = (
        f"{worded(state, 'a retrieved trajectory', untrained)}: {names[gain.row]} − {names[gain.against]} = "
        f"{number(gain.difference, is_signed=True)} points of {metric} "
        f"{interval(gain.low, gain.high, is_signed=True)}."
    )
    return placed(text, below, is_simulated=is_simulated)


def below_floors(judgements: Sequence[Judgement]) -> frozenset[str]:
    """Return the learned rows that are not above every floor of their table."""
    return frozenset(j.check.removeprefix(ROW) for j in judgements if j.check.startswith(ROW) and j.verdict != "holds")


def placed(text: str, below: Collection[str], *, is_simulated: bool, unit: str = "takes") -> str:
    """Return a sentence with what was scored in front; `below`: learned rows that are not above their floors."""
    if not is_simulated:
        return f"On the {unit} that were scored, {text}"
    verb = "is" if len(below) == 1 else "are"
    too_small = (
        f"This simulated world is too small to learn in: {' and '.join(below)} {verb} not above the floors. "
        "The page only shows that the parts run. "
    )
    return f"{too_small if below else ''}In this simulated world, {text}"


def with_faults(verdict: DerivedVerdict, judgements: Sequence[Judgement]) -> DerivedVerdict:
    """Return the verdict, followed by the failed checks that are faults."""
    failed = [f"{j.check} ({j.detail})" for j in judgements if j.verdict == "fails" and j.check.startswith(FAULTS)]
    if not failed:
        return verdict
    return replace(verdict, text=f"{verdict.text} This run FAILS its own check {'; and '.join(failed)}.")


def _claim(state: Effect, row: str, story: Story, weak: Sequence[str]) -> str:
    if not story.picks_best:
        return worded(state, "a retrieved trajectory" if method(row).follows else row_name(row), weak)
    if state == "nothing":
        return worded(state, "the planners of other papers", weak)
    verb = {"helps": "is above", "hurts": "is below", "undecided": "is not shown to differ from"}[state]
    return f"{row_name(row)}, the best planner of another paper, {verb} {row_name(story.reference)}"
