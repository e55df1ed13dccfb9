"""Report: one offline HTML file, and the same numbers as JSON and LaTeX."""

from collections.abc import Sequence
from functools import partial

from schemas.closed import ClassHeadSettings
from schemas.config import PipelineConfig, ReportConfig
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.needs import MB, Need, Needs, NeedsMachine
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.engine.stage import AnyStage, Inputs, Source, Stage, Work

VERSION = 8  # raise when what this stage writes changes
READS = (
    "metrics",
    "ceilings",
    "judgements",
    "headroom",
    "shuffles",
    "samplings",
    "decoding",
    "mask_coverage",
    "gate",
    "outcomes",
    "scorers",
    "alignment_curves",
    "predictor_curves",
    "scorer_curves",
    "takes",
    "segments",
    "labels",
    "windows",
    "motions",
)

ALONE = ("takes", "segments", "labels", "probe_scores", "probe_checks", "probe_curves")
"""What it reads of a corpus without plans, whose segments are scored alone."""
ALONE_STAGES = ("ingest", "features", "probe")
TOKENS = ("token_scores", "token_contrasts", "token_checks")
"""What it reads in addition where TrajPilot's token is asked for."""
TOKEN_STAGES = ("ingest", "trajectories", "features", "probe")


def without_plans(config: PipelineConfig) -> tuple[str, ...] | None:
    """Return what the report reads where nothing is planned; None elsewhere."""
    if spec_of(config.ingest.corpus).has_plans:
        return None
    stages = TOKEN_STAGES if config.action_token.is_asked else ALONE_STAGES
    tokens = TOKENS if config.action_token.is_asked else ()
    return (*ALONE, *tokens, *(rejects_entry(name) for name in stages))


def completed(config: PipelineConfig) -> ReportConfig:
    """Return the settings of the report with what it says of the run: all settings, corpus, vocabulary, other runs."""
    predictor, scorer = config.predictor, config.scorer
    heads = ClassHeadSettings(
        bridge_weight=predictor.bridge_weight, decoding=scorer.decoding, candidates=scorer.candidates
    )
    return config.report.replace(
        config_digest=config.digest(),
        corpus=config.ingest.corpus,
        is_closed=config.evaluation.vocabulary == "classes",
        heads=heads if predictor.head == "classes" else None,
        has_token=config.action_token.is_asked,
        alignment_from=config.alignment.pretrained,
        predictor_from=predictor.pretrained,
        released=config.features.released if config.features.source == "released" else None,
        plugin_rows=config.evaluation.plugin_rows,
        plugin_metrics=config.evaluation.plugin_metrics,
    )


def sources(inputs: Inputs, cfg: ReportConfig, data_root: str) -> list[Source]:
    """Return the videos whose frames the gallery shows."""
    from trajpilot_core.methods.plugged import listed
    from trajpilot_core.report.gallery.load import draw_gallery, video_files

    if not cfg.frames or not plans_of(cfg):
        return []
    with listed(cfg):
        shown = video_files(draw_gallery(inputs, cfg), inputs).values()
        return [Source("", tuple(sorted(file for file in shown if file)))]


def plans_of(cfg: ReportConfig) -> bool:
    """Return whether the corpus of the run has plans."""
    return cfg.corpus is None or spec_of(cfg.corpus).has_plans


def needs(sizes: CorpusSizes, cfg: ReportConfig, machine: NeedsMachine) -> Needs:
    """State what the figures read: takes, segments and motions as objects, and the outcomes of the test windows.

    On the disk are the page and, next to it, a copy of the evaluation's tables.
    """
    from trajpilot_core.stages import evaluation

    host = 150 * MB + sizes.segments * 3_000 + sizes.all_windows * 1_100 + machine.workers * 80 * MB
    copied = evaluation.needs(sizes, sizes.config.evaluation, machine).disk.bytes if plans_of(cfg) else 0
    return Needs(Need(host, ("report.examples",)), disk=Need(20 * MB + copied))


def run(work: Work[ReportConfig], stages: Sequence[AnyStage]) -> None:
    """Build the report; see `trajpilot_core.report` for the parts.

    Args:
        work: the stage's work.
        stages: those whose rejects and outputs it counts.
    """
    from trajpilot_core.methods.plugged import listed
    from trajpilot_core.report.action_page import build_alone
    from trajpilot_core.report.build import build

    if not plans_of(work.config):
        shown = TOKEN_STAGES if work.config.has_token else ALONE_STAGES
        alone = [stage for stage in stages if stage.name in shown]
        for name, content in build_alone(work.inputs, work.config, alone).items():
            work.sink.document(name, content)
        n_scores = work.inputs.table("probe_scores", ("row",)).num_rows
        work.sink.count(n_scores, n_scores)
        return
    with listed(work.config):
        report = build(work.inputs, work.config, stages, work.runtime)
    for name, content in report.documents.items():
        work.sink.document(name, content)
    work.sink.reject(report.rejects)
    work.sink.count(report.n_examples, report.n_examples)


def report_on(stages: Sequence[AnyStage]) -> Stage[ReportConfig]:
    """Declare the report on these stages, which come before it: it reads the rejects of each, and what it counts."""
    counted = [stage.output.entry for stage in stages if stage.output is not None]
    measured = [entry for stage in stages if stage.name == "diagnostics" for entry in stage.writes]
    curves = [entry for stage in stages for entry in stage.writes if entry == f"{stage.name}_curves"]
    return Stage(
        name="report",
        reads=(
            *dict.fromkeys((*READS, *measured, *curves, *counted)),
            *(rejects_entry(stage.name) for stage in stages),
        ),
        writes=("report.html", "report.json", "metrics.tex", "metrics_intervals.tex"),
        config=ReportConfig,
        run=partial(run, stages=tuple(stages)),
        version=VERSION,
        summary="Results -> report.html with tables, charts, data health and a gallery; the numbers as JSON and LaTeX",
        completed=completed,
        sources=sources,
        pure_sources=True,
        narrowed=without_plans,
        needs=needs,
    )
