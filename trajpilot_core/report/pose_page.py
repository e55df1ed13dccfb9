"""The pages of pose sources: HTML, JSON and LaTeX of one run (docs/decisions/poses.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.poses import POSE_METRICS, PoseScore
from schemas.results import Judgement
from trajpilot_core.evaluation.pose_rows import PoseRow, pose_rows, trained_on
from trajpilot_core.evaluation.trained_rows import TRAINED
from trajpilot_core.paper.published import table_rows
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.offline import Page, Section, checks_section, records
from trajpilot_core.report.tables.table import LEGEND, NOTHING, Cell, Table, Value, marked

PUBLISHED = "pi3_robustness"
NO_DROP = (
    "The demo's simulated world did not show the paper's drop under a mismatch by itself; a smaller world did. There "
    "the poses from video are worse as well, so a drop is no evidence about axes and lengths alone. Planted errors "
    "show that the table detects those (docs/decisions/poses.md)."
)


@dataclass(frozen=True)
class PoseResults:
    """What the pages show."""

    scores: Sequence[PoseScore]
    judgements: Sequence[Judgement]
    facts: Sequence[str]
    is_simulated: bool
    is_closed: bool

    def of(self, row: str, against: str | None, metric: str) -> Cell:
        """Return one figure, mean over the seeds, as a cell."""
        place = (row, against, None, metric)
        score = next((s for s in self.scores if (s.row, s.against, s.seed, s.metric) == place), None)
        return NOTHING if score is None else Value(score.value, score.low, score.high, is_signed=against is not None)

    @property
    def weak(self) -> frozenset[str]:
        """The predictors of which a training, of any seed, does not count as trained."""
        failed = [judgement.check for judgement in self.judgements if judgement.verdict != "holds"]
        trained = trained_on(self.scores[0].sources).items() if self.scores else ()
        return frozenset(model for model, name in trained if any(c.startswith(f"{TRAINED}{name},") for c in failed))

    @property
    def rows(self) -> tuple[PoseRow, ...]:
        """The rows, named after the sources that ran; none without scores."""
        return pose_rows(self.scores[0].sources) if self.scores else ()

    @property
    def names(self) -> tuple[str, str]:
        """Names of both metrics; class heads decode where the vocabulary is closed."""
        return ("Mid mAcc", "Full mAcc") if self.is_closed else ("Mid M@1", "Full M@1")


def documents(results: PoseResults) -> dict[str, bytes]:
    """Return name -> content of every document."""
    table = main_table(results)
    title = f"Pose sources on {'a simulated world' if results.is_simulated else 'recorded takes'}"
    page = Page(
        title,
        f"{WARNING}. {NO_DROP}" if results.is_simulated else "All rows use the test windows that both sources cover",
        [
            Section("rows", "Trained on one source, tested with another", (table,), text=main_text(results)),
            checks_section(results.judgements),
        ],
        results.facts,
        verdict(results),
        results.is_simulated,
    )
    return page.documents(
        ("pose_sources.html", "pose_sources.json", "pose_sources.tex"),
        (table,),
        title,
        scores=records(results.scores),
        judgements=records(results.judgements),
        table=table.json(),
    )


def verdict(results: PoseResults) -> str:
    """Return what poses from video change: in a predictor that was trained on them, and in the one of pose files."""
    if not results.scores:
        return ""
    (of_files, video, raw, *_), weak = results.rows, results.weak
    same = marked(of_files.name, of_files.model, weak)
    differences = [
        f"{marked(row.name, row.model, weak)} − {same}: {results.of(row.name, row.against, 'mid')}"
        for row in (video, raw)
    ]
    return f"Points of {results.names[0]}: {'; '.join(differences)}."


def main_table(results: PoseResults) -> Table:
    """Return every row, mean over the seeds, with its difference; the paper's column on recorded takes alone."""
    printed = [] if results.is_simulated else table_rows(PUBLISHED)
    paper = {(line["row"], line["metric"]): f"{float(line['value']):.2f}" for line in printed}
    weak = results.weak
    lines: list[tuple[Cell, ...]] = []
    for row in results.rows:
        cells: list[Cell] = [results.of(row.name, None, metric) for metric in POSE_METRICS]
        cells += ["" if row.against is None else results.of(row.name, row.against, "mid"), row.against or ""]
        if paper:
            cells += [paper.get((row.published or "", name), "") for name in ("Mid mAcc", "Full mAcc")]
        lines.append((marked(row.name, row.model, weak), *cells))
    mid, full = results.names
    header: tuple[str, ...] = ("trained -> asked", mid, full, f"{mid}, difference", "to")
    header = (*header, "published Mid", "published Full") if paper else header
    return Table("Pose sources", header, tuple(lines), LEGEND if weak else "")


def main_text(results: PoseResults) -> str:
    """State how to read the table."""
    n = max((score.n_windows for score in results.scores), default=0)
    takes = max((score.n_takes for score in results.scores), default=0)
    return (
        f"{n} test windows of {takes} takes, all horizons, every window with the same weight; brackets: intervals over "
        "takes, mean of the seeds. Every row is given the true middle trajectories of the source it is tested with. "
        "The mixture contains every window twice, so it takes twice the steps; the row below it, as many as the others."
    )
