"""The report of a corpus without plans: what the attentive probe anticipates, alone and with TrajPilot's token.

The page, `report.json` and the LaTeX file contain the same tables; the paper's numbers are never shown next to those
of a simulated world. Source: docs/decisions/epic-probe.md, docs/decisions/epic-token.md.
"""

import functools
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import mean

import pyarrow as pa

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.config import CompletedReport
from schemas.events import TOKEN_CONTROLS, ProbeScore, TokenContrast
from schemas.results import CurvePoint, Judgement
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.data.cross_fitting import FINAL
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.evaluation.action_scores import judge_actions
from trajpilot_core.evaluation.event_rows import TOKEN_METHODS, TOKEN_MODELS, TOKEN_NAMES
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS, SPACES, SUBSETS, LabelSpace
from trajpilot_core.paper.published import ACTION_METRICS, published_events
from trajpilot_core.report import health
from trajpilot_core.report.committed import notices
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.offline import FORMAT, Page, Section, checks_section, records
from trajpilot_core.report.tables.table import LEGEND, Cell, Table, Value, marked
from trajpilot_core.report.verdict import below_floors, comparison, placed
from trajpilot_core.store.reading import Inputs
from trajpilot_core.training.fit_probe import PROBE

NAMES = {"majority": "most frequent five", "probe": "attentive probe"}
FLOOR = "majority"
MODELS: Mapping[str, tuple[str, ...]] = {"probe": (), **TOKEN_MODELS}
"""Learned row -> the predictors behind it."""
SPACE_WORDS: dict[LabelSpace, tuple[str, str]] = {
    "challenge": ("every tested clip", "as the challenge scores"),
    "trained_pairs": ("clips whose pair of verb and noun training has", "as V-JEPA 2 scores"),
}
"""Clips of each label space, and whose protocol it is."""
DECIDES = "Action"
"""Metric of the first sentence."""
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
    """The scores of the probe, and of the rows with TrajPilot's token where these were requested."""

    scores: list[ProbeScore]
    checks: list[Judgement]
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
        tokens = token_tables(self.scores, self.contrasts, weak) if self.has_token else []
        return [*result_tables(self.scores, weak), *tokens]

    def trainings(self) -> list[tuple[str, list[CurvePoint]]]:
        """Return (title, curves) of the models that make the token, and of the probes that read it, in chain `final`.

        Of a row's grid only the trial that dev selected.
        """
        begins, of_chain = f"{PROBE}/", f"{FINAL.name}/"
        tuned = [row for row in self.curves if row.model.startswith(begins)]
        tuned = [row.replace(model=f"{of_chain}{row.model.removeprefix(begins)}") for row in tuned]
        makers = [row for row in self.curves if not row.model.startswith(begins)]
        return [("action_token", makers), ("fine-tuned probes", tuned)]


def action_results(table: Callable[[str], pa.Table], *, has_token: bool) -> ActionResults:
    """Read the results of a run; `has_token`: rows with a token were requested."""
    stages, tuned = (("probe", "token"), ("token_curves", "token_tuned_curves")) if has_token else (("probe",), ())
    return ActionResults(
        [row for stage in stages for row in rows_of(ProbeScore, table(f"{stage}_scores"))],
        [row for stage in stages for row in rows_of(Judgement, table(f"{stage}_checks"))],
        has_token,
        rows_of(TokenContrast, table("token_contrasts")) if has_token else (),
        [row for name in tuned for row in rows_of(CurvePoint, table(name))],
    )


def _by_space(
    title: str,
    header: tuple[str, ...],
    lines: Sequence[tuple[tuple[str, ...], str, str]],
    scores: Sequence[ProbeScore],
    note: str,
    rules: tuple[int, ...],
    *,
    has_sizes: bool = False,
) -> list[Table]:
    """Return one table per label space, a column a metric, means over the seeds.

    `title` has places for `SPACE_WORDS`; `lines` are the first cells, set and row of each line.
    """
    by_cell: dict[tuple[str, ...], list[ProbeScore]] = defaultdict(list)
    for score in scores:
        by_cell[score.space, score.subset, score.row, score.metric].append(score)

    def line(space: str, heads: tuple[str, ...], subset: str, row: str) -> tuple[Cell, ...]:
        sizes = [f"{s.n_clips:,}, {s.n_classes:,}" for s in by_cell[space, subset, row, "Action"]] or [""]
        cells = [_value_cell(by_cell[space, subset, row, metric]) for metric in EPIC_METRICS]
        return (*heads, *cells, *(sizes[:1] if has_sizes else ()))

    columns = (*header, *EPIC_METRICS, *(("clips, classes of actions",) if has_sizes else ()))
    rows = {space: tuple(line(space, *of_line) for of_line in lines) for space in SPACES}
    return [Table(title.format(*SPACE_WORDS[space]), columns, rows[space], note, rules=rules) for space in SPACES]


def result_tables(scores: Sequence[ProbeScore], weak: frozenset[str] = frozenset()) -> list[Table]:
    """Return the tables of the probe and its floor, rows by set; none without scores."""
    note = "Percent. " + " ".join(f"{spec.id}: {spec.description}." for spec in EPIC_METRICS.values())
    note += " Means over the seeds; intervals (95 % unless set otherwise) are over test videos, of one seed alone."
    note += f" {LEGEND}" if weak.intersection(NAMES) else ""
    title, header = "Anticipation, {}, {}", ("set", "row")
    lines = [((subset, marked(NAMES[row], row, weak)), subset, row) for subset, row in product(SUBSETS, NAMES)]
    rules = tuple(len(NAMES) * at for at in range(1, len(SUBSETS)))
    return _by_space(title, header, lines, scores, note, rules, has_sizes=True) if scores else []


def token_tables(scores: Sequence[ProbeScore], contrasts: Sequence[TokenContrast], weak: frozenset[str]) -> list[Table]:
    """Return the tables of the rows with a token, of all clips, and that of the differences."""
    note = (
        "Percent. Every row starts from the visual probe and is fine-tuned for the same number of epochs on the same "
        f"clips; the first {len(TOKEN_CONTROLS)} are controls, which see nothing of the clip but its pixel tokens. "
        "Oracle sees the head motion of the action itself: a condition, not a prediction. Means over the seeds; "
        "intervals over test videos, for one seed only."
    ) + (f" {LEGEND}" if weak.intersection(TOKEN_NAMES) else "")
    lines = [((marked(method.name, method.id, weak), method.given), "overall", method.id) for method in TOKEN_METHODS]
    rules = (len(TOKEN_CONTROLS), len(TOKEN_METHODS) - 1)
    tables = _by_space("With TrajPilot’s token, {}", ("row", "the token"), lines, scores, note, rules)
    of = {(contrast.row, contrast.against, contrast.metric): contrast for contrast in contrasts}
    differences: list[tuple[Cell, ...]] = []
    for row, against in dict.fromkeys((contrast.row, contrast.against) for contrast in contrasts):
        cells = [of[row, against, metric] for metric in EPIC_METRICS]
        values = [Value(contrast.difference, contrast.low, contrast.high, digits=2) for contrast in cells]
        differences.append((TOKEN_NAMES[row], TOKEN_NAMES[against], *values))
    header = ("row", "less", *EPIC_METRICS)
    note = "Points, every tested clip, means over the seeds; intervals are paired, over test videos."
    return [*tables, Table("Differences on the same clips", header, tuple(differences), note)]


def _value_cell(of_seeds: Sequence[ProbeScore]) -> Cell:
    """Return the mean over the seeds, with its interval where there is one seed."""
    values = [score.value for score in of_seeds if score.value is not None]
    if not values:
        return "no clip"
    if len(of_seeds) > 1:
        return Value(mean(values), digits=2)
    return Value(values[0], of_seeds[0].low, of_seeds[0].high, digits=2)


def build_alone(inputs: Inputs, cfg: CompletedReport, stages: Sequence[AnyStage]) -> dict[str, bytes]:
    """Return the documents of the report by name; published figures only next to encoded features of recorded clips."""
    results = action_results(inputs.table, has_token=cfg.has_token)
    tables = results.tables()
    curves = [("probe", rows_of(CurvePoint, inputs.table("probe_curves"))), *results.trainings()]
    rejects = {stage.name: inputs.table(rejects_entry(stage.name)) for stage in stages}
    takes = inputs.table("takes", ("take_id", "corpus", "split"))
    is_simulated = SIMULATED in takes["corpus"].to_pylist()  # no setting can hide it
    title = spec_of(cfg.corpus).title if cfg.corpus else "a corpus"
    title = f"{title}, released features {cfg.released}" if cfg.released else title
    where = f"a simulated world in the file layout of {title}" if is_simulated else title
    protocol = ROWS if cfg.released else EVERY_PATCH if cfg.has_every_patch else TEMPORAL
    warnings = notices(cfg.released, simulated=is_simulated)
    published = () if warnings else (published_table(),)
    page = Page(
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
        "; ".join(warnings),
        format=FORMAT,
        scores=records(results.scores),
        judgements=records(results.judgements),
        tables=[table.json() for table in tables],
        **({"contrasts": records(results.contrasts)} if results.has_token else {}),
    )


def verdict(results: ActionResults, *, is_simulated: bool) -> str:
    """Return what a retrieved trajectory adds to the probe; without tokens, how far the probe gets."""
    contrasts = [contrast for contrast in results.contrasts if contrast.metric == DECIDES]
    metric = f"{DECIDES} (class-mean recall of the best five)"
    weak, judged = results.undertrained, results.judgements
    text = comparison(contrasts, TOKEN_NAMES, metric, weak, judged, is_simulated=is_simulated)
    if text:
        return text
    place = ("challenge", "overall", DECIDES)
    of_row = {
        row: _value_cell([s for s in results.scores if (s.space, s.subset, s.metric, s.row) == (*place, row)])
        for row in NAMES
    }
    text = (
        f"the {NAMES['probe']} reaches {of_row['probe']} % of {metric}; answering the {NAMES[FLOOR]} reaches "
        f"{of_row[FLOOR]} %."
    )
    below = [f"the {NAMES['probe']}"] if "probe" in below_floors(judged) else []
    return placed(text, below, is_simulated=is_simulated, unit="videos")


def facts(
    results: ActionResults, rejects: Mapping[str, pa.Table], n_takes: int, segments: pa.Table, cfg: CompletedReport
) -> list[str]:
    """Return the lines below the title."""
    splits = segments["split"].to_pylist()
    counted = ", ".join(f"{splits.count(split):,} {split}" for split in ("train", "dev", "test"))
    lost = sum(sum(table["n_units"].to_pylist()) for table in rejects.values())
    of_probe = [score for score in results.scores if score.row in NAMES]
    seeds = sorted({score.seed for score in of_probe})
    trials = sorted({score.trial for score in of_probe if score.trial})
    tuned = sorted({f"{TOKEN_NAMES[s.row]}: {s.trial}" for s in results.scores if s.row in TOKEN_NAMES})
    with_token = f"fine-tuned with a token, all rows equally long, chosen on dev: {'; '.join(tuned)}"
    return [
        f"{n_takes:,} videos; clips: {counted}; {lost:,} rows lost to rejects",
        f"seeds {', '.join(map(str, seeds)) or 'none'}; chosen on dev: {'; '.join(trials)}",
        with_token if results.has_token else NOT_RUN,
        f"configuration {cfg.config_digest[:16]}" if cfg.config_digest else "configuration not given",
    ]


def published_table() -> Table:
    """Return the paper's table, which is of another protocol."""
    metrics = list(EPIC_METRICS)[:4]
    rows = tuple(
        (row, *(Value(numbers[name], digits=2) if name in numbers else "–" for name in metrics))
        for row, numbers in published_events("ek100", ACTION_METRICS).items()
    )
    return Table("Published (arXiv 2605.20388, EPIC-KITCHENS-100), another protocol", ("row", *metrics), rows)
