"""The pages of the table of pose sources: HTML, JSON and LaTeX of one run (docs/decisions/poses.md)."""

from collections.abc import Sequence
from dataclasses import dataclass

from schemas.poses import POSE_METRICS, PoseScore
from schemas.results import Judgement
from trajpilot_core.evaluation.pose_rows import PoseRow, pose_rows, trained_on
from trajpilot_core.evaluation.trained_rows import TRAINED
from trajpilot_core.paper.published import table_rows
from trajpilot_core.report import json_report
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.offline import Section, render_document
from trajpilot_core.report.tables.latex_text import latex_text
from trajpilot_core.report.tables.names import LEGEND, marked, pose_metric_names
from trajpilot_core.report.tables.table import NOTHING, Cell, Table, Value

PUBLISHED = "pi3_robustness"
NO_DROP = (
    "The demo's simulated world did not show the paper's drop under a mismatch by itself, a smaller one did; there the "
    "poses from video are worse as well, so that a drop says nothing of axes and lengths alone. That the table sees "
    "those is shown with planted ones (docs/decisions/poses.md)."
)


@dataclass(frozen=True)
class PoseResults:
    """What the pages show."""

    scores: Sequence[PoseScore]
    judgements: Sequence[Judgement]
    facts: Sequence[str]
    is_simulated: bool
    is_closed: bool

    def of(self, row: str, against: str | None, seed: int | None, metric: str) -> Cell:
        """Return one figure as a cell."""
        held = (
            one for one in self.scores if (one.row, one.against, one.seed, one.metric) == (row, against, seed, metric)
        )
        one = next(held, None)
        return NOTHING if one is None else Value(one.value, one.low, one.high, is_signed=against is not None)

    def is_weak(self, model: str) -> bool:
        """Return whether a predictor, of any seed, does not count as trained."""
        check = f"{TRAINED}{trained_on(self.scores[0].sources)[model]},"
        return any(one.verdict != "holds" for one in self.judgements if one.check.startswith(check))

    @property
    def rows(self) -> tuple[PoseRow, ...]:
        """The rows, named after the sources that ran; none without scores."""
        return pose_rows(self.scores[0].sources) if self.scores else ()

    @property
    def names(self) -> tuple[str, str]:
        """Names of both metrics."""
        return pose_metric_names(is_closed=self.is_closed)


def documents(results: PoseResults) -> dict[str, bytes]:
    """Return name -> content of every document."""
    tables = [main_table(results), seed_table(results), checks_table(results)]
    where = "a simulated world" if results.is_simulated else "recorded takes"
    title = f"Pose sources on {where}"
    banner = (
        f"{WARNING}. {NO_DROP}" if results.is_simulated else "All rows use the test windows that both sources cover"
    )
    sections = [
        Section("rows", "Trained on one source, asked with another", (tables[0],), text=main_text(results)),
        Section("seeds", "Each seed", (tables[1],)),
        Section("claims", "The paper's claim", (tables[2],)),
    ]
    latex = "\n".join(table.latex() for table in tables[:2])
    return {
        "pose_sources.html": render_document(title, banner, results.facts, sections),
        "pose_sources.json": json_report.dump(
            {
                "title": title,
                "simulated": results.is_simulated,
                "facts": list(results.facts),
                "scores": json_report.records(results.scores),
                "judgements": json_report.records(results.judgements),
                "table": tables[0].json(),
            }
        ),
        "pose_sources.tex": f"% {latex_text(title)}\n{latex}".encode(),
    }


def main_table(results: PoseResults) -> Table:
    """Return every row, mean over the seeds, with its difference; the paper's column on recorded takes alone."""
    paper = {} if results.is_simulated else published()
    weak = {row.model for row in results.rows if results.is_weak(row.model)}
    lines: list[tuple[Cell, ...]] = []
    for row in results.rows:
        cells: list[Cell] = [results.of(row.name, None, None, metric) for metric in POSE_METRICS]
        cells += ["" if row.against is None else results.of(row.name, row.against, None, "mid"), row.against or ""]
        if paper:
            cells += [paper.get((row.published or "", name), "") for name in ("Mid mAcc", "Full mAcc")]
        lines.append((marked(row.name, row.model, weak), *cells))
    mid, full = results.names
    header: tuple[str, ...] = ("trained -> asked", mid, full, f"{mid}, difference", "to")
    header = (*header, "published Mid", "published Full") if paper else header
    return Table("Pose sources", header, tuple(lines), LEGEND if weak else "")


def published() -> dict[tuple[str, str], str]:
    """Return (row, metric) of the paper's table -> what it prints."""
    return {(line["row"], line["metric"]): f"{float(line['value']):.2f}" for line in table_rows(PUBLISHED)}


def main_text(results: PoseResults) -> str:
    """State how to read the table."""
    n = max((one.n_windows for one in results.scores), default=0)
    takes = max((one.n_takes for one in results.scores), default=0)
    return (
        f"{n} test windows of {takes} takes, all horizons, each window alike; brackets: intervals over takes, mean of "
        "the seeds. Every row is given the true middle trajectories of the source that it is asked with. The mixture "
        "has every window twice, so twice the steps; the row below it as many steps as the others."
    )


def seed_table(results: PoseResults) -> Table:
    """Return both metrics of each seed."""
    seeds = sorted({one.seed for one in results.scores if one.seed is not None})
    lines = tuple(
        (row.name, str(seed), *(results.of(row.name, None, seed, metric) for metric in POSE_METRICS))
        for row in results.rows
        for seed in seeds
    )
    return Table("Seeds", ("trained -> asked", "seed", *results.names), lines)


def checks_table(results: PoseResults) -> Table:
    """Return the verdicts on the claim."""
    rows = tuple((one.check, one.verdict, one.detail) for one in results.judgements)
    return Table("Verdicts", ("claim", "verdict", "detail"), rows, note=NO_DROP if results.is_simulated else "")
