"""The report in a few lines of Markdown: the main rows, what the run must show, and where the pages lie."""

from collections.abc import Callable, Mapping, Sequence

from schemas.action_token import TokenContrast
from schemas.arrow import rows_of
from schemas.outcome import OutcomeMetric, ShotScore
from schemas.poses import PoseScore
from schemas.probe import ProbeScore
from schemas.results import Ceiling, GateRow, Judgement, Metric
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.evaluation.shot_rows import MODELS as SHOT_MODELS
from trajpilot_core.evaluation.shot_rows import SHOT_NAMES, not_run
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.markdown_escape import literal
from trajpilot_core.methods import charted
from trajpilot_core.methods.plugged import listed
from trajpilot_core.report.action_page import MODELS, learned_rows, result_tables
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.outcome_page import HEADERS, value_of
from trajpilot_core.report.page import SIGNS
from trajpilot_core.report.pose_page import PoseResults, checks_table, main_table
from trajpilot_core.report.tables.closed import OVERALL
from trajpilot_core.report.tables.names import LEGEND, descriptions, marked
from trajpilot_core.report.tables.results import Results, build_table, results_of
from trajpilot_core.report.tables.table import Table
from trajpilot_core.report.tables.tokens import TokenResults, classes_of, token_tables
from trajpilot_core.report.verdict import OPENING, verdict_of, with_faults

NEXT_TO_IT = "Next to it: report.json, LaTeX tables, and in `tables/` the tables that it shows as Parquet."
GROUPS = {"demo": "What the demo must show", "claim": "The paper’s claims, as seen here"}
"""Groups of checks; the first that ran is shown in full."""


def summary(committed: Committed, address: str) -> str:
    """Return the summary of the report whose report.html has that address.

    Raises:
        InputError: a plugin whose row was evaluated is gone.
        StoreError: the evaluation has no output, or it is damaged.
    """
    if not spec_of(committed.config.ingest.corpus).has_plans:
        return _alone(committed, address)
    with listed(committed.config.evaluation):
        return _planned(committed, address)


def _planned(committed: Committed, address: str) -> str:
    """The summary of a corpus with plans: the verdict, the main rows, the checks."""
    judgements = rows_of(Judgement, committed.table("evaluation", "judgements"))
    results = results_of(rows_of(Metric, committed.table("evaluation", "metrics")), judgements)
    warning = committed.warning()
    ceilings = rows_of(Ceiling, committed.table("evaluation", "ceilings"))
    is_broken = any(row.binding and row.above for row in ceilings)
    has_heads = committed.config.predictor.head == "classes"
    gate = rows_of(GateRow, committed.table("evaluation", "gate"))
    said = with_faults(
        verdict_of(results, simulated=bool(warning), has_heads=has_heads, is_broken=is_broken, gate=gate), judgements
    )
    parts = [f"**{warning}**"] if warning else []
    parts += [literal(said.text), f"The whole report: {literal(address)}", f"{NEXT_TO_IT} Predictions are among them."]
    shown = OVERALL if has_heads else OPENING
    return "\n\n".join([*parts, *_headline(results, shown), *_checks(judgements)]) + "\n"


def _alone(committed: Committed, address: str) -> str:
    """Return the summary of a corpus without plans: tables of the probe and of its rows with a token, the checks."""
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
    tables = [*result_tables(scores, classes, weak), *token_tables(tokens, classes, weak)]
    warning = committed.warning()
    parts = [f"**{warning}**"] if warning else []
    parts += [f"The whole report: {literal(address)}", NEXT_TO_IT]
    checks = "\n".join(f"- {SIGNS[j.verdict]} {literal(j.check)}: **{j.verdict}**" for j in judged)
    return "\n\n".join([*parts, *(table.markdown().strip() for table in tables), checks]) + "\n"


def _headline(results: Results, shown: Sequence[str]) -> list[str]:
    """The main rows, and those of plugins, over all horizons."""
    found = build_table("overview", "", results, charted(), shown, poolings=("plain",))
    if not found.groups:
        return ["No row was scored."]
    meaning = "; ".join(f"{name}: {descriptions()[name]}" for name in shown)
    rows = tuple((row.label, *(f"{cell.text} {cell.bracketed}" for cell in row.cells)) for row in found.groups[0].rows)
    table = Table("", ("row", *(f"{name}, %" for name in shown)), rows).markdown().strip()
    marked = [LEGEND] if any(row.is_undertrained for row in found.groups[0].rows) else []
    return ["### Main rows, mean over the horizons, with 95 % intervals over test takes", table, meaning + ".", *marked]


def _checks(judgements: Sequence[Judgement]) -> list[str]:
    """The first group of checks that ran, and how many of the others hold."""
    for prefix, title in GROUPS.items():
        judged = [j for j in judgements if j.check.startswith(f"{prefix}: ")]
        if judged:
            lines = [f"- {SIGNS[j.verdict]} {literal(j.check.split(': ', 1)[1])}: **{j.verdict}**" for j in judged]
            rest = [j for j in judgements if j not in judged]
            good = sum(j.verdict == "holds" for j in rest)
            return [f"### {title}", "\n".join(lines), f"{good} of {len(rest)} other checks hold; the report has all."]
    return []


SHOWN: tuple[OutcomeMetric, ...] = ("accuracy", "auc")


def outcome_summary(committed: Committed, address: str) -> str:
    """Return the summary of the pages whose HTML has that address.

    Raises:
        StoreError: the stage has no output, or it is damaged.
    """
    scores = rows_of(ShotScore, committed.table("outcome", "shot_scores"))
    judged = rows_of(Judgement, committed.table("outcome", "outcome_judgements"))
    found = {(one.row, one.metric): one for one in scores if one.seed is None}
    weak = undertrained_rows(judged, SHOT_MODELS)
    rows = tuple(
        (marked(name, row, weak), *(str(value_of(found[row, metric])) for metric in SHOWN))
        for row, name in SHOT_NAMES.items()
        if (row, SHOWN[0]) in found
    )
    table = Table("", ("row", *(f"{HEADERS[metric]}, %" for metric in SHOWN)), rows).markdown().strip()
    good = sum(one.verdict == "holds" for one in judged)
    warning = committed.warning()
    parts = [f"**{warning}**"] if warning else []
    parts += [
        f"The whole page: {literal(address)}",
        "### Outcome of test shots, mean of the seeds, with intervals over takes",
        table,
        *([LEGEND] if weak else []),
        *not_run(one.row for one in scores),
        f"{good} of {len(judged)} checks hold.",
    ]
    return "\n\n".join(parts) + "\n"


def poses_summary(committed: Committed, address: str) -> str:
    """Return the summary of the pages whose HTML has that address.

    Raises:
        StoreError: the stage has no output, or it is damaged.
    """
    warning = committed.warning()
    results = PoseResults(
        rows_of(PoseScore, committed.table("pose_sources", "pose_scores")),
        rows_of(Judgement, committed.table("pose_sources", "pose_judgements")),
        (),
        is_simulated=bool(warning),
        is_closed=committed.config.predictor.head == "classes",
    )
    parts = [f"**{warning}**"] if warning else []
    parts += [f"The whole page: {literal(address)}", main_table(results).markdown(), checks_table(results).markdown()]
    return "\n\n".join(parts) + "\n"


SUMMARIES: Mapping[str, Callable[[Committed, str], str]] = {
    "report": summary,
    "outcome": outcome_summary,
    "pose_sources": poses_summary,
}
"""Stage that writes pages -> the summary of what it wrote."""
