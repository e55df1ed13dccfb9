"""Report: one offline HTML file, and the same numbers as JSON and LaTeX."""

from typing import cast

from schemas.base import Record
from schemas.config import ReportConfig
from trajpilot_core.stages.stage import Inputs, Source, Stage, Work

VERSION = 4  # raise when what this stage writes changes
STAGES = ("ingest", "trajectories", "features", "text_bank", "alignment", "predictor", "scorer", "evaluation")
"""Stages whose rejects the report shows."""


def sources(inputs: Inputs, config: Record, data_root: str) -> list[Source]:
    """Return the videos whose frames the gallery shows."""
    from trajpilot_core.report.load import draw_gallery, video_files

    cfg = cast(ReportConfig, config)
    if not cfg.frames:
        return []
    return [Source("", tuple(sorted(video_files(draw_gallery(inputs, cfg), inputs).values())))]


def run(work: Work) -> None:
    """Build the report; see `trajpilot_core.report` for the parts."""
    from trajpilot_core.report.build import build

    report = build(work.inputs, work.config, STAGES, work.runtime)
    for name, content in report.documents.items():
        work.sink.document(name, content)
    work.sink.reject(report.rejects)
    work.sink.count(report.n_examples, report.n_examples)


STAGE = Stage(
    name="report",
    reads=(
        "metrics", "ceilings", "judgements", "headroom", "shuffles", "gate", "outcomes", "alignment_curves",
        "predictor_curves", "scorer_curves", "takes", "segments", "labels", "windows", "controls", "features",
        "text_bank",
        *(f"{stage}.rejects" for stage in STAGES),
    ),
    writes=("report.html", "report.json", "metrics.tex", "metrics_intervals.tex"),
    config="report",
    run=run,
    version=VERSION,
    summary="one offline HTML page with tables, charts, data health and a gallery; the same numbers as JSON and LaTeX",
    sources=sources,
    pure_sources=True,
)  # fmt: skip
