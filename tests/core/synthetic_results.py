"""A made-up set of results (takes, windows, predictions, curves) for the tests of evaluation and report."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from schemas.annotation import SIMULATED, Label, Segment, Take, Window
from schemas.arrow import arrow_schema, table_of
from schemas.config import EvaluationConfig, ReportConfig
from schemas.observation import Controls, controls_schema
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import CurvePoint, GateRow, Headroom, Judgement, Metric, Prediction, ShuffleScore
from trajpilot_core.evaluation.blocks import Predictions, predictions_of
from trajpilot_core.evaluation.checks import judge
from trajpilot_core.evaluation.evidence import Evidence
from trajpilot_core.evaluation.tables import gate_rows, growth, outcome_table
from trajpilot_core.stages import report
from trajpilot_core.stages.evaluation import score
from trajpilot_core.stages.stage import Runtime, Work

SKILL = {
    "no_traj": 0.30,
    "endpoint_traj": 0.38,
    "scorer": 0.36,
    "oracle": 0.75,
    "top1": 0.28,
    "knn_labels": 0.33,
    "pool_mean": 0.40,
    "shuffled": 0.12,
    "majority": 0.05,
    "previous": 0.08,
}
"""Chance that a position's first answer is right; falls with the horizon for all rows but oracle."""
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


def corpus(
    n_train: int = 12,
    n_test: int = 30,
    n_segments: int = 12,
    n_labels: int = 40,
    seed: int = 0,
    texts: Sequence[str] | None = None,
) -> dict[str, pa.Table]:
    """Takes, segments, labels, windows, controls and folds of a made-up corpus."""
    rng = np.random.default_rng(seed)
    verbs, nouns = (
        ["cut", "open", "take", "wash", "put down", "stir"],
        ["the knife", "a drawer", "the pan", "a bowl", "the lid"],
    )
    texts = texts or [f"{verbs[i % 6]} {nouns[i // 6 % 5]}{'' if i < 30 else f' {i}'}" for i in range(n_labels)]
    takes, segments, windows = [], [], []
    for t in range(n_train + n_test):
        split, take_id = "train" if t < n_train else "test", f"egoexo4d:take{t:05d}"
        takes.append(_take(take_id, split, t, n_segments))
        ids = []
        for s in range(n_segments):
            label = int(rng.integers(len(texts)))
            ids.append(f"{take_id}:{s:04d}")
            segments.append(_segment(ids[-1], take_id, split, s, texts[label], f"label{label:03d}"))
        for horizon in range(3, 9):
            windows += [
                Window(
                    window_id=f"{take_id}:h{horizon}:{i:04d}",
                    take_id=take_id,
                    split=split,
                    horizon=horizon,
                    segment_ids=tuple(ids[i : i + horizon]),
                )
                for i in range(n_segments - horizon + 1)
            ]
    labels = [
        Label(label_id=f"label{i:03d}", label=text, paraphrases=(text,), n_train=3, n_dev=0, n_test=3)
        for i, text in enumerate(texts)
    ]
    folds = pa.table(
        {"take_id": [t.take_id for t in takes if t.split == "train"], "fold": [i % 2 - 1 for i in range(n_train)]}
    )
    return {
        "takes": table_of(Take, takes),
        "segments": table_of(Segment, segments),
        "labels": table_of(Label, labels),
        "windows": table_of(Window, windows),
        "controls": _controls([s.segment_id for s in segments], rng),
        "folds": folds,
    }


def _take(take_id: str, split: str, t: int, n_segments: int) -> Take:
    return Take(
        take_id=take_id,
        corpus=SIMULATED,
        name=f"kitchen_{t}",
        split=split,
        scenario=["Cooking", "Bike Repair"][t % 2],
        participant=None,
        capture=f"capture{t}",
        video=f"takes/kitchen_{t}/head.mp4",
        trajectory="x.csv",
        timesync="t.csv",
        calibration=None,
        camera="aria01_214-1",
        timesync_start=0,
        timesync_end=100,
        duration_s=2.0 * n_segments,
        fps=15.0,
        n_frames=30 * n_segments,
    )


def _segment(segment_id: str, take_id: str, split: str, s: int, text: str, label_id: str) -> Segment:
    return Segment(
        segment_id=segment_id,
        take_id=take_id,
        split=split,
        position=s,
        run=0,
        start_s=2.0 * s,
        end_s=2.0 * s + 2,
        anchor_s=2.0 * s + 1,
        raw_text=f"C {text}",
        label=text,
        label_id=label_id,
        annotation_uid=f"a{s}",
        annotator="one",
    )


def _controls(segment_ids: list[str], rng: np.random.Generator) -> pa.Table:
    n = len(segment_ids)
    rows = [
        Controls(
            segment_id=s,
            take_id=s.rsplit(":", 1)[0],
            source="aria",
            frame="camera",
            scale="metric",
            coverage=1.0,
            quality=1.0,
            max_gap_s=0.001,
        )
        for s in segment_ids
    ]
    drift = np.repeat(rng.normal(0, [0.01, 0.02, 0.03, 0.02, 0.04, 0.02], (n, 1, 6)), 16, axis=1)
    values = (drift + rng.normal(0, 0.004, (n, 16, 6))).astype(np.float32)
    schema = controls_schema()
    names = [name for name in schema.names if name != "controls"]
    base = table_of(Controls, rows).select(names)
    vector = pa.FixedSizeListArray.from_arrays(pa.array(values.ravel()), 96)
    return base.append_column(schema.field("controls"), vector.cast(schema.field("controls").type))


def predictions(
    tables: Mapping[str, pa.Table],
    skill: Mapping[str, float] = SKILL,
    seeds: Sequence[int] = (0,),
    rng_seed: int = 1,
) -> pa.Table:
    """Predictions of every row of `skill` on the test windows, with closed gates that repeat no_traj."""
    rng = np.random.default_rng(rng_seed)
    label_of = dict(
        zip(tables["segments"]["segment_id"].to_pylist(), tables["segments"]["label_id"].to_pylist(), strict=True)
    )
    ids = sorted(set(tables["labels"]["label_id"].to_pylist()))
    place = {name: i for i, name in enumerate(ids)}
    windows = [w for w in tables["windows"].to_pylist() if w["split"] == "test"]
    fitted = {t for t, f in zip(*(tables["folds"][c].to_pylist() for c in ("take_id", "fold")), strict=True) if f == -1}
    bank: dict[int, list[str]] = {}
    for window in tables["windows"].to_pylist():
        if window["take_id"] in fitted:
            bank.setdefault(window["horizon"], []).append(window["window_id"])
    parts = []
    for seed in seeds:
        for horizon in sorted({w["horizon"] for w in windows}):
            chosen = [w for w in windows if w["horizon"] == horizon]
            truth = np.array([[place[label_of[s]] for s in w["segment_ids"]] for w in chosen])
            opened = rng.random(len(chosen)) < 0.2 + 0.1 * (horizon - 3)
            picks = rng.integers(len(bank[horizon]), size=len(chosen))
            candidates = np.array(bank[horizon])[picks]
            rankings = {
                v: _rank(truth, p * (1 if v == "oracle" else 1 - 0.05 * (horizon - 3)), len(ids), rng)
                for v, p in skill.items()
            }
            if "scorer" in rankings and "no_traj" in rankings:
                rankings["scorer"] = np.where(opened[:, None, None], rankings["scorer"], rankings["no_traj"])
            for variant, ranking in rankings.items():
                parts.append(
                    _predicted(variant, seed, horizon, chosen, truth, ranking, opened, candidates, np.array(ids))
                )
    return pa.concat_tables(parts)


def _rank(truth: np.ndarray, chance: float, n_labels: int, rng: np.random.Generator) -> np.ndarray:
    """(N, H, 5) rankings of distinct codes whose first is the truth with the given chance, second half of the rest."""
    start = rng.integers(1, n_labels - 6, truth.shape)
    ranking = (truth[..., None] + start[..., None] + np.arange(5)) % n_labels
    draw = rng.random(truth.shape)
    ranking[..., 0] = np.where(draw < chance, truth, ranking[..., 0])
    ranking[..., 1] = np.where((draw >= chance) & (draw < chance + 0.15), truth, ranking[..., 1])
    return ranking


def _predicted(
    variant: str,
    seed: int,
    horizon: int,
    windows: list[dict],
    truth: np.ndarray,
    ranking: np.ndarray,
    opened: np.ndarray,
    candidates: np.ndarray,
    ids: np.ndarray,
) -> pa.Table:
    n = truth.size
    each = np.repeat(np.arange(len(windows)), horizon)
    gated, retrieved = variant == "scorer", variant in ("scorer", "top1")
    named = opened[each] if gated else np.ones(n, dtype=bool)
    scores = pa.ListArray.from_arrays(
        np.arange(n + 1, dtype=np.int32) * 5, pa.array(np.tile([0.9, 0.8, 0.7, 0.6, 0.5], n))
    )
    top = pa.ListArray.from_arrays(np.arange(n + 1, dtype=np.int32) * 5, pa.array(ids[ranking.ravel()], pa.string()))
    return pa.table(
        {
            "window_id": pa.array(np.array([w["window_id"] for w in windows])[each], pa.string()),
            "take_id": pa.array(np.array([w["take_id"] for w in windows])[each], pa.string()),
            "horizon": np.full(n, horizon),
            "variant": pa.array([variant] * n, pa.string()),
            "seed": np.full(n, seed),
            "position": np.tile(np.arange(horizon), len(windows)),
            "label_id": pa.array(ids[truth.ravel()], pa.string()),
            "decoded_id": pa.array(ids[ranking[..., 0].ravel()], pa.string()),
            "top_ids": top,
            "top_scores": scores,
            "gate": pa.array(np.where(opened, 0.8, 0.3)[each], mask=np.full(n, not gated)),
            "opened": pa.array(opened[each], mask=np.full(n, not gated)),
            "candidate": pa.array(candidates[each], pa.string(), mask=~(named & retrieved)),
        }
    ).cast(arrow_schema(Prediction))


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
