"""Builds the report of a corpus with plans: reads the tables, draws, renders one offline page, JSON and LaTeX."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue

from schemas.config import CompletedReport
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import Judgement
from trajpilot_core.corpora.records.videos import NO_VIDEO
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import AnyStage, Runtime
from trajpilot_core.evaluation.ceiling import NO_CEILING
from trajpilot_core.methods import examined, method
from trajpilot_core.metrics import METRICS
from trajpilot_core.report import health, loaded
from trajpilot_core.report.figures import report_charts
from trajpilot_core.report.figures.base import Material
from trajpilot_core.report.figures.rows import main_legend
from trajpilot_core.report.gallery import windows as gallery
from trajpilot_core.report.gallery.pictures import Thumbnail, frames_of, three_views
from trajpilot_core.report.offline import FORMAT, dump, records, render_offline
from trajpilot_core.report.tables import latex, published
from trajpilot_core.report.tables import results as tables
from trajpilot_core.report.tables.ceilings import ceilings_of
from trajpilot_core.report.tables.diagnostics import answer_tables, diagnostics_tables
from trajpilot_core.report.tables.table import LEGEND, SIGNS, number
from trajpilot_core.report.verdict import opening_table, story_of, verdict_of
from trajpilot_core.store.reading import Inputs

GATE_IDENTITY = "identity: overall gain = open rate"
OTHER = "Other checks"
GROUPS = {
    "demo": "What the demo must show",
    "trained": "Do models and rows count as trained?",
    "leak": "No test data was seen in training",
    "ceiling": "No row knows more than it can",
    "identity": "Identities that hold by definition",
}


class Report(NamedTuple):
    """The output of the stage."""

    documents: Mapping[str, bytes]
    rejects: Sequence[Reject]
    n_examples: int


def build(inputs: Inputs, cfg: CompletedReport, stages: Sequence[AnyStage], runtime: Runtime) -> Report:
    """Build all documents; `runtime`: the folder of the videos, and the number of decoders."""
    steps = CountedSteps(runtime.progress, after=3)
    steps.begin("reading the tables")
    read = loaded.load(inputs, stages)
    results = tables.results_of(read.metrics, read.judgements)
    drawn = gallery.draw_gallery(inputs, cfg)
    shown = gallery.examples(drawn, gallery.load_facts(drawn, inputs), gallery.load_threshold(inputs))
    files = gallery.video_files(drawn, inputs) if cfg.frames else {}
    steps.begin("decoding the frames of the gallery")
    pictures, rejects = _pictures(shown, files, cfg, runtime)
    steps.begin("writing the pages")
    reason = next((row.detail for row in read.judgements if row.check == NO_CEILING), "")
    bounds = ceilings_of(read.ceilings, simulated=read.simulated, reason=reason, undertrained=results.undertrained)
    has_heads, n_labels = cfg.heads is not None, read.labels.num_rows
    shown_tables = [
        *opening_table(results, has_heads=has_heads),
        *tables.closed_tables(results, cfg, n_labels),
        *tables.all_tables(results),
        *tables.anticipation_tables(results),
        *tables.attribution_tables(results),
    ]
    content: dict[str, Any] = {
        "title": f"TrajPilot on {loaded.corpus_title(read, cfg)}",
        "facts": loaded.facts(read, results, cfg),
        "verdict": verdict_of(
            results,
            simulated=read.simulated,
            has_heads=has_heads,
            is_broken=bounds.state == "broken",
            gate=read.gate,
            judgements=read.judgements,
        ),
        "tables": {table.id: table for table in shown_tables},
        "settings": tables.settings_table(cfg, n_labels, is_simulated=read.simulated),
        "ceilings": bounds,
        "limits": loaded.limits(read, cfg),
        "absent_rows": tables.absent_rows(results),
        "drawn": drawn,
    }
    note = loaded.caption(read, cfg) + (f". {LEGEND}" if results.undertrained else "")
    documents = {
        "report.html": _html(read, results, cfg, content | {"examples": shown, "thumbnails": pictures}),
        "report.json": dump(_json(read, results, content)),
        "metrics.tex": latex.document(shown_tables, bounds.tables[:1], note).encode(),
    }
    return Report(documents, rejects, len(shown))


def _pictures(
    shown: Sequence[gallery.Example], files: Mapping[str, str], cfg: CompletedReport, runtime: Runtime
) -> tuple[dict[tuple[str, float], Thumbnail], list[Reject]]:
    """Decode the frames of the gallery's windows and of the retrieved ones, one job per video."""
    times: dict[str, set[float]] = {}
    for example in shown:
        for window in (example, example.retrieved):
            if window is not None:
                times.setdefault(window.take_id, set()).update(window.times_s)
    if "://" in runtime.data_root:
        reason = Thumbnail(None, "frames are shown for a local data root only")
        return {(take, time): reason for take in files for time in times.get(take, ())}, []
    absent = {take for take in times if take not in files}
    frames, rejects = frames_of(times, files, runtime.data_root, cfg.thumbnail_px, runtime.workers)
    without = [take for take in times if not files.get(take, "absent")]
    frames |= {(take, time): Thumbnail(None, NO_VIDEO) for take in without for time in times[take]}
    if cfg.frames:
        rejects += [reject("report", RejectCode.VIDEO_MISSING, t, "the take names no video", n_units=0) for t in absent]
    return frames, rejects


def _html(read: loaded.Loaded, results: tables.Results, cfg: CompletedReport, content: Mapping[str, Any]) -> bytes:
    """Render the page; every text from the data is escaped."""
    printed, ahead = published.published_for(results, cfg), published.anticipation_for(results, cfg)
    material = Material(results, read.ceilings, read.gate, read.headroom, read.curves)
    is_recorded, drawn, shown = printed is not None, content["drawn"], content["examples"]
    return render_offline(
        "report.html.j2",
        **content,
        loaded=read,
        results=results,
        cfg=cfg,
        question=story_of(results.variants()).question,
        has_retrieval=any(method(row).follows for row in results.variants()),
        charts=report_charts(material),
        legend_of_mark=LEGEND if results.undertrained else "",
        main_legend=main_legend(material),
        shuffles=loaded.shuffle_sentence(read.shuffles),
        samplings=loaded.sampling_sentence(read.samplings),
        masks=loaded.mask_sentence(read.mask_coverage),
        capture_note=loaded.capture_note(read.metrics),
        counts=health.counts(read.takes, read.segments, read.windows),
        flows=health.flows(read.outputs, read.rejects),
        problems=health.problems(read.rejects),
        published=published.published_table(
            [
                *published.comparisons(results, printed),
                *published.comparisons(results, ahead),
                *published.pool_comparisons(read.gate, read.headroom, cfg, is_recorded=is_recorded),
            ]
        ),
        published_source="; ".join(table.source for table in (printed, ahead) if table),
        diagnostics=diagnostics_tables(read.pair_distances, read.progress_shares, cfg, is_recorded=is_recorded),
        answers=answer_tables(read.vlm_counts, read.endpoint_cache),
        groups=_groups(read.judgements),
        signs=SIGNS,
        rows=[method(variant) for variant in results.variants()],
        metrics=METRICS,
        classes=gallery.CLASSES,
        gallery_row=method(drawn.row) if drawn.row else None,
        examined_name=examined().name,
        best=gallery.best_example(shown),
        number=number,
        views=three_views,
        count=lambda value: f"{value:,}".replace(",", "\u202f"),  # thin spaces
        identity=next((j for j in read.judgements if j.check.startswith(GATE_IDENTITY)), None),
    )


def _groups(judgements: Sequence[Judgement]) -> list[tuple[str, list[tuple[str, Judgement]]]]:
    """Return (title, [(text, judgement)]) per group of checks, in the order of the page."""
    grouped = [
        (title, [(j.check.split(": ", 1)[1], j) for j in judgements if j.check.startswith(f"{prefix}: ")])
        for prefix, title in GROUPS.items()
    ]
    grouped.append((OTHER, [(j.check, j) for j in judgements if j.check.split(": ")[0] not in GROUPS]))
    return [(title, inside) for title, inside in grouped if inside]


def _json(read: loaded.Loaded, results: tables.Results, content: Mapping[str, Any]) -> JsonValue:
    """Return the report as JSON."""
    settings, ceilings, drawn = content["settings"], content["ceilings"], content["drawn"]
    return {
        "format": FORMAT,
        "title": content["title"],
        "simulated": read.simulated,
        "facts": dict(content["facts"]),
        "verdict": content["verdict"].json(),
        **{name: records(getattr(read, name)) for name in loaded.RECORDS},
        "tables": [table.json() for table in content["tables"].values()],
        "settings": None if settings is None else settings.json(),
        "ceilings_say": [ceilings.headline, *ceilings.broken],
        "undertrained": [*sorted(results.undertrained)],
        "limits": content["limits"],
        "absent_rows": content["absent_rows"],
        "gallery": {name: list(windows) for name, windows in drawn.classes.items()},
        "gallery_sizes": dict(drawn.sizes),
        "gallery_windows": drawn.n_windows,
        "gallery_row": drawn.row,
    }
