"""The pages of shot outcomes: HTML, JSON and LaTeX of one run (docs/decisions/outcome.md)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from schemas.events import CompletedOutcome, OutcomeMetric, ShotContrast, ShotScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.evaluation.shot_rows import METHODS, MODELS, SHOT_NAMES, not_run
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.metrics.shots import SHOT_METRICS
from trajpilot_core.paper.published import table_rows
from trajpilot_core.report import json_report
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.offline import Section, TablePage, checks_table, latex_file
from trajpilot_core.report.tables.names import LEGEND, marked
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value, number
from trajpilot_core.report.verdict import below_floors, comparison

HEADERS: Mapping[OutcomeMetric, str] = {spec.id: spec.name for spec in SHOT_METRICS.values()}
PUBLISHED = "basketball_shot_outcome"
PAPERS: Mapping[str, OutcomeMetric] = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced",
    "made_recall": "made",
    "miss_recall": "missed",
}
"""Metric as the paper's table names it -> as we do."""
PUBLISHED_P = (
    "Derived: McNemar's p that the published counts allow, over all ways in which two rows can differ: "
    "scorer − no_traj 0.0064 to 0.011, scorer − attentive_probe 0.0072 to 0.060, oracle − scorer 0.0039 to 0.064."
)
"""Computed in tests/core/evaluation/test_shot_scores.py."""


@dataclass(frozen=True)
class OutcomeResults:
    """What the pages show."""

    scores: Sequence[ShotScore]
    contrasts: Sequence[ShotContrast]
    judgements: Sequence[Judgement]
    curves: Sequence[CurvePoint]
    facts: Sequence[str]
    is_simulated: bool
    cfg: CompletedOutcome

    def of(self, row: str, metric: str, seed: int | None) -> ShotScore | None:
        """Return one figure; None where there is none."""
        scores = (score for score in self.scores if (score.row, score.metric, score.seed) == (row, metric, seed))
        return next(scores, None)

    @property
    def undertrained(self) -> frozenset[str]:
        """Rows that do not count as trained."""
        return undertrained_rows(self.judgements, MODELS)


def documents(results: OutcomeResults) -> dict[str, bytes]:
    """Return name -> content of every document."""
    tables = (main_table(results), seed_table(results), contrast_table(results))
    published = published_tables(results)
    title = "Shot outcome on " + (
        "a simulated world in the file layout of Ego-Exo4D basketball"
        if results.is_simulated
        else "Ego-Exo4D basketball"
    )
    banner = WARNING if results.is_simulated else "Intervals resample takes; with few takes they are wide"
    sections = [
        Section("outcome", "Made or missed", tables[:1], text=main_text(results)),
        Section("seeds", "Each seed", tables[1:2]),
        Section("contrasts", "Differences on the same shots", tables[2:]),
        Section("checks", "Checks", (checks_table(results.judgements),)),
        Section("training", "Training", charts=tuple(training_charts([("outcome", results.curves)]))),
        *([Section("published", "Published values", tuple(published))] if published else []),
    ]
    note = f"{title}; {'SIMULATED, not comparable with published numbers; ' if results.is_simulated else ''}in percent"
    document = TablePage(title, banner, sections, results.facts, verdict(results), results.is_simulated)
    content = document.json(
        scores=json_report.records(results.scores),
        contrasts=json_report.records(results.contrasts),
        judgements=json_report.records(results.judgements),
        not_run=[*not_run(score.row for score in results.scores)],
        published=[table.json() for table in published],
    )
    return {"outcome.html": document.html(), "outcome.json": content, "outcome.tex": latex_file(tables, note)}


def verdict(results: OutcomeResults) -> str:
    """Return whether the Scorer predicts the outcome better than No-Traj; empty without both rows."""
    pairs = (c for c in results.contrasts if (c.row, c.against, c.seed) == ("scorer", "no_traj", None))
    gain = next(pairs, None)
    if gain is None:
        return ""
    return comparison(
        (SHOT_NAMES[gain.row], SHOT_NAMES[gain.against]),
        "accuracy",
        (gain.difference, gain.low, gain.high),
        [SHOT_NAMES[row] for row in (gain.against, gain.row) if row in results.undertrained],
        [SHOT_NAMES[row] for row in (gain.against, gain.row) if row in below_floors(results.judgements)],
        is_simulated=results.is_simulated,
    )


def main_table(results: OutcomeResults) -> Table:
    """Return every metric of every row, mean over the seeds; rows that the run lacks are marked."""
    weak = results.undertrained
    lines: list[tuple[Cell, ...]] = []
    for method in METHODS:
        scores = [results.of(method.id, metric, None) for metric in SHOT_METRICS]
        cells = tuple(NOTHING if score is None else value_of(score) for score in scores)
        lines.append((marked(method.name, method.id, weak), method.given, *cells))
    note = "; ".join([*not_run(score.row for score in results.scores), *([LEGEND] if weak else [])])
    return Table("Outcome of shots", ("row", "is given", *HEADERS.values()), tuple(lines), note)


def value_of(score: ShotScore) -> Value:
    """Return a figure with its interval over takes."""
    return Value(score.value, score.low, score.high)


def main_text(results: OutcomeResults) -> str:
    """State how to read the table."""
    n = max((score.n_shots for score in results.scores), default=0)
    takes = max((score.n_takes for score in results.scores), default=0)
    level = number(100 * results.cfg.confidence, 0)
    return (
        f"{n} test shots of {takes} takes. A shot counts as predicted to go in from a probability of 0.5; AUC needs no "
        f"threshold. Brackets: {level} % intervals over the {takes} takes, mean of the seeds. If both outcomes are "
        "equally frequent, a row that knows nothing reaches 50. The last epoch is kept; dev shots select the gate's "
        "threshold and one temperature, test shots select nothing."
    )


def seed_table(results: OutcomeResults) -> Table:
    """Return the counts of each seed with Wilson's intervals."""
    weak = results.undertrained
    lines: list[tuple[Cell, ...]] = []
    for method in METHODS:
        for seed in sorted({score.seed for score in results.scores if score.seed is not None}):
            scores = {metric: results.of(method.id, metric, seed) for metric in SHOT_METRICS}
            if scores["accuracy"] is None:
                continue
            cells = tuple(
                "" if score is None else counted(score) for name, score in scores.items() if name != "balanced"
            )
            lines.append((marked(method.name, method.id, weak), str(seed), *cells))
    header = tuple(name for metric, name in HEADERS.items() if metric != "balanced")
    note = "Right of all, and Wilson's interval, which treats the shots of one take as independent: it is too narrow."
    return Table("Counts", ("row", "seed", *header), tuple(lines), note)


def counted(score: ShotScore) -> str:
    """Print a share as a count with Wilson's interval; what is no share as a number."""
    if score.n_right is None or score.wilson_low is None or score.wilson_high is None:
        return number(score.value)
    return f"{score.n_right}/{score.n_shots} [{number(score.wilson_low)}, {number(score.wilson_high)}]"


def contrast_table(results: OutcomeResults) -> Table:
    """Return the paired differences, and McNemar's exact test of each seed."""
    lines: list[tuple[Cell, ...]] = []
    for pair in results.contrasts:
        tested = "" if pair.p_value is None else f"{pair.only_row} : {pair.only_against}, p = {pair.p_value:.2g}"
        value = Value(pair.difference, pair.low, pair.high, is_signed=True)
        seed = "mean" if pair.seed is None else str(pair.seed)
        lines.append((f"{SHOT_NAMES[pair.row]} − {SHOT_NAMES[pair.against]}", seed, value, tested))
    note = (
        "Points of accuracy, with intervals over takes; then the shots that only the first row has right against those "
        "that only the second has, and McNemar's exact test, which treats shots as independent."
    )
    return Table("Differences", ("difference", "seed", "points", "McNemar"), tuple(lines), note)


def published_tables(results: OutcomeResults) -> list[Table]:
    """Return the paper's table; empty for a simulated corpus."""
    if results.is_simulated:
        return []
    rows: dict[str, dict[OutcomeMetric, float]] = {}
    for line in table_rows(PUBLISHED):
        rows.setdefault(line["row"], {})[PAPERS[line["metric"]]] = float(line["value"])
    shown = tuple((row, *(f"{values[m]:.2f}" for m in HEADERS if m in values)) for row, values in rows.items())
    header = tuple(name for metric, name in HEADERS.items() if metric != "auc")
    title = "Published (arXiv 2605.20388), one seed, no intervals"
    return [Table(title, ("row", *header), shown, PUBLISHED_P)]
