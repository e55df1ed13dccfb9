"""The tables of a corpus without plans: the probe, and the probe that reads TrajPilot's token, next to its controls.

Source: docs/decisions/epic-probe.md, docs/decisions/epic-token.md.
"""

import functools
import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean

import pyarrow as pa

from schemas.arrow import rows_of
from schemas.events import TOKEN_CONTROLS, ProbeScore, TokenContrast
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import FINAL
from trajpilot_core.evaluation.action_scores import judge_actions
from trajpilot_core.evaluation.event_rows import TOKEN_METHODS, TOKEN_MODELS, TOKEN_NAMES
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS, SPACES, SUBSETS, ActionPart, LabelSpace
from trajpilot_core.report.tables.groups import LEGEND, marked
from trajpilot_core.report.tables.table import Cell, Table, Value
from trajpilot_core.training.fit_probe import PROBE

NAMES = {"majority": "most frequent five", "probe": "attentive probe"}
FLOOR = "majority"
MODELS: Mapping[str, tuple[str, ...]] = {"probe": (), **TOKEN_MODELS}
"""Learned row -> the predictors behind it."""
SPACE_WORDS: dict[LabelSpace, str] = {
    "challenge": "every tested clip",
    "trained_pairs": "clips whose pair of verb and noun training has",
}
"""Clips of each label space."""
SCORED_AS = {"challenge": "as the challenge scores", "trained_pairs": "as V-JEPA 2 scores"}
Classes = Mapping[ActionPart, int]
"""Part -> number of its classes; empty where no probe was trained."""


@dataclass(frozen=True)
class ActionResults:
    """The scores of the probe, and of the rows with TrajPilot's token where these were requested."""

    scores: list[ProbeScore]
    checks: list[Judgement]
    classes: Classes
    has_token: bool = False
    contrasts: Sequence[TokenContrast] = ()
    curves: Sequence[CurvePoint] = ()

    @functools.cached_property
    def judgements(self) -> list[Judgement]:
        """Every check: of the stages, and whether learned rows are above the floor."""
        return [*self.checks, *judge_actions(self.scores, ["probe", *TOKEN_NAMES], FLOOR)]

    @property
    def undertrained(self) -> frozenset[str]:
        """Rows that do not count as trained."""
        return undertrained_rows(self.judgements, MODELS)

    def tables(self) -> list[Table]:
        """Return the tables of the probe, then those of its rows with a token."""
        weak = self.undertrained
        tokens = token_tables(self.scores, self.contrasts, self.classes, weak) if self.has_token else []
        return [*result_tables(self.scores, self.classes, weak), *tokens]

    def chosen(self) -> list[str]:
        """Return the trial that dev selected for each row with a token."""
        of_tokens = (score for score in self.scores if score.row in TOKEN_NAMES)
        return sorted({f"{TOKEN_NAMES[score.row]}: {score.trial}" for score in of_tokens})

    def trainings(self) -> list[tuple[str, list[CurvePoint]]]:
        """Return (title, curves) of the models that make the token, and of the probes that read it, in chain `final`.

        Of a row's grid only the trial that dev selected.
        """
        begins = f"{PROBE}/"
        tuned = [
            row.replace(model=f"{FINAL.name}/{row.model.removeprefix(begins)}")
            for row in self.curves
            if row.model.startswith(begins)
        ]
        makers = [row for row in self.curves if not row.model.startswith(begins)]
        return [("action_token", makers), ("fine-tuned probes", tuned)]


def action_results(table: Callable[[str], pa.Table], about: Mapping[str, str], *, has_token: bool) -> ActionResults:
    """Read the results of a run.

    Args:
        table: returns a table by its name.
        about: description of the probes.
        has_token: whether the rows with a token were requested.
    """
    stages = ("probe", "token") if has_token else ("probe",)
    return ActionResults(
        [row for stage in stages for row in rows_of(ProbeScore, table(f"{stage}_scores"))],
        [row for stage in stages for row in rows_of(Judgement, table(f"{stage}_checks"))],
        classes_of(about),
        has_token,
        rows_of(TokenContrast, table("token_contrasts")) if has_token else (),
        [*rows_of(CurvePoint, table("token_curves")), *rows_of(CurvePoint, table("token_tuned_curves"))]
        if has_token
        else (),
    )


def classes_of(about: Mapping[str, str]) -> Classes:
    """Return how many classes each part has, from the description of the probes."""
    return {part: len(columns) for part, columns in json.loads(about.get("classes", "{}")).items()}


def metric_columns(classes: Classes) -> tuple[str, ...]:
    """Return the headers of the metrics; one with too few classes to vary is marked."""
    return tuple(
        f"{name} (fixed: {classes[spec.part]} {spec.part}s, the best {spec.k} count)"
        if name in fixed_metrics(classes)
        else name
        for name, spec in EPIC_METRICS.items()
    )


def fixed_metrics(classes: Classes) -> list[str]:
    """Return the metrics with too few classes to vary, whatever is answered."""
    return [name for name, spec in EPIC_METRICS.items() if spec.part in classes and spec.is_fixed(classes[spec.part])]


def fixed_note(classes: Classes) -> str:
    """Return the explanation of `fixed` in a header; empty where no metric is."""
    note = " Fixed: no more classes than answers that count, so every row has the same value, whatever it answers."
    return note if fixed_metrics(classes) else ""


def by_space(
    title: str,
    header: tuple[str, ...],
    lines: Sequence[tuple[tuple[str, ...], str, str]],
    scores: Sequence[ProbeScore],
    classes: Classes,
    note: str,
    rules: tuple[int, ...],
    *,
    has_sizes: bool = False,
) -> list[Table]:
    """Return one table per label space, a column a metric, means over the seeds.

    Args:
        title: with the places `clips` and `scored`.
        header: of the first columns.
        lines: first cells, set and row of each line.
        has_sizes: the last column has the numbers of clips and classes.
    """
    by_cell: dict[tuple[str, ...], list[ProbeScore]] = defaultdict(list)
    for score in scores:
        by_cell[score.space, score.subset, score.row, score.metric].append(score)

    def line(space: str, heads: tuple[str, ...], subset: str, row: str) -> tuple[Cell, ...]:
        sizes = [f"{s.n_clips:,}, {s.n_classes:,}" for s in by_cell[space, subset, row, "Action"]] or [""]
        cells = [value_cell(by_cell[space, subset, row, metric]) for metric in EPIC_METRICS]
        return (*heads, *cells, *(sizes[:1] if has_sizes else ()))

    columns = (*header, *metric_columns(classes), *(("clips, classes of actions",) if has_sizes else ()))
    return [
        Table(
            title.format(clips=SPACE_WORDS[space], scored=SCORED_AS[space]),
            columns,
            tuple(line(space, *of_line) for of_line in lines),
            note,
            rules=rules,
        )
        for space in SPACES
    ]


def result_tables(scores: Sequence[ProbeScore], classes: Classes, weak: frozenset[str] = frozenset()) -> list[Table]:
    """Return the tables of the probe and its floor, rows by set; none without scores."""
    note = "Percent. " + " ".join(f"{spec.id}: {spec.description}." for spec in EPIC_METRICS.values())
    note += " Means over the seeds; intervals (95 % unless set otherwise) are over test videos, of one seed alone."
    note += fixed_note(classes) + (f" {LEGEND}" if weak.intersection(NAMES) else "")
    title, header = "Anticipation, {clips}, {scored}", ("set", "row")
    lines = [((subset, marked(NAMES[row], row, weak)), subset, row) for subset, row in product(SUBSETS, NAMES)]
    rules = tuple(len(NAMES) * at for at in range(1, len(SUBSETS)))
    return by_space(title, header, lines, scores, classes, note, rules, has_sizes=True) if scores else []


def token_tables(
    scores: Sequence[ProbeScore], contrasts: Sequence[TokenContrast], classes: Classes, weak: frozenset[str]
) -> list[Table]:
    """Return the tables of the rows with a token, of all clips, and that of the differences."""
    note = (
        "Percent. Every row starts from the visual probe and is fine-tuned for the same number of epochs on the same "
        f"clips; the first {len(TOKEN_CONTROLS)} are controls, which see nothing of the clip but its pixel tokens. "
        "Oracle sees the head motion of the action itself: a condition, not a prediction. Means over the seeds; "
        "intervals over test videos, for one seed only." + fixed_note(classes)
    ) + (f" {LEGEND}" if weak.intersection(TOKEN_NAMES) else "")
    lines = [((marked(method.name, method.id, weak), method.given), "overall", method.id) for method in TOKEN_METHODS]
    rules = (len(TOKEN_CONTROLS), len(TOKEN_METHODS) - 1)
    tables = by_space("With TrajPilot’s token, {clips}", ("row", "the token"), lines, scores, classes, note, rules)
    of = {(contrast.row, contrast.against, contrast.metric): contrast for contrast in contrasts}
    differences: list[tuple[Cell, ...]] = []
    for row, against in dict.fromkeys((contrast.row, contrast.against) for contrast in contrasts):
        cells = [of[row, against, metric] for metric in EPIC_METRICS]
        values = [Value(contrast.difference, contrast.low, contrast.high, digits=2) for contrast in cells]
        differences.append((TOKEN_NAMES[row], TOKEN_NAMES[against], *values))
    header = ("row", "less", *metric_columns(classes))
    note = "Points, every tested clip, means over the seeds; intervals are paired, over test videos."
    return [*tables, Table("Differences on the same clips", header, tuple(differences), note)]


def value_cell(of_seeds: Sequence[ProbeScore]) -> Cell:
    """Return the mean over the seeds, with its interval where there is one seed."""
    values = [score.value for score in of_seeds if score.value is not None]
    if not values:
        return "no clip"
    if len(of_seeds) > 1:
        return Value(mean(values), digits=2)
    return Value(values[0], of_seeds[0].low, of_seeds[0].high, digits=2)
