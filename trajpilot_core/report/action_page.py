"""The report of a corpus without plans: what the attentive probe anticipates. Source: docs/decisions/epic-probe.md.

The page, `report.json` and both LaTeX files contain the same tables; the paper's numbers are never shown next to those
of a simulated world.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.config import CompletedReport
from schemas.events import ProbeScore
from schemas.features import ReleasedName, released_note
from schemas.results import CurvePoint, Judgement
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.stage import AnyStage, Inputs
from trajpilot_core.evaluation.action_scores import judge_actions
from trajpilot_core.evaluation.token_rows import MODELS as TOKEN_MODELS
from trajpilot_core.evaluation.token_rows import TOKEN_NAMES
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS, SPACES, SUBSETS, LabelSpace
from trajpilot_core.paper.published import published_actions
from trajpilot_core.report import health, json_report
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.offline import Section, TablePage, checks_table, latex_file
from trajpilot_core.report.tables.names import LEGEND, marked
from trajpilot_core.report.tables.table import Cell, Table, Value
from trajpilot_core.report.tables.tokens import (
    SPACE_WORDS,
    Classes,
    TokenResults,
    classes_of,
    fixed_note,
    metric_columns,
    read_tokens,
    token_tables,
    value_cell,
)
from trajpilot_core.report.verdict import below_floors, comparison, too_small

NAMES = {"probe": "attentive probe", "majority": "most frequent five"}
ORDER = ("majority", "probe")
FLOOR = "majority"
DECIDES = "Action"
"""Metric of the first sentence."""
MODELS: Mapping[str, tuple[str, ...]] = {"probe": (), **TOKEN_MODELS}
"""Learned row -> the predictors behind it."""
SCORED_AS = {"challenge": "as the challenge scores", "trained_pairs": "as V-JEPA 2 scores"}
TEMPORAL = (
    "Tokens are averages over the patches of each tubelet. This is another protocol than that of the published probe, "
    "which reads every patch and V-JEPA 2's predicted tokens."
)
EVERY_PATCH = (
    "Tokens are every patch of a clip and those of one predicted tubelet, with the augmentation of the published probe."
)
ROWS = (
    "Tokens are rows of released features: of the rows inside a clip, the one nearest to the middle of each of its "
    "equal parts. Nothing was predicted ahead."
)
NOT_RUN = "not run: TrajPilot’s token in the probe (rows No-Traj, Scorer, Oracle and their controls)"


@dataclass(frozen=True)
class ActionResults:
    """What the report reads."""

    scores: list[ProbeScore]
    checks: list[Judgement]
    curves: list[CurvePoint]
    rejects: Mapping[str, pa.Table]
    takes: pa.Table
    segments: pa.Table
    tokens: TokenResults | None = None
    """Results of the rows with TrajPilot's token; None where they were not requested."""

    @property
    def judgements(self) -> list[Judgement]:
        """Return every check: of the probe, of the rows with a token, and whether learned rows count as trained."""
        checks = [*self.checks, *(self.tokens.checks if self.tokens is not None else ())]
        return [*checks, *learned_rows(self.scores, self.tokens)]

    @property
    def undertrained(self) -> frozenset[str]:
        """Return the rows that do not count as trained."""
        return undertrained_rows(self.judgements, MODELS)

    @property
    def simulated(self) -> bool:
        """Whether any video was simulated, read from the takes."""
        return SIMULATED in self.takes["corpus"].to_pylist()


def learned_rows(scores: Sequence[ProbeScore], tokens: TokenResults | None) -> list[Judgement]:
    """Judge the probe and the rows with a token against the most frequent answers."""
    floor = [score for score in scores if score.row == FLOOR]
    judged = judge_actions(scores, [row for row in NAMES if row != FLOOR], FLOOR)
    return judged + ([] if tokens is None else judge_actions([*tokens.scores, *floor], [*TOKEN_NAMES], FLOOR))


def build_alone(inputs: Inputs, cfg: CompletedReport, stages: Sequence[AnyStage]) -> dict[str, bytes]:
    """Return the documents of the report by name.

    Args:
        inputs: the entries that the stage reads of a corpus without plans.
    """
    results = ActionResults(
        rows_of(ProbeScore, inputs.table("probe_scores")),
        rows_of(Judgement, inputs.table("probe_checks")),
        rows_of(CurvePoint, inputs.table("probe_curves")),
        {stage.name: inputs.table(rejects_entry(stage.name)) for stage in stages},
        inputs.table("takes", ("take_id", "corpus", "split")),
        inputs.table("segments", ("split",)),
        read_tokens(inputs) if cfg.has_token else None,
    )
    title = spec_of(cfg.corpus).title if cfg.corpus else "a corpus"
    title = f"{title}, released features {cfg.released}" if cfg.released else title
    where = f"a simulated world in the file layout of {title}" if results.simulated else title
    weak, classes = results.undertrained, classes_of(inputs.models("probe_models").about)
    tables = [*result_tables(results.scores, classes, weak), *token_tables(results.tokens, classes, weak)]
    notes = warnings(results, cfg.released)
    document = page(f"TrajPilot on {where}", results, tables, cfg)
    contrasts = {"contrasts": json_report.records(results.tokens.contrasts)} if results.tokens is not None else {}
    content = document.json(
        format=json_report.FORMAT,
        scores=json_report.records([*results.scores, *(results.tokens.scores if results.tokens else ())]),
        judgements=json_report.records(results.judgements),
        tables=[table.json() for table in tables],
        **contrasts,
    )
    return {
        "report.html": document.html(),
        "report.json": content,
        "metrics.tex": latex_file(tables, *notes),
    }


def verdict(results: ActionResults) -> str:
    """Return what a retrieved trajectory adds to the probe; without tokens, how far the probe gets."""
    weak, below = results.undertrained, below_floors(results.judgements)
    pairs = () if results.tokens is None else results.tokens.contrasts
    gain = next((c for c in pairs if (c.row, c.against, c.metric) == ("scorer", "no_traj", DECIDES)), None)
    if gain is not None:
        rows = (gain.against, gain.row)
        return comparison(
            (TOKEN_NAMES[gain.row], TOKEN_NAMES[gain.against]),
            f"{DECIDES} (class-mean recall of the best five)",
            (gain.difference, gain.low, gain.high),
            [TOKEN_NAMES[row] for row in rows if row in weak],
            [TOKEN_NAMES[row] for row in rows if row in below],
            is_simulated=results.simulated,
        )
    place = ("challenge", "overall", DECIDES)
    of_row = {
        row: value_cell([s for s in results.scores if (s.space, s.subset, s.metric, s.row) == (*place, row)])
        for row in ORDER
    }
    where = "In this simulated world" if results.simulated else "On the videos that were scored"
    text = (
        f"{where}, the {NAMES['probe']} reaches {of_row['probe']} % of {DECIDES} (class-mean recall of the best five); "
        f"answering the {NAMES[FLOOR]} reaches {of_row[FLOOR]} %."
    )
    return f"{too_small(['the ' + NAMES['probe']])} {text}" if results.simulated and "probe" in below else text


def warnings(results: ActionResults, released: ReleasedName | None) -> tuple[str, ...]:
    """Return the notices above the figures; empty for recorded clips that were encoded."""
    return (
        *((WARNING,) if results.simulated else ()),
        *((f"{released}: {released_note(released)}",) if released else ()),
    )


def page(title: str, results: ActionResults, tables: Sequence[Table], cfg: CompletedReport) -> TablePage:
    """Return the page; published figures are shown only next to encoded features of recorded clips."""
    warned = warnings(results, cfg.released)
    published = () if warned else published_tables()
    trained = [("probe", results.curves), *(results.tokens.trainings() if results.tokens is not None else ())]
    charts = training_charts([(name, curves) for name, curves in trained if curves])
    protocol = ROWS if cfg.released else EVERY_PATCH if cfg.has_every_patch else TEMPORAL
    sections = [
        Section("results", "What follows a clip", (*tables, *published), text=protocol),
        Section("checks", "Checks", (checks_table(results.judgements),)),
        Section("training", "Training", charts=tuple(charts)),
        Section("health", "Data health", (health.problems(results.rejects),)),
    ]
    banner = "; ".join(warned) or protocol
    return TablePage(title, banner, sections, facts(results, cfg), verdict(results), results.simulated)


def facts(results: ActionResults, cfg: CompletedReport) -> list[str]:
    """Return the lines below the title."""
    splits = results.segments["split"].to_pylist()
    counted = ", ".join(f"{splits.count(split):,} {split}" for split in ("train", "dev", "test"))
    lost = sum(health.lost_units(results.rejects).values())
    seeds = sorted({score.seed for score in results.scores})
    trials = sorted({score.trial for score in results.scores if score.trial})
    return [
        f"{results.takes.num_rows:,} videos; clips: {counted}; {lost:,} rows lost to rejects",
        f"seeds {', '.join(map(str, seeds)) or 'none'}; chosen on dev: {'; '.join(trials)}",
        NOT_RUN
        if results.tokens is None
        else f"fine-tuned with a token, all rows equally long, chosen on dev: {'; '.join(results.tokens.chosen())}",
        f"configuration {cfg.config_digest[:16]}" if cfg.config_digest else "configuration not given",
    ]


def result_tables(scores: Sequence[ProbeScore], classes: Classes, weak: frozenset[str] = frozenset()) -> list[Table]:
    """Return one table a label space: rows by set, a column a metric, means over the seeds."""
    note = "Percent. " + " ".join(f"{spec.id}: {spec.description}." for spec in EPIC_METRICS.values())
    note += " Means over the seeds; intervals (95 % unless set otherwise) are over test videos, of one seed alone."
    note += fixed_note(classes) + (f" {LEGEND}" if weak.intersection(NAMES) else "")
    return [
        Table(
            f"Anticipation, {SPACE_WORDS[space]}, {SCORED_AS[space]}",
            ("set", "row", *metric_columns(classes), "clips, classes of actions"),
            tuple(_row(scores, space, subset, row, weak) for subset in SUBSETS for row in ORDER),
            note,
            rules=tuple(len(ORDER) * at for at in range(1, len(SUBSETS))),
        )
        for space in SPACES
        if scores
    ]


def _row(
    scores: Sequence[ProbeScore], space: LabelSpace, subset: str, row: str, weak: frozenset[str]
) -> tuple[Cell, ...]:
    of_row = [score for score in scores if (score.space, score.subset, score.row) == (space, subset, row)]
    cells = [value_cell([score for score in of_row if score.metric == metric]) for metric in EPIC_METRICS]
    sizes = next((f"{score.n_clips:,}, {score.n_classes:,}" for score in of_row if score.metric == "Action"), "")
    return (subset, marked(NAMES[row], row, weak), *cells, sizes)


def published_tables() -> tuple[Table, ...]:
    """Return the paper's table, which is of another protocol."""
    values = published_actions()
    metrics = list(EPIC_METRICS)[:4]
    rows = tuple(
        (row, *(Value(numbers[name], digits=2) if name in numbers else "–" for name in metrics))
        for row, numbers in values.items()
    )
    return (Table("Published (arXiv 2605.20388, EPIC-KITCHENS-100), another protocol", ("row", *metrics), rows),)
