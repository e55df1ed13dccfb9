"""The tables of the probe that reads TrajPilot's token, next to its controls. Source: docs/decisions/epic-token.md."""

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

import pyarrow as pa

from schemas.arrow import rows_of
from schemas.events import TOKEN_CONTROLS, ProbeScore, TokenContrast
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import FINAL
from trajpilot_core.evaluation.event_rows import TOKEN_METHODS, TOKEN_NAMES
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS, SPACES, ActionPart, LabelSpace
from trajpilot_core.report.tables.groups import LEGEND, marked
from trajpilot_core.report.tables.table import Cell, Table, Value
from trajpilot_core.training.fit_probe import PROBE

SPACE_WORDS: dict[LabelSpace, str] = {
    "challenge": "every tested clip",
    "trained_pairs": "clips whose pair of verb and noun training has",
}
"""Clips of each label space."""
Classes = Mapping[ActionPart, int]
"""Part -> number of its classes; empty where no probe was trained."""


@dataclass(frozen=True)
class TokenResults:
    """The tables of the stage `action_token`."""

    scores: list[ProbeScore]
    contrasts: list[TokenContrast]
    checks: list[Judgement]
    curves: Sequence[CurvePoint]

    def chosen(self) -> list[str]:
        """Return the trial that dev selected for each row."""
        return sorted({f"{TOKEN_NAMES[score.row]}: {score.trial}" for score in self.scores})

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


def read_tokens(table: Callable[[str], pa.Table]) -> TokenResults:
    """Read the tables of the stage; `table` returns one by its name."""
    return TokenResults(
        rows_of(ProbeScore, table("token_scores")),
        rows_of(TokenContrast, table("token_contrasts")),
        rows_of(Judgement, table("token_checks")),
        [row for name in ("token_curves", "token_tuned_curves") for row in rows_of(CurvePoint, table(name))],
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


def token_tables(results: TokenResults | None, classes: Classes, weak: frozenset[str] = frozenset()) -> list[Table]:
    """Return one table per label space, of all clips, and that of the differences; none without tokens."""
    if results is None:
        return []
    note = (
        "Percent. Every row starts from the visual probe and is fine-tuned for the same number of epochs on the same "
        f"clips; the first {len(TOKEN_CONTROLS)} are controls, which see nothing of the clip but its pixel tokens. "
        "Oracle sees the head motion of the action itself: a condition, not a prediction. Means over the seeds; "
        "intervals over test videos, for one seed only." + fixed_note(classes)
    )
    by_cell: dict[tuple[str, str, str], list[ProbeScore]] = defaultdict(list)
    for score in results.scores:
        if score.subset == "overall":
            by_cell[score.space, score.row, score.metric].append(score)
    tables = [
        Table(
            f"With TrajPilot’s token, {SPACE_WORDS[space]}",
            ("row", "the token", *metric_columns(classes)),
            tuple(
                (
                    marked(method.name, method.id, weak),
                    method.given,
                    *(value_cell(by_cell[space, method.id, name]) for name in EPIC_METRICS),
                )
                for method in TOKEN_METHODS
            ),
            note + (f" {LEGEND}" if weak.intersection(TOKEN_NAMES) else ""),
            rules=(len(TOKEN_CONTROLS), len(TOKEN_METHODS) - 1),
        )
        for space in SPACES
    ]
    of = {(contrast.row, contrast.against, contrast.metric): contrast for contrast in results.contrasts}
    lines: list[tuple[Cell, ...]] = []
    for row, against in dict.fromkeys((contrast.row, contrast.against) for contrast in results.contrasts):
        cells = [of[row, against, metric] for metric in EPIC_METRICS]
        values = [Value(contrast.difference, contrast.low, contrast.high, digits=2) for contrast in cells]
        lines.append((TOKEN_NAMES[row], TOKEN_NAMES[against], *values))
    header = ("row", "less", *metric_columns(classes))
    note = "Points, every tested clip, means over the seeds; intervals are paired, over test videos."
    return [*tables, Table("Differences on the same clips", header, tuple(lines), note)]


def value_cell(of_seeds: Sequence[ProbeScore]) -> Cell:
    """Return the mean over the seeds, with its interval where there is one seed."""
    values = [score.value for score in of_seeds if score.value is not None]
    if not values:
        return "no clip"
    if len(of_seeds) > 1:
        return Value(mean(values), digits=2)
    return Value(values[0], of_seeds[0].low, of_seeds[0].high, digits=2)
