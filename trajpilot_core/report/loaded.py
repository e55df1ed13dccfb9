"""The tables that the report reads, and the sentences that are derived from them: its header, notes and limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args, get_origin, get_type_hints

import pyarrow as pa
import pyarrow.compute as pc

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.base import Record
from schemas.config import CompletedReport
from schemas.features import released_note
from schemas.results import (
    Ceiling,
    CurvePoint,
    DecodingChoice,
    GateRow,
    Headroom,
    Judgement,
    Metric,
    PairDistance,
    ProgressShare,
    SamplingScore,
    ShuffleScore,
)
from schemas.vlm import EndpointScore, VlmCount
from trajpilot_core.corpora.registry import spec_of
from trajpilot_core.engine.key import rejects_entry
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.evaluation.bootstrap import MIN_CLUSTERS
from trajpilot_core.report.tables.results import Results
from trajpilot_core.store.reading import Inputs

OF_STAGE = {"diagnostics": ("pair_distances", "progress_shares"), "vlm_rows": ("vlm_counts", "endpoint_cache")}
"""Stage that not every run has -> its small tables."""
FEW_TAKES = 40
"""Below this number of takes, intervals over takes are too narrow. Source: docs/decisions/metrics.md."""
WORLD = (
    "The corpus is a simulated world with made-up tasks, head motion and rendering. Its numbers describe how this "
    "implementation behaves in that world. They are no evidence about people and cannot be compared with the paper's."
)
RECORDED = "The numbers apply to the released split that was scored and to the takes whose files were on disk."


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
    pair_distances: list[PairDistance]
    progress_shares: list[ProgressShare]
    vlm_counts: list[VlmCount]
    endpoint_cache: list[EndpointScore]
    """The last four are empty where their stage did not run."""
    curves: tuple[tuple[str, list[CurvePoint]], ...]
    """(stage, its training curves)."""
    rejects: dict[str, pa.Table]
    takes: pa.Table
    segments: pa.Table
    labels: pa.Table
    windows: pa.Table
    motions: pa.Table
    outputs: dict[str, tuple[str, int]]
    """Stage that drops rows -> the unit of its rows, and how many came out."""

    @property
    def simulated(self) -> bool:
        """Whether any take was simulated, read from the takes: no setting can hide it."""
        return SIMULATED in self.takes["corpus"].to_pylist()

    @property
    def scored(self) -> tuple[int, int]:
        """Numbers of scored windows and takes."""
        pooled = [m for m in self.metrics if m.pooling == "sample"]
        return max((m.n_windows for m in pooled), default=0), max((m.n_takes for m in pooled), default=0)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the learned rows."""
        return sorted({m.seed for m in self.metrics if m.seed is not None})

    @property
    def poses(self) -> list[dict[str, Any]]:
        """Kinds of head motion: source, frame and scale."""
        return list(self.motions.group_by(self.motions.column_names).aggregate([]).to_pylist())


RECORDS: Mapping[str, type[Record]] = {
    name: get_args(hint)[0] for name, hint in get_type_hints(Loaded).items() if get_origin(hint) is list
}
"""Small table -> its rows; report.json has them under the same names."""


def load(inputs: Inputs, stages: Sequence[AnyStage]) -> Loaded:
    """Read the tables."""
    names = {stage.name for stage in stages}
    absent = {entry for stage, entries in OF_STAGE.items() if stage not in names for entry in entries}
    records: dict[str, Any] = {
        name: [] if name in absent else rows_of(record, inputs.table(name)) for name, record in RECORDS.items()
    }
    trained = [stage.name for stage in stages if f"{stage.name}_curves" in stage.writes]
    return Loaded(
        **records,
        curves=tuple((name, rows_of(CurvePoint, inputs.table(f"{name}_curves"))) for name in trained),
        rejects={stage.name: inputs.table(rejects_entry(stage.name)) for stage in stages},
        takes=inputs.table("takes", ("take_id", "corpus", "camera", "split", "scenario", "duration_s", "video")),
        segments=inputs.table("segments", ("split",)),
        labels=inputs.table("labels", ("n_train", "n_test")),
        windows=inputs.table("windows", ("split", "horizon")),
        motions=inputs.table("motions", ("source", "frame", "scale")),
        outputs={
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


def facts(loaded: Loaded, results: Results, cfg: CompletedReport) -> list[str]:
    """Return what ran on what: the header of the page."""
    windows, takes = loaded.scored
    n = cfg.windows_per_horizon
    subset = "" if n is None else f" (a sample: at most {n} of each horizon, for every row)"
    hours = float(pc.sum(loaded.takes["duration_s"]).as_py() or 0) / 3600
    poses = sorted({f"{r['source']}, {r['frame']} frame, {r['scale']}" for r in loaded.poses})
    return [
        f"{loaded.takes.num_rows} takes ({hours:.1f} h), of which {takes} test takes were scored",
        f"{loaded.segments.num_rows} segments, {loaded.labels.num_rows} labels",
        f"{windows} test windows{subset}, {loaded.windows.num_rows} windows in all",
        f"head motion: {'; '.join(poses) or 'none'}",
        f"{len(results.variants())} rows, seeds {', '.join(map(str, loaded.seeds)) or 'none'}",
        f"configuration {cfg.config_digest[:16] if cfg.config_digest else 'not given'}",
    ]


def limits(loaded: Loaded, cfg: CompletedReport) -> list[str]:
    """Return the sentences that this run's data call for; what a table of the page shows is none of them."""
    (_, n_takes), n_seeds = loaded.scored, len(loaded.seeds)
    sentences = [WORLD if loaded.simulated else RECORDED]
    taken = {"E_tau": cfg.alignment_from, "the initial weights of the predictors": cfg.predictor_from}
    parts = [f"{what} from {run.place} (sha256 {run.sha256[:12]})" for what, run in taken.items() if run is not None]
    if parts:
        sentences.append(
            f"Models of another run: {' and '.join(parts)}. Its training data counts as training data here."
        )
    if cfg.released is not None:
        sentences.append(
            f"Appearance is {cfg.released}: {released_note(cfg.released)}. A row of such a file is longer than many "
            "segments. It then also covers what happens before and after them, including the step after Start. A file "
            "that is shifted by one row cannot be detected."
        )
    if cfg.windows_per_horizon is not None:
        sentences.append(
            f"Every row was scored on a sample of at most {cfg.windows_per_horizon} test windows of each horizon "
            "(vlm.windows_per_horizon): do not compare its numbers with those of all windows."
        )
    if "" in loaded.takes["video"].to_pylist():
        sentences.append(
            "No video was read: the lengths of takes come from the metadata. Where one differs from its video by a "
            "frame, the head motion is off by a thirtieth of a second. Takes with damaged videos are not detected."
        )
    if n_takes < MIN_CLUSTERS:
        sentences.append(f"Only {n_takes} test takes were scored: fewer than {MIN_CLUSTERS} give no interval at all.")
    elif n_takes < FEW_TAKES:
        sentences.append(
            f"Only {n_takes} test takes were scored: intervals over fewer than {FEW_TAKES} takes are too narrow."
        )
    seeds = "One seed was" if n_seeds == 1 else f"{n_seeds} seeds were"
    sentences.append(f"{seeds} trained: the intervals cover the spread over takes, not the spread between trainings.")
    tested, trained = (loaded.labels[name].to_numpy() for name in ("n_test", "n_train"))
    unseen = int(tested[trained == 0].sum())
    if unseen:
        share = 100.0 * unseen / int(tested.sum())
        sentences.append(f"{share:.1f} % of the test steps have a label that no training segment has.")
    if any(row["scale"] == "arbitrary" for row in loaded.poses):
        sentences.append(
            "Some head motions have an arbitrary scale (estimated from video): their lengths in metres have no meaning."
        )
    sentences.append(
        "Oracle is given the true head motion of the window. It is a condition, not an upper bound: the Scorer "
        "reads the labels of retrieved windows and chooses among many plans, and can be above it."
    )
    return sentences
