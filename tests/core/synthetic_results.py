"""A made-up set of results (metrics, checks, curves, rejects) for the tests of evaluation and report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from synthetic_corpus import predictions

from schemas.arrow import table_of
from schemas.config import EvaluationConfig, ReportConfig
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import Ceiling, CurvePoint, GateRow, Headroom, Judgement, Metric, ShuffleScore
from trajpilot_core.evaluation.blocks import Predictions, predictions_of
from trajpilot_core.evaluation.checks import judge
from trajpilot_core.evaluation.evidence import Evidence
from trajpilot_core.evaluation.tables import gate_rows, growth, outcome_table
from trajpilot_core.report.names import OPEN_METRICS
from trajpilot_core.stages import report
from trajpilot_core.stages.evaluation import score
from trajpilot_core.stages.stage import Runtime, Work

STAGES = (
    "ingest",
    "trajectories",
    "features",
    "text_bank",
    "alignment",
    "predictor",
    "scorer",
    "evaluation",
)


@dataclass
class Tables:
    """Inputs of a stage, held in memory."""

    tables: dict[str, pa.Table]
    asked: list[str] = field(default_factory=list)
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)
    """Of the models."""

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        self.asked.append(name)
        return self.tables[name] if columns is None else self.tables[name].select(list(columns))

    def model(self, name: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
        self.asked.append(name)
        return {}, self.metadata.get(name, {})

    def document(self, name: str) -> bytes:
        raise KeyError(name)


@dataclass
class Kept:
    """A sink that keeps what a stage writes."""

    tables: dict[str, pa.Table] = field(default_factory=dict)
    documents: dict[str, bytes] = field(default_factory=dict)
    rejects: list[Reject] = field(default_factory=list)
    counts: tuple[int, int] | None = None

    def table(self, name: str, table: pa.Table) -> None:
        self.tables[name] = table

    def model(self, name: str, tensors: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> None:
        raise AssertionError(name)

    def document(self, name: str, content: bytes) -> None:
        self.documents[name] = content

    def reject(self, rejects: Iterable[Reject]) -> None:
        self.rejects += rejects

    def count(self, n_in: int, n_out: int) -> None:
        self.counts = (n_in, n_out)

    def shard(self, shard: str, table: pa.Table, rejects: Sequence[Reject], n_in: int) -> None:
        raise AssertionError(shard)


def curves(undertrained: bool = False) -> dict[str, pa.Table]:
    """Loss and dev curves of every model."""

    def points(models: Sequence[str], quantity: str) -> pa.Table:
        rows = []
        for m, model in enumerate(models):
            for epoch in range(1, 21):
                rise = epoch / 20 if undertrained else 1 - 0.6**epoch
                values = [
                    ("train", "loss", 3.0 * 0.85**epoch + 0.2 * m),
                    ("dev", "loss", 3.1 * 0.9**epoch + 0.5),
                    ("dev", quantity, 0.4 * rise),
                ]
                rows += [
                    CurvePoint(model=model, seed=0, epoch=epoch, split=s, quantity=q, value=v) for s, q, v in values
                ]
        return table_of(CurvePoint, rows)

    return {
        "alignment_curves": points(["final/e_tau"], "R@5"),
        "predictor_curves": points(["final/traj", "final/no_traj", "final/endpoint_traj"], "M@1"),
        "scorer_curves": points(["final/scorer"], "M@1"),
    }


def headroom() -> pa.Table:
    """A headroom table in its declared columns."""
    rows = [
        Headroom(
            seed=0,
            horizon=h,
            pool=k,
            same_step_recall=10.0 + 4 * i,
            any_step_recall=20.0 + 5 * i,
            endpoint_cosine=0.7 - 0.1 * i,
            endpoint_cosine_random=0.1,
            best_mid_cosine=0.4 + 0.05 * i,
            best_mid_cosine_random=0.2,
            oracle_m1=30.0 + i,
            oracle_mseq=10.0 + i,
            n_windows=100,
        )
        for h in range(3, 9)
        for i, k in enumerate((1, 5, 16, 64))
    ]
    return table_of(Headroom, rows)


BOUND = {"no_traj": 42.0, "majority": 42.0, "oracle": 93.0}
"""Made-up ceiling of a row in M@1; all other rows share one."""
ENDPOINT_BOUND = 62.0


def ceilings(metrics: Sequence[Metric]) -> list[Ceiling]:
    """A ceiling per row, horizon and open-vocabulary metric; the rows keep below theirs."""
    shown = [m for m in metrics if m.reference is None and m.seed is None and m.pooling != "sample"]
    return [
        _ceiling(m, BOUND.get(m.variant, ENDPOINT_BOUND))
        for m in shown
        if m.metric in OPEN_METRICS and m.variant not in ("previous", "shuffled")
    ]


def _ceiling(m: Metric, bound: float) -> Ceiling:
    """The ceiling of one figure: lower for whole sequences, higher for five answers, never below the row."""
    bound *= {"S": 0.4, "1": 1.0, "5": 1.05}[m.metric[1 if m.metric.endswith("Seq") else 2]]
    bound = max(bound, m.value)
    return Ceiling(
        variant=m.variant,
        horizon=m.horizon,
        metric=m.metric,
        value=m.value,
        ceiling=bound,
        difference=m.value - bound,
        standard_error=0.9,
        n_takes=m.n_takes,
        n_windows=m.n_windows,
        binding=m.horizon is None and m.metric in ("M@1", "MSeq"),
        above=False,
    )


def rejects() -> dict[str, pa.Table]:
    """Rejects tables of every stage; some hold rows."""
    held = {
        "ingest": [
            reject("ingest", RejectCode.UNSURE, "egoexo4d:take00001", "description 3 is marked unsure"),
            reject("ingest", RejectCode.TS_REORDERED, "egoexo4d:take00002", "rows 4 and 5"),
        ],
        "trajectories": [
            reject(
                "trajectories",
                RejectCode.TRAJ_GAP,
                "egoexo4d:take00003",
                "no pose for 0.31 s after t=4.20 s",
                segment="egoexo4d:take00003:0002",
            )
            for _ in range(3)
        ],
    }
    return {f"{stage}.rejects": table_of(Reject, held.get(stage, [])) for stage in STAGES}


def judged(trained: str = "holds") -> list[Judgement]:
    """One judgement per predictor of the chain that is tested."""
    return [
        Judgement(check=f"trained: final/{model}, seed 0", verdict=trained, detail="dev M@1 31.2 %")
        for model in ("traj", "no_traj", "endpoint_traj", "scorer")
    ]


def evidence(tables: Mapping[str, pa.Table], predicted: Predictions, metrics: Sequence[Metric]) -> Evidence:
    """What the checks of the evaluation look at."""
    takes, windows, folds = (tables[name] for name in ("takes", "windows", "folds"))
    return Evidence(
        predicted,
        metrics,
        dict(zip(takes["take_id"].to_pylist(), takes["split"].to_pylist(), strict=True)),
        dict(zip(windows["window_id"].to_pylist(), windows["take_id"].to_pylist(), strict=True)),
        dict(zip(folds["take_id"].to_pylist(), folds["fold"].to_pylist(), strict=True)),
        judged(),
        growth(predicted, "oracle", EvaluationConfig(bootstrap=300)),
        {name: fitted(tables) for name in ("e_tau", "predictors")},
    )


def fitted(tables: Mapping[str, pa.Table]) -> dict[str, list[str]]:
    """What the models' metadata say in the cheap mode: the chain and its takes."""
    folds = tables["folds"].to_pylist()
    return {"final": sorted(row["take_id"] for row in folds if row["fold"] == -1)}


def report_inputs(tables: dict[str, pa.Table], draws: int = 400, predicted: pa.Table | None = None) -> Tables:
    """Everything that the report stage reads, scored from made-up predictions."""
    blocks = predictions_of(predictions(tables) if predicted is None else predicted)
    cfg = EvaluationConfig(bootstrap=draws)
    metrics = score(blocks, tables["takes"].to_pylist(), cfg)
    shuffles = [
        ShuffleScore(seed=0, shuffle=i, horizon=h, m1=5 + i / 10, mseq=1.0, n_windows=100)
        for h in range(3, 9)
        for i in range(5)
    ]
    made = {
        "metrics": table_of(Metric, metrics),
        "ceilings": table_of(Ceiling, ceilings(metrics)),
        "judgements": table_of(Judgement, judge(evidence(tables, blocks, metrics))),
        "gate": table_of(GateRow, gate_rows(blocks)),
        "outcomes": outcome_table(blocks),
        "headroom": headroom(),
        "shuffles": table_of(ShuffleScore, shuffles),
        "features": tables["controls"].select(["segment_id"]),
        "text_bank": tables["labels"].select(["label_id"]),
    }
    return Tables({**tables, **made, **curves(), **rejects()})


def built(inputs: Tables, cfg: ReportConfig, data_root: str = "/nowhere") -> Kept:
    """Run the report stage."""
    kept = Kept()
    report.run(Work(inputs, cfg, (), kept, Runtime(data_root, "cpu", 1, Path("unused"))))
    return kept
