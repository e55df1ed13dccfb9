"""Put the report together: read the tables, draw, render."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.config import ReportConfig
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import Ceiling, CurvePoint, GateRow, Headroom, Judgement, Metric, ShuffleScore
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import AnyStage, Inputs, Runtime
from trajpilot_core.report import health, json_report
from trajpilot_core.report.figures import report_charts
from trajpilot_core.report.figures.base import Material
from trajpilot_core.report.figures.horizons import main_legend
from trajpilot_core.report.gallery.frames import Thumbnail, Wanted, thumbnails
from trajpilot_core.report.gallery.load import draw_gallery, load_facts, video_files
from trajpilot_core.report.gallery.windows import Example, GalleryWindows, examples
from trajpilot_core.report.limits import limits
from trajpilot_core.report.page import Page, render
from trajpilot_core.report.tables import latex, published
from trajpilot_core.report.tables.attribution import absent_rows, attribution_tables
from trajpilot_core.report.tables.ceilings import ceilings_of
from trajpilot_core.report.tables.names import NOT_BUILT
from trajpilot_core.report.tables.results import Results, all_tables, results_of
from trajpilot_core.report.tables.table import number


@dataclass(frozen=True)
class Report:
    """Everything that the stage writes."""

    documents: Mapping[str, bytes]
    rejects: Sequence[Reject]
    n_examples: int


@dataclass(frozen=True)
class Loaded:
    """The small tables, as records, and of the large ones the columns that are counted."""

    metrics: list[Metric]
    ceilings: list[Ceiling]
    judgements: list[Judgement]
    gate: list[GateRow]
    headroom: list[Headroom]
    shuffles: list[ShuffleScore]
    curves: list[tuple[str, list[CurvePoint]]]
    rejects: dict[str, pa.Table]
    takes: pa.Table
    segments: pa.Table
    labels: pa.Table
    windows: pa.Table
    motions: pa.Table
    outputs: dict[str, tuple[str, int]]
    """Stage that drops rows -> what one row of it is, and how many came out."""


def load(inputs: Inputs, stages: Sequence[AnyStage]) -> Loaded:
    """Read the tables."""
    return Loaded(
        rows_of(Metric, inputs.table("metrics")),
        rows_of(Ceiling, inputs.table("ceilings")),
        rows_of(Judgement, inputs.table("judgements")),
        rows_of(GateRow, inputs.table("gate")),
        rows_of(Headroom, inputs.table("headroom")),
        rows_of(ShuffleScore, inputs.table("shuffles")),
        [
            (s.name, rows_of(CurvePoint, inputs.table(of)))
            for s in stages
            for of in s.writes
            if of == f"{s.name}_curves"
        ],
        {stage.name: inputs.table(rejects_entry(stage.name)) for stage in stages},
        inputs.table("takes", ("take_id", "corpus", "split", "scenario", "duration_s")),
        inputs.table("segments", ("split",)),
        inputs.table("labels", ("n_train", "n_test")),
        inputs.table("windows", ("split", "horizon")),
        inputs.table("motions", ("source", "frame", "scale")),
        {
            s.name: (s.output.unit, s.output.count(inputs.table(s.output.entry, s.output.columns)))
            for s in stages
            if s.output
        },
    )


def build(inputs: Inputs, cfg: ReportConfig, stages: Sequence[AnyStage], runtime: Runtime) -> Report:
    """Build all documents.

    Args:
        inputs: the entries that the stage declares.
        cfg: settings of the report.
        stages: those whose rejects and outputs are counted.
        runtime: where the videos lie, and how many decoders may run.
    """
    steps = CountedSteps(runtime.progress, after=3)
    steps.begin("reads the tables")
    loaded = load(inputs, stages)
    results = results_of(loaded.metrics, loaded.judgements)
    drawn = draw_gallery(inputs, cfg)
    shown = examples(drawn, load_facts(drawn, inputs))
    files = video_files(drawn, inputs) if cfg.frames else {}
    steps.begin("decodes the frames of the gallery")
    pictures, rejects = _pictures(shown, files, cfg, runtime)
    steps.begin("writes the pages")
    page = _page(loaded, results, cfg, drawn, shown, pictures)
    note = _note(loaded, cfg)
    bounds = latex.ceiling_tables(page.ceilings.tables[:1], note).encode()
    documents = {
        "report.html": render(page),
        "report.json": json_report.dump(_json(page, loaded)),
        "metrics.tex": latex.document(page.tables, note, with_intervals=False).encode() + bounds,
        "metrics_intervals.tex": latex.document(page.tables, note, with_intervals=True).encode() + bounds,
    }
    return Report(documents, rejects, len(shown))


def _pictures(
    shown: Sequence[Example], files: Mapping[str, str], cfg: ReportConfig, runtime: Runtime
) -> tuple[dict[tuple[str, float], Thumbnail], list[Reject]]:
    """Decode the start and goal frames of the gallery, one job per video."""
    times: dict[str, set[float]] = {}
    for example in shown:
        times.setdefault(example.take_id, set()).update((example.start_s, example.goal_s))
    if "://" in runtime.data_root:
        reason = Thumbnail(None, "frames are shown for a local data root only")
        return {(take, time): reason for take in files for time in times[take]}, []
    absent = {take for take in times if take not in files}
    wanted = [
        Wanted(take, f"{runtime.data_root}/{file}", tuple(sorted(times[take]))) for take, file in sorted(files.items())
    ]
    made, rejects = thumbnails(wanted, cfg.thumbnail_px, runtime.workers)
    if cfg.frames:
        rejects += [reject("report", RejectCode.VIDEO_MISSING, t, "the take names no video", n_units=0) for t in absent]
    return made, rejects


def _page(
    loaded: Loaded,
    results: Results,
    cfg: ReportConfig,
    drawn: GalleryWindows,
    shown: Sequence[Example],
    pictures: Mapping[tuple[str, float], Thumbnail],
) -> Page:
    """Gather what the page shows."""
    material = Material(results, loaded.ceilings, loaded.gate, loaded.headroom, loaded.curves)
    return Page(
        title=f"TrajPilot on {corpus_title(loaded, cfg)}",
        simulated=_simulated(loaded),
        facts=_facts(loaded, results, cfg),
        tables=[*all_tables(results), *attribution_tables(results)],
        ceilings=ceilings_of(loaded.ceilings, simulated=_simulated(loaded)),
        judgements=loaded.judgements,
        variants=results.variants(),
        undertrained=results.undertrained,
        charts=report_charts(material),
        main_legend=main_legend(material),
        gate=loaded.gate,
        headroom=loaded.headroom,
        shuffles=_shuffles(loaded.shuffles),
        counts=health.counts(loaded.takes, loaded.segments, loaded.windows),
        flows=health.flows(loaded.outputs, loaded.rejects),
        problems=health.problems(loaded.rejects),
        published=published.comparisons(results, cfg),
        published_source=published.SOURCE,
        drawn=drawn,
        examples=shown,
        thumbnails=pictures,
        frames_shown=cfg.frames,
        gallery_seed=cfg.seed,
        capture_note=_capture_note(loaded.metrics),
        limits=_limits(loaded, results),
        absent_rows=absent_rows(results),
    )


def _simulated(loaded: Loaded) -> bool:
    """Return whether any take was simulated; the takes say so themselves, no setting can hide it."""
    return SIMULATED in loaded.takes["corpus"].to_pylist()


def corpus_title(loaded: Loaded, cfg: ReportConfig) -> str:
    """Name the corpus; a simulated one never carries the name of the real one alone."""
    names = ", ".join(sorted({m.corpus for m in loaded.metrics}))
    title = spec_of(cfg.corpus).title if cfg.corpus else names
    title = f"{title}, closed vocabulary" if cfg.is_closed else title
    return f"a simulated world in the file layout of {title}" if _simulated(loaded) else title


def _note(loaded: Loaded, cfg: ReportConfig) -> str:
    """Caption of every LaTeX table: what was measured on what."""
    takes = max((m.n_takes for m in loaded.metrics), default=0)
    where = corpus_title(loaded, cfg)
    if _simulated(loaded):
        where = "SIMULATED WORLD, not comparable with published numbers"
    return f"{where}; {takes} test takes; 95 % intervals over takes; ED in steps, all else in percent"


def _scored(loaded: Loaded) -> tuple[int, int]:
    """Windows and takes that were scored."""
    pooled = [m for m in loaded.metrics if m.pooling == "sample" and m.cluster == "take"]
    return max((m.n_windows for m in pooled), default=0), max((m.n_takes for m in pooled), default=0)


def _seeds(metrics: Sequence[Metric]) -> list[int]:
    """Seeds of the learned rows."""
    return sorted({m.seed for m in metrics if m.seed is not None})


def _facts(loaded: Loaded, results: Results, cfg: ReportConfig) -> list[tuple[str, str]]:
    """What ran, on what: the header of the page."""
    windows, takes = _scored(loaded)
    hours = float(pc.sum(loaded.takes["duration_s"]).as_py() or 0) / 3600
    poses = sorted({f"{r['source']}, {r['frame']} frame, {r['scale']}" for r in _distinct(loaded.motions)})
    lost = sum(health.lost_units(loaded.rejects).values())
    versions = ", ".join(f"{name} {version}" for name, version in json_report.versions().items())
    return [
        ("corpus", corpus_title(loaded, cfg)),
        ("takes", f"{loaded.takes.num_rows} ({hours:.1f} h), of which {takes} test takes were scored"),
        ("segments, labels", f"{loaded.segments.num_rows} segments, {loaded.labels.num_rows} labels"),
        ("windows", f"{windows} test windows, {loaded.windows.num_rows} in all"),
        ("head motion", "; ".join(poses) or "none"),
        (
            "rows, seeds",
            f"{len(results.variants())} rows, seeds {', '.join(map(str, _seeds(loaded.metrics))) or 'none'}",
        ),
        ("lost to rejects", f"{lost} rows, see Data health"),
        ("configuration", cfg.config_digest[:16] if cfg.config_digest else "not given"),
        ("versions", versions),
    ]


def _distinct(table: pa.Table) -> list[dict[str, Any]]:
    """Distinct rows of a narrow table."""
    return list(table.group_by(table.column_names).aggregate([]).to_pylist())


def _shuffles(rows: Sequence[ShuffleScore]) -> str:
    """State in one sentence what shuffling the middle trajectories does, over all derangements."""
    if not rows:
        return ""
    horizons = sorted({row.horizon for row in rows})
    parts = []
    for horizon in horizons:
        values = [row.m1 for row in rows if row.horizon == horizon]
        parts.append(f"H={horizon} {number(mean(values))} ({number(min(values))} to {number(max(values))})")
    return (
        f"M@1 with shuffled middle trajectories, mean and range of {len(rows) // len(horizons)} shuffles: "
        + ", ".join(parts)
    )


def _capture_note(metrics: Sequence[Metric]) -> str:
    """State how much wider the intervals are over captures than over takes, where there are any."""

    def widths(cluster: str) -> list[float]:
        chosen = [
            m for m in metrics if m.cluster == cluster and m.pooling == "plain" and m.metric == "M@1" and m.seed is None
        ]
        return [m.high - m.low for m in chosen if m.reference is None]

    takes, captures = widths("take"), widths("capture")
    if not captures or not math.isfinite(mean(takes)) or mean(takes) == 0:
        return ""
    if not math.isfinite(mean(captures)):
        return "Takes of one capture are related, and too few captures were scored for an interval over them."
    ratio = mean(captures) / mean(takes)
    return f"Takes of one capture are related: over captures the intervals of M@1 are {ratio:.2f} times as wide."


def _limits(loaded: Loaded, results: Results) -> list[str]:
    """The limits in words."""
    return limits(
        results,
        loaded.judgements,
        ceilings_of(loaded.ceilings, simulated=_simulated(loaded)),
        simulated=_simulated(loaded),
        n_takes=_scored(loaded)[1],
        n_seeds=len(_seeds(loaded.metrics)),
        unseen_percent=health.unseen_share(loaded.labels),
        lost=health.lost_units(loaded.rejects),
        scales=[row["scale"] for row in _distinct(loaded.motions)],
    )


def _json(page: Page, loaded: Loaded) -> JsonValue:
    """The report for programs."""
    return {
        "format": json_report.FORMAT,
        "title": page.title,
        "simulated": page.simulated,
        "facts": dict(page.facts),
        "metrics": json_report.records(loaded.metrics),
        "tables": [json_report.table_json(table) for table in page.tables],
        "ceilings": json_report.records(loaded.ceilings),
        "ceilings_say": [page.ceilings.headline, *page.ceilings.broken],
        "judgements": json_report.records(loaded.judgements),
        "gate": json_report.records(loaded.gate),
        "headroom": json_report.records(loaded.headroom),
        "shuffles": json_report.records(loaded.shuffles),
        "undertrained": [*sorted(page.undertrained)],
        "limits": [*page.limits],
        "not_built": NOT_BUILT,
        "absent_rows": page.absent_rows,
        "gallery": {name: list(windows) for name, windows in page.drawn.classes.items()},
    }
