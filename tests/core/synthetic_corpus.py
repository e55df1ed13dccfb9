"""A made-up corpus (takes, windows) and predictions on it, for the tests of evaluation and report."""

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from schemas.annotation import SIMULATED, Label, Segment, Take, Window
from schemas.arrow import arrow_schema, table_of
from schemas.observation import Controls, controls_schema
from schemas.results import Prediction
from trajpilot_core.evaluation.checks import GATED

SKILL = {
    "no_traj": 0.30,
    "endpoint_traj": 0.38,
    "scorer": 0.36,
    "scorer_plus": 0.50,
    "scorer_permuted": 0.31,
    "scorer_no_labels": 0.34,
    "scorer_no_motion": 0.33,
    "oracle": 0.75,
    "top1": 0.28,
    "knn_labels": 0.33,
    "pool_mean": 0.40,
    "shuffled": 0.12,
    "majority": 0.05,
    "previous": 0.08,
}
"""Chance that a position's first answer is right; falls with the horizon for all rows but oracle."""
NAMED = ("scorer", "scorer_permuted", "scorer_no_labels", "scorer_no_motion", "top1")
"""Rows that name the candidate that they use."""


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
            for gated in {*GATED} & set(rankings) if "no_traj" in rankings else ():
                rankings[gated] = np.where(opened[:, None, None], rankings[gated], rankings["no_traj"])
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
    gated, retrieved = variant in GATED, variant in NAMED
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
