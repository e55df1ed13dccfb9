"""Builds the report: reads the tables, draws, renders."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from schemas.config import CompletedReport
from schemas.rejects import Reject, RejectCode, reject
from trajpilot_core.corpora.records.videos import NO_VIDEO
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import AnyStage, Inputs, Runtime
from trajpilot_core.evaluation.ceiling_check import NO_CEILING
from trajpilot_core.report import json_report
from trajpilot_core.report.gallery.pictures import Thumbnail, frames_of
from trajpilot_core.report.gallery.windows import (
    Example,
    draw_gallery,
    examples,
    load_facts,
    load_threshold,
    video_files,
)
from trajpilot_core.report.limits import limits
from trajpilot_core.report.loaded import caption, corpus_title, facts, load
from trajpilot_core.report.page import Page, render
from trajpilot_core.report.tables import latex
from trajpilot_core.report.tables.anticipation import anticipation_tables, closed_tables, settings_table
from trajpilot_core.report.tables.ceilings import ceilings_of
from trajpilot_core.report.tables.names import LEGEND
from trajpilot_core.report.tables.results import absent_rows, all_tables, attribution_tables, results_of
from trajpilot_core.report.verdict import opening_table, verdict_of

RECORDS = (
    "metrics",
    "ceilings",
    "judgements",
    "gate",
    "headroom",
    "shuffles",
    "samplings",
    "decoding",
    "mask_coverage",
    "pair_distances",
    "progress_shares",
    "vlm_counts",
)
"""Fields of `Loaded` that report.json has under the same names."""


@dataclass(frozen=True)
class Report:
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
    gallery = draw_gallery(inputs, cfg)
    shown = examples(gallery, load_facts(gallery, inputs), load_threshold(inputs))
    files = video_files(gallery, inputs) if cfg.frames else {}
    steps.begin("decoding the frames of the gallery")
    pictures, rejects = _pictures(shown, files, cfg, runtime)
    steps.begin("writing the pages")
    reason = next((row.detail for row in loaded.judgements if row.check == NO_CEILING), "")
    bounds = ceilings_of(loaded.ceilings, simulated=loaded.simulated, reason=reason, undertrained=results.undertrained)
    verdict = verdict_of(
        results,
        simulated=loaded.simulated,
        has_heads=cfg.heads is not None,
        is_broken=bounds.state == "broken",
        gate=loaded.gate,
        judgements=loaded.judgements,
    )
    n_labels = loaded.labels.num_rows
    page = Page(
        loaded,
        results,
        cfg,
        f"TrajPilot on {corpus_title(loaded, cfg)}",
        facts(loaded, results, cfg),
        verdict,
        [
            *opening_table(results, has_heads=cfg.heads is not None),
            *closed_tables(results, cfg, n_labels),
            *all_tables(results),
            *anticipation_tables(results),
            *attribution_tables(results),
        ],
        settings_table(cfg, n_labels, is_simulated=loaded.simulated),
        bounds,
        limits(loaded, results, bounds, cfg),
        gallery,
        shown,
        pictures,
    )
    note = caption(loaded, cfg) + (f". {LEGEND}" if results.undertrained else "")
    ceilings = latex.ceiling_tables(bounds.tables[:1], note)
    documents = {
        "report.html": render(page),
        "report.json": json_report.dump(_json(page)),
        "metrics.tex": (latex.document(page.tables, note) + ceilings).encode(),
    }
    return Report(documents, rejects, len(shown))


def _pictures(
    shown: Sequence[Example], files: Mapping[str, str], cfg: CompletedReport, runtime: Runtime
) -> tuple[dict[tuple[str, float], Thumbnail], list[Reject]]:
    """Decode the frames of the gallery's windows and of the retrieved ones, one job per video."""
    times: dict[str, set[float]] = {}
    for example in shown:
        times.setdefault(example.take_id, set()).update(example.times_s)
        if example.retrieved is not None:
            times.setdefault(example.retrieved.take_id, set()).update(example.retrieved.times_s)
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


def _json(page: Page) -> JsonValue:
    """Return the report as JSON."""
    loaded = page.loaded
    records: dict[str, JsonValue] = {name: json_report.records(getattr(loaded, name)) for name in RECORDS}
    return {
        "format": json_report.FORMAT,
        "title": page.title,
        "simulated": loaded.simulated,
        "facts": dict(page.facts),
        "verdict": page.verdict.json(),
        **records,
        "endpoint_cache": json_report.records(loaded.endpoint_scores),
        "tables": [json_report.table_json(table) for table in page.tables],
        "settings": None if page.settings is None else page.settings.json(),
        "ceilings_say": [page.ceilings.headline, *page.ceilings.broken],
        "undertrained": [*sorted(page.results.undertrained)],
        "limits": [*page.limits],
        "absent_rows": absent_rows(page.results),
        "gallery": {name: list(windows) for name, windows in page.drawn.classes.items()},
        "gallery_sizes": dict(page.drawn.sizes),
        "gallery_windows": page.drawn.n_windows,
        "gallery_row": page.drawn.row,
    }
