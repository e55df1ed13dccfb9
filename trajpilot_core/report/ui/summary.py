"""The report in a few lines: Markdown for the UI, and the main table as text for the terminal."""

from collections.abc import Callable, Mapping

from schemas.arrow import rows_of
from schemas.events import OutcomeMetric, ProbeScore, ShotScore, TokenContrast
from schemas.poses import PoseScore
from schemas.results import Ceiling, GateRow, Judgement, Metric
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.evaluation.shot_rows import MODELS as SHOT_MODELS
from trajpilot_core.evaluation.shot_rows import SHOT_NAMES, not_run
from trajpilot_core.evaluation.trained_rows import FLOORS, JUDGED, JUDGED_BY_HEADS, undertrained_rows
from trajpilot_core.incoming import literal
from trajpilot_core.methods import method
from trajpilot_core.methods.plugged import listed
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS
from trajpilot_core.report.action_page import DECIDES, MODELS, learned_rows, result_tables
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.outcome_page import HEADERS, value_of
from trajpilot_core.report.page import SIGNS
from trajpilot_core.report.pose_page import PoseResults, main_table
from trajpilot_core.report.tables.names import LEGEND, descriptions, marked
from trajpilot_core.report.tables.results import Results, build_table, results_of
from trajpilot_core.report.tables.table import Table
from trajpilot_core.report.tables.tokens import TokenResults, classes_of, token_tables
from trajpilot_core.report.verdict import opening_table, story_of, verdict_of

NEXT_TO_IT = "Next to it: report.json, LaTeX tables, and in `tables/` the tables that it shows as Parquet."
SHOWN: tuple[OutcomeMetric, ...] = ("accuracy", "auc")


def summary(committed: Committed, address: str) -> str:
    """Return the summary of the report whose report.html has that address.

    Raises:
        InputError: a plugin whose row was evaluated is gone.
        StoreError: the evaluation has no output, or it is damaged.
    """
    if not spec_of(committed.config.ingest.corpus).has_plans:
        tables, judged = _actions(committed)
        checks = "\n".join(f"- {SIGNS[j.verdict]} {literal(j.check)}: **{j.verdict}**" for j in judged)
        return _page(committed, address, NEXT_TO_IT, *(table.markdown().strip() for table in tables), checks)
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
            lines = [f"- {SIGNS[j.verdict]} {literal(j.check.removeprefix('demo: '))}: **{j.verdict}**" for j in demo]
            rest = [j for j in judgements if j not in demo]
            good = f"{sum(j.verdict == 'holds' for j in rest)} of {len(rest)} other checks hold; the report has all."
            parts += ["### What the demo must show", "\n".join(lines), good]
        note = f"{NEXT_TO_IT} Predictions are among them."
        return _page(committed, address, note, *parts, before=literal(verdict.text))


def _page(committed: Committed, address: str, *parts: str, before: str = "") -> str:
    """Join the warning, `before`, the address of the page and the parts."""
    warning = committed.warning()
    head = [f"**{warning}**"] if warning else []
    return "\n\n".join([*head, *([before] if before else []), f"Full page: {literal(address)}", *parts]) + "\n"


def _results(committed: Committed) -> tuple[Results, list[Judgement]]:
    judgements = rows_of(Judgement, committed.table("evaluation", "judgements"))
    return results_of(rows_of(Metric, committed.table("evaluation", "metrics")), judgements), judgements


def _actions(committed: Committed) -> tuple[list[Table], list[Judgement]]:
    """Return the tables of a corpus without plans (the probe, its rows with a token), and the checks."""
    classes = classes_of(committed.about("probe", "probe_models"))
    scores = rows_of(ProbeScore, committed.table("probe", "probe_scores"))
    tokens: TokenResults | None = None
    judged = rows_of(Judgement, committed.table("probe", "probe_checks"))
    if committed.config.action_token.is_asked:
        tokens = TokenResults(
            rows_of(ProbeScore, committed.table("action_token", "token_scores")),
            rows_of(TokenContrast, committed.table("action_token", "token_contrasts")),
            rows_of(Judgement, committed.table("action_token", "token_checks")),
        )
        judged += tokens.checks
    judged += learned_rows(scores, tokens)
    weak = undertrained_rows(judged, MODELS)
    return [*result_tables(scores, classes, weak), *token_tables(tokens, classes, weak)], judged


def _headline(results: Results, *, has_heads: bool) -> list[str]:
    """Return the rows of the first screen, mean over the horizons."""
    opening = opening_table(results, has_heads=has_heads)
    if not opening:
        return ["No row was scored."]
    shown, rows = opening[0].metrics, opening[0].groups[0].rows
    meaning = "; ".join(f"{name}: {descriptions()[name]}" for name in shown)
    lines = tuple((row.label, *(f"{cell.text} {cell.bracketed}" for cell in row.cells)) for row in rows)
    table = Table("", ("row", *(f"{name}, %" for name in shown)), lines).markdown().strip()
    legend = [LEGEND] if any(row.is_undertrained for row in rows) else []
    return ["### Main rows, mean over the horizons, with 95 % intervals over test takes", table, meaning + ".", *legend]


def _shots(committed: Committed) -> tuple[Table, list[ShotScore], list[Judgement], bool]:
    """Return the rows of shot outcomes, what they were made from, and whether any does not count as trained."""
    scores = rows_of(ShotScore, committed.table("outcome", "shot_scores"))
    judged = rows_of(Judgement, committed.table("outcome", "outcome_judgements"))
    means = {(score.row, score.metric): score for score in scores if score.seed is None}
    weak = undertrained_rows(judged, SHOT_MODELS)
    rows = tuple(
        (marked(name, row, weak), *(str(value_of(means[row, metric])) for metric in SHOWN))
        for row, name in SHOT_NAMES.items()
        if (row, SHOWN[0]) in means
    )
    return Table("", ("row", *(f"{HEADERS[metric]}, %" for metric in SHOWN)), rows), scores, judged, bool(weak)


def outcome_summary(committed: Committed, address: str) -> str:
    """Return the summary of the pages of shot outcomes whose HTML has that address.

    Raises:
        StoreError: the stage has no output, or it is damaged.
    """
    table, scores, judged, is_weak = _shots(committed)
    return _page(
        committed,
        address,
        "### Outcome of test shots, mean of the seeds, with intervals over takes",
        table.markdown().strip(),
        *([LEGEND] if is_weak else []),
        *not_run(score.row for score in scores),
        f"{sum(judgement.verdict == 'holds' for judgement in judged)} of {len(judged)} checks hold.",
    )


def _poses(committed: Committed) -> PoseResults:
    return PoseResults(
        rows_of(PoseScore, committed.table("pose_sources", "pose_scores")),
        rows_of(Judgement, committed.table("pose_sources", "pose_judgements")),
        (),
        is_simulated=bool(committed.warning()),
        is_closed=committed.config.predictor.head == "classes",
    )


SUMMARIES: Mapping[str, Callable[[Committed, str], str]] = {
    "report": summary,
    "outcome": outcome_summary,
    "pose_sources": lambda committed, address: _page(committed, address, main_table(_poses(committed)).markdown()),
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
        tables, _ = _actions(committed)
        at = 2 + list(EPIC_METRICS).index(DECIDES)
        lines = tuple((row[1], row[at]) for table in tables[:1] for row in table.rows if row[0] == "overall")
        return Table(f"{DECIDES}, %, class-mean recall of the best five", ("row", DECIDES), lines)
    with listed(committed.config.evaluation):
        results, _ = _results(committed)
        metric = JUDGED_BY_HEADS if committed.config.predictor.head == "classes" else JUDGED
        story = story_of(results.variants())
        floors = [row for row in FLOORS if method(row).anticipates == method(story.reference).anticipates]
        overview = build_table("main", "", results, (*story.rows, floors[0]), (metric,), poolings=("plain",))
        rows = tuple(
            (row.label, f"{row.cells[0].text} {row.cells[0].bracketed}") for g in overview.groups for row in g.rows
        )
    return Table(f"{metric}, %, mean over the horizons, with 95 % intervals over test takes", ("row", metric), rows)


MAIN_TABLES: Mapping[str, Callable[[Committed], Table]] = {
    "report": _main_rows,
    "outcome": lambda committed: Table("Accuracy of shot outcomes, %", ("row", ""), _shots(committed)[0].rows),
    "pose_sources": lambda committed: main_table(_poses(committed)),
}
