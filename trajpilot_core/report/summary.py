"""The report in a few lines: Markdown for the UI, and the main table as text for the terminal."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from schemas.arrow import rows_of
from schemas.events import ShotScore
from schemas.poses import PoseScore
from schemas.results import Ceiling, GateRow, Judgement, Metric
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.evaluation.trained_rows import FLOORS, JUDGED, JUDGED_BY_HEADS
from trajpilot_core.incoming import literal
from trajpilot_core.methods import method
from trajpilot_core.methods.plugged import listed
from trajpilot_core.metrics import METRICS
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS
from trajpilot_core.report import outcome_page, pose_page
from trajpilot_core.report.action_page import DECIDES, ActionResults, action_results
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.tables.results import Results, TableSpec, build_table, results_of
from trajpilot_core.report.tables.table import DAGGER, LEGEND, NOTHING, SIGNS, Table
from trajpilot_core.report.verdict import opening_table, story_of, verdict_of

NEXT_TO_IT = "Next to it: report.json, LaTeX tables, and in `tables/` the tables that it shows as Parquet."


def summary(committed: Committed, address: str) -> str:
    """Return the summary of the report whose report.html has that address.

    Raises:
        InputError: a plugin whose row was evaluated is gone.
        StoreError: the evaluation has no output, or it is damaged.
    """
    if not spec_of(committed.config.ingest.corpus).has_plans:
        of_actions = _actions(committed)
        tables = [table.markdown().strip() for table in of_actions.tables()]
        return _page(committed, address, NEXT_TO_IT, *tables, _listed(of_actions.judgements))
    with listed(committed.config.evaluation):
        results, judgements = _results(committed)
        ceilings = rows_of(Ceiling, committed.table("evaluation", "ceilings"))
        has_heads = committed.config.predictor.head == "classes"
        verdict = verdict_of(
            results,
            simulated=bool(committed.warning()),
            has_heads=has_heads,
            is_broken=any(row.binding and row.above for row in ceilings),
            gate=rows_of(GateRow, committed.table("evaluation", "gate")),
            judgements=judgements,
        )
        parts = _headline(results, has_heads=has_heads)
        demo = [j for j in judgements if j.check.startswith("demo: ")]
        if demo:
            rest = [j for j in judgements if j not in demo]
            good = f"{sum(j.verdict == 'holds' for j in rest)} of {len(rest)} other checks hold; the report has all."
            parts += ["### What the demo must show", _listed(demo), good]
        note = f"{NEXT_TO_IT} Predictions are among them."
        return _page(committed, address, note, *parts, before=literal(verdict.text))


def _listed(judgements: Sequence[Judgement]) -> str:
    """Return a list of checks."""
    lines = ((SIGNS[j.verdict], literal(j.check.removeprefix("demo: ")), j.verdict) for j in judgements)
    return "\n".join(f"- {sign} {check}: **{verdict}**" for sign, check, verdict in lines)


def _page(committed: Committed, address: str, *parts: str, before: str = "") -> str:
    """Join the warning, `before`, the address of the page and the parts."""
    warning = committed.warning()
    head = [f"**{warning}**"] if warning else []
    return "\n\n".join([*head, *([before] if before else []), f"Full page: {literal(address)}", *parts]) + "\n"


def _results(committed: Committed) -> tuple[Results, list[Judgement]]:
    judgements = rows_of(Judgement, committed.table("evaluation", "judgements"))
    return results_of(rows_of(Metric, committed.table("evaluation", "metrics")), judgements), judgements


def _actions(committed: Committed) -> ActionResults:
    """Return the results of a corpus without plans: of the probe, and of its rows with a token."""

    def table(name: str) -> pa.Table:
        return committed.table("action_token" if name.startswith("token_") else "probe", name)

    about = committed.about("probe", "probe_models")
    return action_results(table, about, has_token=committed.config.action_token.is_asked)


def _headline(results: Results, *, has_heads: bool) -> list[str]:
    """Return the rows of the first screen, mean over the horizons."""
    opening = opening_table(results, has_heads=has_heads)
    if not opening:
        return ["No row was scored."]
    shown, rows = opening[0].header[1:], opening[0].rows
    meaning = "; ".join(f"{name}: {METRICS[name].description}" for name in shown)
    table = Table("", ("row", *(f"{name}, %" for name in shown)), rows).markdown().strip()
    legend = [LEGEND] if DAGGER in table else []
    return ["### Main rows, mean over the horizons, with 95 % intervals over test takes", table, meaning + ".", *legend]


def _outcome_summary(committed: Committed, address: str) -> str:
    table, judged = _shots(committed)
    good = f"{sum(judgement.verdict == 'holds' for judgement in judged)} of {len(judged)} checks hold."
    table = replace(table, title="Outcome of test shots, percent, mean of the seeds, with intervals over takes")
    return _page(committed, address, table.markdown().strip(), good)


def _shots(committed: Committed) -> tuple[Table, list[Judgement]]:
    judged = rows_of(Judgement, committed.table("outcome", "outcome_judgements"))
    return outcome_page.main_table(rows_of(ShotScore, committed.table("outcome", "shot_scores")), judged), judged


def _poses(committed: Committed) -> Table:
    scores = rows_of(PoseScore, committed.table("pose_sources", "pose_scores"))
    judged = rows_of(Judgement, committed.table("pose_sources", "pose_judgements"))
    is_simulated, is_closed = bool(committed.warning()), committed.config.predictor.head == "classes"
    results = pose_page.PoseResults(scores, judged, (), is_simulated=is_simulated, is_closed=is_closed)
    return pose_page.main_table(results)


SUMMARIES: Mapping[str, Callable[[Committed, str], str]] = {
    "report": summary,
    "outcome": _outcome_summary,
    "pose_sources": lambda committed, address: _page(committed, address, _poses(committed).markdown()),
}
"""Stage that writes pages -> the summary of what it wrote."""


def main_figures(committed: Committed, stage: str) -> list[str]:
    """Return the main table of a stage that writes pages, as lines of text: one figure with its interval per row.

    Raises:
        InputError: a plugin whose row was evaluated is gone.
        StoreError: the stage has no output, or it is damaged.
    """
    table = MAIN_TABLES[stage](committed)
    width = max((len(str(row[0])) for row in table.rows), default=0)
    return [table.title, *(f"  {row[0]!s:<{width}}  {row[1]}" for row in table.rows)] if table.rows else []


def _main_rows(committed: Committed) -> Table:
    """Return the rows of the first screen and the floor, in the metric that decides."""
    if not spec_of(committed.config.ingest.corpus).has_plans:
        at = 2 + list(EPIC_METRICS).index(DECIDES)
        lines = tuple(
            (row[1], row[at]) for table in _actions(committed).tables()[:1] for row in table.rows if row[0] == "overall"
        )
        return Table(f"{DECIDES}, %, class-mean recall of the best five", ("row", DECIDES), lines)
    with listed(committed.config.evaluation):
        results, _ = _results(committed)
        metric = JUDGED_BY_HEADS if committed.config.predictor.head == "classes" else JUDGED
        story = story_of(results.variants())
        floors = [row for row in FLOORS if method(row).anticipates == method(story.reference).anticipates]
        overview = build_table(results, TableSpec("main", "", (*story.rows, floors[0]), (metric,), ("plain",)))
    title = f"{metric}, %, mean over the horizons, with 95 % intervals over test takes"
    return Table(title, ("row", metric), overview.rows)


def _accuracies(committed: Committed) -> Table:
    """Return the accuracy of the rows of shot outcomes that were run."""
    at = 2 + list(outcome_page.HEADERS).index("accuracy")
    rows = tuple((row[0], row[at]) for row in _shots(committed)[0].rows if row[at] != NOTHING)
    return Table("Accuracy of shot outcomes, %", ("row", ""), rows)


MAIN_TABLES: Mapping[str, Callable[[Committed], Table]] = {
    "report": _main_rows,
    "outcome": _accuracies,
    "pose_sources": _poses,
}
