"""The report of a corpus without plans: what the attentive probe anticipates. Source: docs/decisions/epic-probe.md.

The page, `report.json` and both LaTeX files contain the same tables; the paper's numbers are never shown next to those
of a simulated world.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.config import CompletedReport
from schemas.features import released_note
from schemas.results import CurvePoint
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.stage import AnyStage, Inputs
from trajpilot_core.evaluation.event_rows import TOKEN_NAMES
from trajpilot_core.metrics.epic_kitchens import EPIC_METRICS
from trajpilot_core.paper.published import published_actions
from trajpilot_core.report import health
from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.figures.curves import training_charts
from trajpilot_core.report.offline import FORMAT, Section, TablePage, checks_section, records
from trajpilot_core.report.tables.actions import FLOOR, NAMES, ActionResults, action_results, value_cell
from trajpilot_core.report.tables.table import Table, Value
from trajpilot_core.report.verdict import below_floors, comparison, too_small

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


def build_alone(inputs: Inputs, cfg: CompletedReport, stages: Sequence[AnyStage]) -> dict[str, bytes]:
    """Return the documents of the report by name; published figures only next to encoded features of recorded clips.

    Args:
        inputs: the entries that the stage reads of a corpus without plans.
    """
    results = action_results(inputs.table, inputs.models("probe_models").about, has_token=cfg.has_token)
    tables = results.tables()
    curves = [("probe", rows_of(CurvePoint, inputs.table("probe_curves"))), *results.trainings()]
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
        row: value_cell([s for s in results.scores if (s.space, s.subset, s.metric, s.row) == (*place, row)])
        for row in NAMES
    }
    where = "In this simulated world" if is_simulated else "On the videos that were scored"
    text = (
        f"{where}, the {NAMES['probe']} reaches {of_row['probe']} % of {DECIDES} (class-mean recall of the best five); "
        f"answering the {NAMES[FLOOR]} reaches {of_row[FLOOR]} %."
    )
    is_below = is_simulated and "probe" in below_floors(judged)
    return f"{too_small(['the ' + NAMES['probe']])} {text}" if is_below else text


def facts(
    results: ActionResults, rejects: Mapping[str, pa.Table], n_takes: int, segments: pa.Table, cfg: CompletedReport
) -> list[str]:
    """Return the lines below the title."""
    splits = segments["split"].to_pylist()
    counted = ", ".join(f"{splits.count(split):,} {split}" for split in ("train", "dev", "test"))
    lost = sum(health.lost_units(rejects).values())
    of_probe = [score for score in results.scores if score.row in NAMES]
    seeds = sorted({score.seed for score in of_probe})
    trials = sorted({score.trial for score in of_probe if score.trial})
    return [
        f"{n_takes:,} videos; clips: {counted}; {lost:,} rows lost to rejects",
        f"seeds {', '.join(map(str, seeds)) or 'none'}; chosen on dev: {'; '.join(trials)}",
        NOT_RUN
        if not results.has_token
        else f"fine-tuned with a token, all rows equally long, chosen on dev: {'; '.join(results.chosen())}",
        f"configuration {cfg.config_digest[:16]}" if cfg.config_digest else "configuration not given",
    ]


def published_table() -> Table:
    """Return the paper's table, which is of another protocol."""
    metrics = list(EPIC_METRICS)[:4]
    rows = tuple(
        (row, *(Value(numbers[name], digits=2) if name in numbers else "–" for name in metrics))
        for row, numbers in published_actions().items()
    )
    return Table("Published (arXiv 2605.20388, EPIC-KITCHENS-100), another protocol", ("row", *metrics), rows)
