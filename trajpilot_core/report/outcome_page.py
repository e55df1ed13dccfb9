"""The pages of shot outcomes: HTML, JSON and LaTeX of one run (docs/decisions/outcome.md)."""

from collections.abc import Mapping, Sequence

from schemas.events import CompletedOutcome, OutcomeMetric, ShotContrast, ShotScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.evaluation.event_rows import NO_TOKENS, SHOT_MODELS, SHOT_NAMES, SHOT_ROWS
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.metrics.shots import SHOT_METRICS
from trajpilot_core.paper.published import published_events
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.offline import Page, Section, checks_section, records
from trajpilot_core.report.tables.table import LEGEND, NOTHING, Table, Value, marked, number
from trajpilot_core.report.verdict import comparison

HEADERS: Mapping[OutcomeMetric, str] = {spec.id: spec.name for spec in SHOT_METRICS.values()}
PAPERS: Mapping[str, OutcomeMetric] = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced",
    "made_recall": "made",
    "miss_recall": "missed",
}
"""Metric as the paper's table names it -> as we do."""


def documents(
    scores: Sequence[ShotScore],
    contrasts: Sequence[ShotContrast],
    judgements: Sequence[Judgement],
    curves: Sequence[CurvePoint],
    facts: Sequence[str],
    cfg: CompletedOutcome,
    *,
    is_simulated: bool,
) -> dict[str, bytes]:
    """Return name -> content of every document."""
    tables = (main_table(scores, judgements), _contrast_table(contrasts))
    published = () if is_simulated else (published_table(),)
    where = "a simulated world in the file layout of Ego-Exo4D basketball" if is_simulated else "Ego-Exo4D basketball"
    title = f"Shot outcome on {where}"
    page = Page(
        title,
        WARNING if is_simulated else "Intervals resample takes; with few takes they are wide",
        [
            Section("outcome", "Made or missed", tables[:1], text=main_text(scores, cfg)),
            Section("contrasts", "Differences on the same shots", tables[1:]),
            checks_section(judgements),
            Section("training", "Training", charts=tuple(training_charts([("outcome", curves)]))),
            *([Section("published", "Published values", published)] if published else []),
        ],
        facts,
        comparison(
            (contrast for contrast in contrasts if contrast.seed is None),
            SHOT_NAMES,
            "accuracy",
            undertrained_rows(judgements, SHOT_MODELS),
            judgements,
            is_simulated=is_simulated,
        ),
        is_simulated,
    )
    return page.documents(
        ("outcome.html", "outcome.json", "outcome.tex"),
        tables,
        f"{title}; {'SIMULATED, not comparable with published numbers; ' if is_simulated else ''}in percent",
        scores=records(scores),
        contrasts=records(contrasts),
        judgements=records(judgements),
        published=[table.json() for table in published],
    )


def main_table(scores: Sequence[ShotScore], judgements: Sequence[Judgement]) -> Table:
    """Return every metric of every row, mean over the seeds; rows that the run lacks are marked."""
    weak = undertrained_rows(judgements, SHOT_MODELS)
    values = {
        (score.row, score.metric): Value(score.value, score.low, score.high) for score in scores if score.seed is None
    }
    lines = tuple(
        (
            marked(method.name, method.id, weak),
            method.given,
            *(values.get((method.id, metric), NOTHING) for metric in SHOT_METRICS),
        )
        for method in SHOT_ROWS
    )
    without = [] if any(score.row == "attentive_probe" for score in scores) else [NO_TOKENS]
    note = "; ".join([*without, *([LEGEND] if weak else [])])
    return Table("Outcome of shots", ("row", "is given", *HEADERS.values()), lines, note)


def main_text(scores: Sequence[ShotScore], cfg: CompletedOutcome) -> str:
    """State how to read the table."""
    n = max((score.n_shots for score in scores), default=0)
    takes = max((score.n_takes for score in scores), default=0)
    level = number(100 * cfg.confidence, 0)
    return (
        f"{n} test shots of {takes} takes. A shot counts as predicted to go in from a probability of 0.5; AUC needs no "
        f"threshold. Brackets: {level} % intervals over the {takes} takes, mean of the seeds. If both outcomes are "
        "equally frequent, a row that knows nothing reaches 50. The last epoch is kept; dev shots select the gate's "
        "threshold and one temperature, test shots select nothing."
    )


def _contrast_table(contrasts: Sequence[ShotContrast]) -> Table:
    lines = tuple(
        (
            f"{SHOT_NAMES[pair.row]} − {SHOT_NAMES[pair.against]}",
            Value(pair.difference, pair.low, pair.high, is_signed=True),
        )
        for pair in contrasts
        if pair.seed is None
    )
    return Table("Differences", ("difference", "points"), lines, "Points of accuracy, intervals over takes.")


def published_table() -> Table:
    """Return the paper's table."""
    rows = published_events("basketball_shot_outcome", PAPERS)
    shown = tuple((row, *(f"{values[m]:.2f}" for m in HEADERS if m in values)) for row, values in rows.items())
    header = tuple(name for metric, name in HEADERS.items() if metric != "auc")
    return Table("Published (arXiv 2605.20388), one seed, no intervals", ("row", *header), shown)
