"""The report of a corpus without plans: what the attentive probe anticipates. Source: docs/decisions/epic-probe.md.

The page, `report.json` and both LaTeX files contain the same tables; the paper's numbers are never shown next to those
of a simulated world.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import pyarrow as pa

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.config import CompletedReport
from schemas.events import ProbeScore
from schemas.features import released_note
from schemas.results import CurvePoint, Judgement
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.stage import AnyStage, Inputs
from trajpilot_core.evaluation.action_scores import judge_actions
from trajpilot_core.evaluation.event_rows import TOKEN_MODELS, TOKEN_NAMES
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS, SPACES, SUBSETS
from trajpilot_core.paper.published import published_actions
from trajpilot_core.report import health
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.offline import FORMAT, Section, TablePage, checks_section, records
from trajpilot_core.report.tables.groups import LEGEND, marked
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
    """The scores of the probe, and of the rows with TrajPilot's token."""

    scores: list[ProbeScore]
    checks: list[Judgement]
    classes: Classes
    tokens: TokenResults | None
    """None where the rows with a token were not requested."""

    @functools.cached_property
    def judgements(self) -> list[Judgement]:
        """Every check: of the probe, of the rows with a token, and whether learned rows are above the floor."""
        checks = [*self.checks, *(self.tokens.checks if self.tokens is not None else ())]
        checks += judge_actions(self.scores, [row for row in NAMES if row != FLOOR], FLOOR)
        floor = [score for score in self.scores if score.row == FLOOR]
        if self.tokens is not None:
            checks += judge_actions([*self.tokens.scores, *floor], [*TOKEN_NAMES], FLOOR)
        return checks

    @property
    def undertrained(self) -> frozenset[str]:
        """Rows that do not count as trained."""
        return undertrained_rows(self.judgements, MODELS)

    def tables(self) -> list[Table]:
        """Return the tables of the probe, then those of its rows with a token."""
        weak = self.undertrained
        return [
            *result_tables(self.scores, self.classes, weak),
            *token_tables(self.tokens, self.classes, weak),
        ]


def action_results(table: Callable[[str], pa.Table], about: Mapping[str, str], *, has_token: bool) -> ActionResults:
    """Read the results of a run.

    Args:
        table: returns a table by its name.
        about: description of the probes.
        has_token: whether the rows with a token were requested.
    """
    return ActionResults(
        rows_of(ProbeScore, table("probe_scores")),
        rows_of(Judgement, table("probe_checks")),
        classes_of(about),
        read_tokens(table) if has_token else None,
    )


def build_alone(inputs: Inputs, cfg: CompletedReport, stages: Sequence[AnyStage]) -> dict[str, bytes]:
    """Return the documents of the report by name; published figures only next to encoded features of recorded clips.

    Args:
        inputs: the entries that the stage reads of a corpus without plans.
    """
    results = action_results(inputs.table, inputs.models("probe_models").about, has_token=cfg.has_token)
    tokens, tables = results.tokens, results.tables()
    curves = [("probe", rows_of(CurvePoint, inputs.table("probe_curves"))), *(tokens.trainings() if tokens else ())]
    rejects = {stage.name: inputs.table(rejects_entry(stage.name)) for stage in stages}
    takes = inputs.table("takes", ("take_id", "corpus", "split"))
    is_simulated = SIMULATED in takes["corpus"].to_pylist()  # no setting can hide it
    title = spec_of(cfg.corpus).title if cfg.corpus else "a corpus"
    title = f"{title}, released features {cfg.released}" if cfg.released else title
    where = f"a simulated world in the file layout of {title}" if is_simulated else title
    protocol = ROWS if cfg.released else EVERY_PATCH if cfg.has_every_patch else TEMPORAL
    warnings = [WARNING] if is_simulated else []
    warnings += [f"{cfg.released}: {released_note(cfg.released)}"] if cfg.released else []
    published = () if warnings else (published_table(),)
    page = TablePage(
        f"TrajPilot on {where}",
        "; ".join(warnings) or protocol,
        [
            Section("results", "What follows a clip", (*tables, *published), text=protocol),
            checks_section(results.judgements),
            Section("training", "Training", charts=tuple(training_charts([of for of in curves if of[1]]))),
            Section("health", "Data health", (health.problems(rejects),)),
        ],
        facts(results, rejects, takes.num_rows, inputs.table("segments", ("split",)), cfg),
        verdict(results, is_simulated=is_simulated),
        is_simulated,
    )
    return page.documents(
        ("report.html", "report.json", "metrics.tex"),
        tables,
        warnings,
        format=FORMAT,
        scores=records([*results.scores, *(tokens.scores if tokens else ())]),
        judgements=records(results.judgements),
        tables=[table.json() for table in tables],
        **({"contrasts": records(tokens.contrasts)} if tokens else {}),
    )


def verdict(results: ActionResults, *, is_simulated: bool) -> str:
    """Return what a retrieved trajectory adds to the probe; without tokens, how far the probe gets."""
    if results.tokens is not None:
        contrasts = [contrast for contrast in results.tokens.contrasts if contrast.metric == DECIDES]
        metric = f"{DECIDES} (class-mean recall of the best five)"
        weak, judged = results.undertrained, results.judgements
        text = comparison(contrasts, TOKEN_NAMES, metric, weak, judged, is_simulated=is_simulated)
        if text:
            return text
    place = ("challenge", "overall", DECIDES)
    of_row = {
        row: value_cell([s for s in results.scores if (s.space, s.subset, s.metric, s.row) == (*place, row)])
        for row in ORDER
    }
    where = "In this simulated world" if is_simulated else "On the videos that were scored"
    text = (
        f"{where}, the {NAMES['probe']} reaches {of_row['probe']} % of {DECIDES} (class-mean recall of the best five); "
        f"answering the {NAMES[FLOOR]} reaches {of_row[FLOOR]} %."
    )
    is_below = is_simulated and "probe" in below_floors(results.judgements)
    return f"{too_small(['the ' + NAMES['probe']])} {text}" if is_below else text


def facts(
    results: ActionResults, rejects: Mapping[str, pa.Table], n_takes: int, segments: pa.Table, cfg: CompletedReport
) -> list[str]:
    """Return the lines below the title."""
    splits = segments["split"].to_pylist()
    counted = ", ".join(f"{splits.count(split):,} {split}" for split in ("train", "dev", "test"))
    lost = sum(health.lost_units(rejects).values())
    seeds = sorted({score.seed for score in results.scores})
    trials = sorted({score.trial for score in results.scores if score.trial})
    return [
        f"{n_takes:,} videos; clips: {counted}; {lost:,} rows lost to rejects",
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
    tables = []
    for space in SPACES if scores else ():
        lines: list[tuple[Cell, ...]] = []
        for subset, row in product(SUBSETS, ORDER):
            of_row = [score for score in scores if (score.space, score.subset, score.row) == (space, subset, row)]
            cells = [value_cell([score for score in of_row if score.metric == metric]) for metric in EPIC_METRICS]
            sizes = next((f"{s.n_clips:,}, {s.n_classes:,}" for s in of_row if s.metric == "Action"), "")
            lines.append((subset, marked(NAMES[row], row, weak), *cells, sizes))
        title = f"Anticipation, {SPACE_WORDS[space]}, {SCORED_AS[space]}"
        header = ("set", "row", *metric_columns(classes), "clips, classes of actions")
        rules = tuple(len(ORDER) * at for at in range(1, len(SUBSETS)))
        tables.append(Table(title, header, tuple(lines), note, rules=rules))
    return tables


def published_table() -> Table:
    """Return the paper's table, which is of another protocol."""
    metrics = list(EPIC_METRICS)[:4]
    rows = tuple(
        (row, *(Value(numbers[name], digits=2) if name in numbers else "–" for name in metrics))
        for row, numbers in published_actions().items()
    )
    return Table("Published (arXiv 2605.20388, EPIC-KITCHENS-100), another protocol", ("row", *metrics), rows)
