"""Report: one offline HTML file, and its numbers as JSON and LaTeX."""

from collections.abc import Mapping, Sequence
from functools import partial

from schemas.config import CompletedReport, PipelineConfig, ReportConfig
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.stage import AnyStage, Source, Stage, Work
from trajpilot_core.stages.evaluation import CURVES, SCORED, further
from trajpilot_core.store.reading import Inputs

VERSION = 16  # raise when what this stage writes changes
CORPUS = ("takes", "segments", "labels", "windows", "motions")
READS = (*SCORED, "gate", "outcomes", *CURVES, *CORPUS)
ALONE = ("takes", "segments", "labels", "probe_scores", "probe_checks", "probe_curves")
"""Reads for a corpus without plans, which scores segments individually."""
ALONE_STAGES = ("ingest", "features", "probe")
TOKENS = ("token_scores", "token_contrasts", "token_checks", "token_curves", "token_tuned_curves")
"""Additional reads where TrajPilot's token is enabled."""
OF_ANSWERS = ("vlm_counts", "endpoint_cache")
"""Shown entries of vision-language models, where a run has them."""
TOKEN_STAGES = ("ingest", "trajectories", "features", "probe")


def narrowed(
    config: PipelineConfig, reads: tuple[str, ...], more: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...] | None:
    """Return the reads for a corpus without plans, or with entries of further stages (`more`); None: the default."""
    if spec_of(config.ingest.corpus).has_plans:
        optional = [entry for name in further(config) for entry in more[name]]
        return (*reads, *optional) if optional else None
    stages = TOKEN_STAGES if config.action_token.is_asked else ALONE_STAGES
    tokens = TOKENS if config.action_token.is_asked else ()
    return (*ALONE, *tokens, *(rejects_entry(name) for name in stages))


def completed(config: PipelineConfig) -> CompletedReport:
    """Return the settings of the report with the facts about the run: digest, corpus, vocabulary, other runs."""
    return CompletedReport.completing(
        config.report,
        config_digest=config.digest(),
        corpus=config.ingest.corpus,
        is_closed=config.evaluation.vocabulary == "classes",
        has_heads=config.predictor.head == "classes",
        has_token=config.action_token.is_asked,
        has_every_patch=config.probe.tokens == "full",
        alignment_from=config.alignment.pretrained,
        predictor_from=config.predictor.pretrained,
        released=config.features.released if config.features.source == "released" else None,
        plugin_rows=config.evaluation.plugin_rows,
        plugin_metrics=config.evaluation.plugin_metrics,
        further=further(config),
        windows_per_horizon=config.vlm.windows_per_horizon if config.vlm.rows else None,
    )


def sources(inputs: Inputs, cfg: CompletedReport, data_root: str) -> list[Source]:
    """Return the videos whose frames the gallery shows."""
    from trajpilot_core.methods.plugged import listed
    from trajpilot_core.report.gallery.windows import draw_gallery, video_files

    if not cfg.frames or not plans_of(cfg):
        return []
    with listed(cfg):
        shown = video_files(draw_gallery(inputs, cfg), inputs).values()
        return [Source("", tuple(sorted(file for file in shown if file)))]


def plans_of(cfg: CompletedReport) -> bool:
    """Return whether the corpus of the run has plans."""
    return cfg.corpus is None or spec_of(cfg.corpus).has_plans


def run(work: Work[CompletedReport], stages: Sequence[AnyStage], others: Sequence[AnyStage]) -> None:
    """Build the report on the rejects and outputs of stages; see `trajpilot_core.report` for the parts."""
    from trajpilot_core.methods.plugged import listed
    from trajpilot_core.report.action_page import build_alone
    from trajpilot_core.report.build import build

    if not plans_of(work.config):
        shown = TOKEN_STAGES if work.config.has_token else ALONE_STAGES
        alone = [stage for stage in (*stages, *others) if stage.name in shown]
        for name, content in build_alone(work.inputs, work.config, alone).items():
            work.sink.document(name, content)
        n_scores = work.inputs.table("probe_scores", ("row",)).num_rows
        work.sink.count(n_scores, n_scores)
        return
    counted = (*stages, *(stage for stage in others if stage.name in work.config.further))
    with listed(work.config):
        report = build(work.inputs, work.config, counted, work.runtime)
    for name, content in report.documents.items():
        work.sink.document(name, content)
    work.sink.reject(report.rejects)
    work.sink.count(report.n_examples, report.n_examples)


def entries_of(stage: AnyStage) -> tuple[str, ...]:
    """Return the entries of a stage that the report counts or shows: output, curves and rejects."""
    counted = [stage.output.entry] if stage.output is not None else []
    shown = [entry for entry in stage.writes if entry in (f"{stage.name}_curves", *OF_ANSWERS)]
    return (*counted, *shown, rejects_entry(stage.name))


def report_on(stages: Sequence[AnyStage], others: Sequence[AnyStage] = ()) -> Stage[CompletedReport]:
    """Declare the report on these earlier stages, and on others where the settings enable them."""
    measured = [entry for stage in stages if stage.name == "diagnostics" for entry in stage.writes]
    reads = tuple(dict.fromkeys((*READS, *measured, *(entry for stage in stages for entry in entries_of(stage)))))
    return Stage(
        name="report",
        reads=reads,
        writes=("report.html", "report.json", "metrics.tex"),
        config=ReportConfig,
        run=partial(run, stages=tuple(stages), others=tuple(others)),
        version=VERSION,
        summary="Results -> report.html with tables, charts, data health and a gallery; the numbers as JSON and LaTeX",
        completed=completed,
        sources=sources,
        narrowed=partial(narrowed, reads=reads, more={stage.name: entries_of(stage) for stage in others}),
        lowers=("report.examples",),
    )
