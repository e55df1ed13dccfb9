"""The report in a few lines: Markdown for the UI, and the main table as text for the terminal."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from schemas.arrow import rows_of
from schemas.events import ShotScore
from schemas.poses import PoseScore
from schemas.results import Ceiling, Judgement, Metric
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.incoming import literal
from trajpilot_core.methods.plugged import listed
from trajpilot_core.report import outcome_page, pose_page
from trajpilot_core.report.action_page import action_results
from trajpilot_core.report.committed import Committed
from trajpilot_core.report.tables.results import results_of
from trajpilot_core.report.tables.table import DAGGER, LEGEND, SIGNS, Table, Value
from trajpilot_core.report.verdict import opening_table, verdict_of

PRINTED = 2
"""Metrics in the terminal."""


@dataclass(frozen=True)
class Brief:
    """The main figures of a stage that writes pages."""

    tables: Sequence[Table]
    """The first one is printed in the terminal."""
    verdict: str = ""
    checks: Sequence[Judgement] = ()


def summary(committed: Committed, stage: str, address: str) -> str:
    """Return the summary of the pages of a stage; `address`: of its HTML page. Errors as in `brief_of`."""
    brief, warning = brief_of(committed, stage), committed.warning()
    held = sum(check.verdict == "holds" for check in brief.checks)
    checks = [check for check in brief.checks if check.verdict != "holds" or check.check.startswith("demo: ")]
    parts = [
        f"**{warning}**" if warning else "",
        literal(brief.verdict),
        f"Full page: {literal(address)}. Next to it: JSON and LaTeX tables.",
        *(table.markdown().strip() for table in brief.tables),
        f"### Checks\n\n{held} of {len(brief.checks)} hold. The demo's, and those that do not hold:",
        "\n".join(f"- {SIGNS[check.verdict]} {literal(check.check)}: **{check.verdict}**" for check in checks),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def main_figures(committed: Committed, stage: str) -> list[str]:
    """Return the main table of a stage that writes pages, as lines of text. Errors as in `brief_of`."""
    table = brief_of(committed, stage).tables[0]
    first = next((at for row in table.rows for at, cell in enumerate(row) if isinstance(cell, Value)), 1)
    lines = [[str(cell) for cell in row[: first + PRINTED]] for row in (table.header, *table.rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = (map(str.ljust, line, widths) for line in lines)
    return [table.title, *(f"  {'  '.join(line).rstrip()}" for line in padded)]


def brief_of(committed: Committed, stage: str) -> Brief:
    """Return the main figures of a stage that writes pages.

    Raises:
        InputError: a plugin whose row was evaluated is gone.
        StoreError: the stage has no output, or it is damaged.
    """
    if stage == "outcome":
        judged = rows_of(Judgement, committed.table(stage, "outcome_judgements"))
        shots = rows_of(ShotScore, committed.table(stage, "shot_scores"))
        return Brief([outcome_page.main_table(shots, judged)], "", judged)
    if stage == "pose_sources":
        judged = rows_of(Judgement, committed.table(stage, "pose_judgements"))
        scores, is_closed = rows_of(PoseScore, committed.table(stage, "pose_scores")), _has_heads(committed)
        results = pose_page.PoseResults(scores, judged, (), is_simulated=bool(committed.warning()), is_closed=is_closed)
        return Brief([pose_page.main_table(results)], pose_page.verdict(results), judged)
    if spec_of(committed.config.ingest.corpus).has_plans:
        with listed(committed.config.evaluation):
            return _plans(committed)

    def table(name: str) -> pa.Table:
        return committed.table("action_token" if name.startswith("token_") else "probe", name)

    actions = action_results(table, has_token=committed.config.action_token.is_asked)
    return Brief(actions.tables(), "", actions.judgements)


def _plans(committed: Committed) -> Brief:
    """Return the rows of the first screen, mean over the horizons, and the verdict."""
    judgements = rows_of(Judgement, committed.table("evaluation", "judgements"))
    results = results_of(rows_of(Metric, committed.table("evaluation", "metrics")), judgements)
    has_heads = _has_heads(committed)
    ceilings = rows_of(Ceiling, committed.table("evaluation", "ceilings"))
    verdict = verdict_of(
        results,
        simulated=bool(committed.warning()),
        has_heads=has_heads,
        is_broken=any(row.binding and row.above for row in ceilings),
        judgements=judgements,
    )
    opening = opening_table(results, has_heads=has_heads) or [Table("No row was scored", ("row",), ())]
    header = ("row", *(f"{name}, %" for name in opening[0].header[1:]))
    note = LEGEND if any(DAGGER in str(row[0]) for row in opening[0].rows) else ""
    return Brief([replace(opening[0], header=header, groups=(), note=note)], verdict.text, judgements)


def _has_heads(committed: Committed) -> bool:
    return committed.config.predictor.head == "classes"
