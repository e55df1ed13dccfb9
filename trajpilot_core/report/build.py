"""Builds the report of a corpus with plans: reads the tables, draws, renders one offline page, JSON and LaTeX."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pydantic import JsonValue

from schemas.config import CompletedReport
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import Judgement
from trajpilot_core.corpora.records.videos import NO_VIDEO
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import AnyStage, Inputs, Runtime
from trajpilot_core.evaluation.ceiling import NO_CEILING
from trajpilot_core.methods import examined, method
from trajpilot_core.metrics import METRICS
from trajpilot_core.report import health
from trajpilot_core.report.figures import report_charts
from trajpilot_core.report.figures.base import Material
from trajpilot_core.report.figures.rows import main_legend
from trajpilot_core.report.gallery.pictures import Thumbnail, frames_of, path_data, three_views
from trajpilot_core.report.gallery.windows import (
    CLASSES,
    Example,
    best_example,
    draw_gallery,
    examples,
    load_facts,
    load_threshold,
    video_files,
)
from trajpilot_core.report.loaded import (
    RECORDS,
    Loaded,
    caption,
    capture_note,
    corpus_title,
    facts,
    limits,
    load,
    mask_sentence,
    sampling_sentence,
    shuffle_sentence,
)
from trajpilot_core.report.offline import FORMAT, dump, records, render_offline
from trajpilot_core.report.tables import latex, published
from trajpilot_core.report.tables.ceilings import ceilings_of
from trajpilot_core.report.tables.diagnostics import answer_tables, diagnostics_tables
from trajpilot_core.report.tables.results import (
    Results,
    absent_rows,
    all_tables,
    anticipation_tables,
    attribution_tables,
    closed_tables,
    results_of,
    settings_table,
)
from trajpilot_core.report.tables.table import LEGEND, SIGNS, number
from trajpilot_core.report.verdict import opening_table, story_of, verdict_of

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
    loaded = load(inputs, stages)
    results = results_of(loaded.metrics, loaded.judgements)
    drawn = draw_gallery(inputs, cfg)
    shown = examples(drawn, load_facts(drawn, inputs), load_threshold(inputs))
    files = video_files(drawn, inputs) if cfg.frames else {}
    steps.begin("decoding the frames of the gallery")
    pictures, rejects = _pictures(shown, files, cfg, runtime)
    steps.begin("writing the pages")
    reason = next((row.detail for row in loaded.judgements if row.check == NO_CEILING), "")
    bounds = ceilings_of(loaded.ceilings, simulated=loaded.simulated, reason=reason, undertrained=results.undertrained)
    has_heads, n_labels = cfg.heads is not None, loaded.labels.num_rows
    tables = [
        *opening_table(results, has_heads=has_heads),
        *closed_tables(results, cfg, n_labels),
        *all_tables(results),
        *anticipation_tables(results),
        *attribution_tables(results),
    ]
    content: dict[str, Any] = {
        "title": f"TrajPilot on {corpus_title(loaded, cfg)}",
        "facts": facts(loaded, results, cfg),
        "verdict": verdict_of(
            results,
            simulated=loaded.simulated,
            has_heads=has_heads,
            is_broken=bounds.state == "broken",
            gate=loaded.gate,
            judgements=loaded.judgements,
        ),
        "tables": {table.id: table for table in tables},
        "settings": settings_table(cfg, n_labels, is_simulated=loaded.simulated),
        "ceilings": bounds,
        "limits": limits(loaded, cfg),
        "absent_rows": absent_rows(results),
        "drawn": drawn,
    }
    note = caption(loaded, cfg) + (f". {LEGEND}" if results.undertrained else "")
    documents = {
        "report.html": _html(loaded, results, cfg, content | {"examples": shown, "thumbnails": pictures}),
        "report.json": dump(_json(loaded, results, content)),
        "metrics.tex": latex.document(tables, bounds.tables[:1], note).encode(),
    }
    return Report(documents, rejects, len(shown))


def _pictures(
    shown: Sequence[Example], files: Mapping[str, str], cfg: CompletedReport, runtime: Runtime
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


def _html(loaded: Loaded, results: Results, cfg: CompletedReport, content: Mapping[str, Any]) -> bytes:
    """Render the page; every text from the data is escaped, and only our own script may run."""
    printed, ahead = published.published_for(results, cfg), published.anticipation_for(results, cfg)
    material = Material(results, loaded.ceilings, loaded.gate, loaded.headroom, loaded.curves)
    is_recorded, drawn, shown = printed is not None, content["drawn"], content["examples"]
    return render_offline(
        "report.html.j2",
        "report.js",
        **content,
        loaded=loaded,
        results=results,
        cfg=cfg,
        question=story_of(results.variants()).question,
        has_retrieval=any(method(row).follows for row in results.variants()),
        charts=report_charts(material),
        legend_of_mark=LEGEND if results.undertrained else "",
        main_legend=main_legend(material),
        shuffles=shuffle_sentence(loaded.shuffles),
        samplings=sampling_sentence(loaded.samplings),
        masks=mask_sentence(loaded.mask_coverage),
        capture_note=capture_note(loaded.metrics),
        counts=health.counts(loaded.takes, loaded.segments, loaded.windows),
        flows=health.flows(loaded.outputs, loaded.rejects),
        problems=health.problems(loaded.rejects),
        published=published.published_table(
            [
                *published.comparisons(results, printed),
                *published.comparisons(results, ahead),
                *published.pool_comparisons(loaded.gate, loaded.headroom, cfg, is_recorded=is_recorded),
            ]
        ),
        published_source="; ".join(table.source for table in (printed, ahead) if table),
        diagnostics=diagnostics_tables(loaded.pair_distances, loaded.progress_shares, cfg, is_recorded=is_recorded),
        answers=answer_tables(loaded.vlm_counts, loaded.endpoint_cache),
        data=path_data([example.paths for example in shown]),
        groups=_groups(loaded.judgements),
        signs=SIGNS,
        rows=[method(variant) for variant in results.variants()],
        metrics=METRICS,
        classes=CLASSES,
        gallery_row=method(drawn.row) if drawn.row else None,
        examined_name=examined().name,
        best=best_example(shown),
        number=number,
        views=three_views,
        count=lambda value: f"{value:,}".replace(",", "\u202f"),  # thin spaces
        identity=next((j for j in loaded.judgements if j.check.startswith(GATE_IDENTITY)), None),
    )


def _groups(judgements: Sequence[Judgement]) -> list[tuple[str, list[tuple[str, Judgement]]]]:
    """Return (title, [(text, judgement)]) per group of checks, in the order of the page."""
    grouped = [
        (title, [(j.check.split(": ", 1)[1], j) for j in judgements if j.check.startswith(f"{prefix}: ")])
        for prefix, title in GROUPS.items()
    ]
    grouped.append((OTHER, [(j.check, j) for j in judgements if j.check.split(": ")[0] not in GROUPS]))
    return [(title, inside) for title, inside in grouped if inside]


def _json(loaded: Loaded, results: Results, content: Mapping[str, Any]) -> JsonValue:
    """Return the report as JSON."""
    settings, ceilings, drawn = content["settings"], content["ceilings"], content["drawn"]
    return {
        "format": FORMAT,
        "title": content["title"],
        "simulated": loaded.simulated,
        "facts": dict(content["facts"]),
        "verdict": content["verdict"].json(),
        **{name: records(getattr(loaded, name)) for name in RECORDS},
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
