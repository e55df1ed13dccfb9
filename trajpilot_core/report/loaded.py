"""The tables that the report reads, and the sentences of its header that are derived from them."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from statistics import mean
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.config import CompletedReport
from schemas.features import released_note
from schemas.results import (
    Ceiling,
    CurvePoint,
    DecodingChoice,
    GateRow,
    Headroom,
    Judgement,
    MaskCoverage,
    Metric,
    PairDistance,
    ProgressShare,
    SamplingScore,
    ShuffleScore,
)
from schemas.vlm import EndpointScore, VlmCount
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.stage import AnyStage, Inputs
from trajpilot_core.report import health
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.results import Results
from trajpilot_core.report.tables.table import number

PACKAGES = ("torch", "numpy", "pyarrow", "transformers", "av", "prefect")
"""Libraries that affect the numbers: the page shows their versions."""


@dataclass(frozen=True)
class Loaded:
    """The small tables as records, and the counted columns of the large ones."""

    metrics: list[Metric]
    ceilings: list[Ceiling]
    judgements: list[Judgement]
    gate: list[GateRow]
    headroom: list[Headroom]
    shuffles: list[ShuffleScore]
    samplings: list[SamplingScore]
    decoding: list[DecodingChoice]
    mask_coverage: list[MaskCoverage]
    pair_distances: list[PairDistance]
    """Empty, like the next one, without the stage `diagnostics`."""
    progress_shares: list[ProgressShare]
    curves: list[tuple[str, list[CurvePoint]]]
    rejects: dict[str, pa.Table]
    takes: pa.Table
    segments: pa.Table
    labels: pa.Table
    windows: pa.Table
    motions: pa.Table
    vlm_counts: list[VlmCount]
    """Empty, like the next one, where no vision-language model was queried."""
    endpoint_scores: list[EndpointScore]
    outputs: dict[str, tuple[str, int]]
    """Stage that drops rows -> the unit of its rows, and how many came out."""

    @property
    def simulated(self) -> bool:
        """Whether any take was simulated, read from the takes: no setting can hide it."""
        return SIMULATED in self.takes["corpus"].to_pylist()

    @property
    def scored(self) -> tuple[int, int]:
        """Numbers of scored windows and takes."""
        pooled = [m for m in self.metrics if m.pooling == "sample" and m.cluster == "take"]
        return max((m.n_windows for m in pooled), default=0), max((m.n_takes for m in pooled), default=0)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the learned rows."""
        return sorted({m.seed for m in self.metrics if m.seed is not None})

    @property
    def poses(self) -> list[dict[str, Any]]:
        """Kinds of head motion: source, frame and scale."""
        return list(self.motions.group_by(self.motions.column_names).aggregate([]).to_pylist())


def load(inputs: Inputs, stages: Sequence[AnyStage]) -> Loaded:
    """Read the tables."""
    is_measured = any(stage.name == "diagnostics" for stage in stages)
    is_answered = any(stage.name == "vlm_rows" for stage in stages)
    return Loaded(
        rows_of(Metric, inputs.table("metrics")),
        rows_of(Ceiling, inputs.table("ceilings")),
        rows_of(Judgement, inputs.table("judgements")),
        rows_of(GateRow, inputs.table("gate")),
        rows_of(Headroom, inputs.table("headroom")),
        rows_of(ShuffleScore, inputs.table("shuffles")),
        rows_of(SamplingScore, inputs.table("samplings")),
        rows_of(DecodingChoice, inputs.table("decoding")),
        rows_of(MaskCoverage, inputs.table("mask_coverage")),
        rows_of(PairDistance, inputs.table("pair_distances")) if is_measured else [],
        rows_of(ProgressShare, inputs.table("progress_shares")) if is_measured else [],
        [
            (s.name, rows_of(CurvePoint, inputs.table(of)))
            for s in stages
            for of in s.writes
            if of == f"{s.name}_curves"
        ],
        {stage.name: inputs.table(rejects_entry(stage.name)) for stage in stages},
        inputs.table("takes", ("take_id", "corpus", "camera", "split", "scenario", "duration_s", "video")),
        inputs.table("segments", ("split",)),
        inputs.table("labels", ("n_train", "n_test")),
        inputs.table("windows", ("split", "horizon")),
        inputs.table("motions", ("source", "frame", "scale")),
        rows_of(VlmCount, inputs.table("vlm_counts")) if is_answered else [],
        rows_of(EndpointScore, inputs.table("endpoint_cache")) if is_answered else [],
        {
            s.name: (s.output.unit, s.output.count(inputs.table(s.output.entry, s.output.columns)))
            for s in stages
            if s.output
        },
    )


def corpus_title(loaded: Loaded, cfg: CompletedReport) -> str:
    """Name the corpus; a simulated one is never named like the real one."""
    names = ", ".join(sorted({m.corpus for m in loaded.metrics}))
    title = spec_of(cfg.corpus).title if cfg.corpus else names
    title = f"{title}, closed vocabulary" if cfg.is_closed else title
    title = f"{title}, released features {cfg.released}" if cfg.released else title
    return f"a simulated world in the file layout of {title}" if loaded.simulated else title


def caption(loaded: Loaded, cfg: CompletedReport) -> str:
    """Return the caption of every LaTeX table: what was measured on what."""
    takes = max((m.n_takes for m in loaded.metrics), default=0)
    where = corpus_title(loaded, cfg)
    if loaded.simulated:
        where = "SIMULATED WORLD, not comparable with published numbers"
    if cfg.released:
        where += f"; {cfg.released}: {released_note(cfg.released)}"
    return f"{where}; {takes} test takes; 95 % intervals over takes; ED in steps, all else in percent"


def facts(loaded: Loaded, results: Results, cfg: CompletedReport) -> list[tuple[str, str]]:
    """Return what ran on what: the header of the page."""
    windows, takes = loaded.scored
    n = cfg.windows_per_horizon
    subset = "" if n is None else f" (a sample: at most {n} of each horizon, for every row)"
    hours = float(pc.sum(loaded.takes["duration_s"]).as_py() or 0) / 3600
    poses = sorted({f"{r['source']}, {r['frame']} frame, {r['scale']}" for r in loaded.poses})
    lost = sum(health.lost_units(loaded.rejects).values())
    versions = []
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions.append(f"{name} {metadata.version(name)}")
    return [
        ("corpus", corpus_title(loaded, cfg)),
        ("takes", f"{loaded.takes.num_rows} ({hours:.1f} h), of which {takes} test takes were scored"),
        ("segments, labels", f"{loaded.segments.num_rows} segments, {loaded.labels.num_rows} labels"),
        ("windows", f"{windows} test windows{subset}, {loaded.windows.num_rows} in all"),
        ("head motion", "; ".join(poses) or "none"),
        *([("appearance", f"{cfg.released}: {released_note(cfg.released)}")] if cfg.released else []),
        ("rows, seeds", f"{len(results.variants())} rows, seeds {', '.join(map(str, loaded.seeds)) or 'none'}"),
        ("lost to rejects", f"{lost} rows, see Data health"),
        ("configuration", cfg.config_digest[:16] if cfg.config_digest else "not given"),
        ("versions", ", ".join(versions)),
    ]


def shuffle_sentence(rows: Sequence[ShuffleScore]) -> str:
    """Return a sentence on what shuffling the middle trajectories does, over all derangements."""
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


def sampling_sentence(rows: Sequence[SamplingScore]) -> str:
    """Return a sentence on the spread of the samplings of a row, each averaged over seeds like the row."""
    n_samplings = len({row.sampling for row in rows})
    if n_samplings < 2:
        return ""
    parts = []
    for horizon in sorted({row.horizon for row in rows}):
        drawn: dict[int, list[float]] = {}
        for row in rows:
            if row.horizon == horizon:
                drawn.setdefault(row.sampling, []).append(row.m1)
        values = [mean(of_seeds) for of_seeds in drawn.values()]
        parts.append(f"H={horizon} {number(min(values))} to {number(max(values))}")
    name = row_name(rows[0].variant)
    return f"M@1 of {name} in {n_samplings} samplings of its plans, lowest to highest: " + ", ".join(parts)


def mask_sentence(rows: Sequence[MaskCoverage]) -> str:
    """Return a sentence on how many true labels of the test windows the masks allow; empty without masked rows."""
    if not rows:
        return ""

    def share(allowed: int, of: int) -> str:
        return number(100 * allowed / of)

    allowed, steps = sum(row.n_allowed for row in rows), sum(row.n_steps for row in rows)
    middle_allowed, middle = sum(row.n_middle_allowed for row in rows), sum(row.n_middle for row in rows)
    each = ", ".join(f"H={row.horizon} {share(row.n_middle_allowed, row.n_middle)}" for row in rows)
    unmasked, windows = sum(row.n_windows_unmasked for row in rows), sum(row.n_windows for row in rows)
    rest = "; no masked row can answer the others" if allowed < steps else ""
    if unmasked:
        rest += f"; {unmasked:,} of {windows:,} windows are not masked: no training take has their scenario"
    return (
        f"The masks of the scenarios allow {middle_allowed:,} of {middle:,} true labels of middle steps of the test "
        f"windows ({share(middle_allowed, middle)} %; {each}) and {allowed:,} of {steps:,} of all steps "
        f"({share(allowed, steps)} %){rest}"
    )


def capture_note(metrics: Sequence[Metric]) -> str:
    """Return a sentence on how much wider intervals over captures are than over takes; empty without captures."""

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
