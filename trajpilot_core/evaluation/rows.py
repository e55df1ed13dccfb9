"""The predictions of every row of the tables, as Arrow columns, and the tables beside them.

Axes: B windows of one horizon H, R ranked answers. Every row sees the same windows in the same order: seed, horizon,
part, variant, window, position. Source: docs/decisions/scorer.md.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from torch import Tensor

from schemas.arrow import arrow_schema, table_of
from schemas.config import EvaluationConfig
from schemas.rejects import Reject
from schemas.results import Headroom, Prediction, ShuffleScore
from trajpilot_core.evaluation.headroom import Sums, headroom_row, pool_sums
from trajpilot_core.evaluation.ranking import truth_ranks
from trajpilot_core.evaluation.rollout import (
    Answers,
    Asked,
    ReadyPlus,
    ReadyScorer,
    Trained,
    all_answers,
    derangement,
    donors_of,
    shuffled_plan,
)
from trajpilot_core.retrieval.bank import ChainView, batches, build_bank, chain_view, endpoint_keys
from trajpilot_core.retrieval.candidates import find_candidates, permuted, truth_of
from trajpilot_core.stages.stage import Inputs
from trajpilot_core.training.chains import ModelFile, ModelFiles, chains_of, read_model_files
from trajpilot_core.training.data import SPLITS, PlanningData, WindowSet, load_planning_data
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer import queries_of
from trajpilot_core.training.scorer_file import load_plus, load_scorer, scorer_config
from trajpilot_core.training.scorer_plus_lore import plus_source

Progress = Callable[[int, int, str], None]
STAGE = "evaluation"
WINDOWS_AT_ONCE = 1024
SCHEMA = arrow_schema(Prediction)


class RowsResult(NamedTuple):
    """Everything that the evaluation needs of the models."""

    predictions: pa.Table
    """Columns of `Prediction`."""
    headroom: pa.Table
    """Columns of `Headroom`."""
    shuffles: pa.Table
    """Columns of `ShuffleScore`: every shuffle; the first one is the row `shuffled` of the predictions."""
    rejects: list[Reject]
    """Test windows that lack a feature or a trajectory."""
    n_in: int
    n_out: int
    """Test windows, before and after those rejects."""


class Part(NamedTuple):
    """Results on one batch of windows."""

    predictions: list[pa.Table]
    headroom: dict[int, Sums]
    """Pool size -> sums."""


def predict_all(inputs: Inputs, config: EvaluationConfig, device: str, progress: Progress) -> RowsResult:
    """Predict every test window with every row and every seed.

    Args:
        inputs: takes, segments, windows, controls, features, text_bank, folds, e_tau, predictors and scorers.
        config: shuffles, their seed, and the pool sizes of the headroom table.
        device: where the models run.
        progress: told (done, total, what) after every horizon.
    """
    data = load_planning_data(inputs, STAGE)
    split_of = dict(zip(data.take_ids, data.take_split.tolist(), strict=True))
    rejects = [row for row in data.rejects if SPLITS[split_of[row.take]] == "test"]
    files, scorers = read_model_files(inputs), ModelFile(*inputs.model("scorers"))
    with one_thread(device):
        tables = predict_rows(data.to(device), files, scorers, config, "test", device, progress)
    n_out = sum(int((windows.split == SPLITS.index("test")).sum()) for windows in data.windows.values())
    return RowsResult(*tables, rejects, n_out + sum(row.n_units for row in rejects), n_out)


def predict_rows(
    data: PlanningData, files: ModelFiles, scorers: ModelFile, config: EvaluationConfig, split: str, device: str,
    progress: Progress,
) -> tuple[pa.Table, pa.Table, pa.Table]:  # fmt: skip
    """Return the tables of predictions, headroom and shuffles of one split; `data` lie on `device`."""
    predictions, headroom, shuffles = [], [], []
    total = len(files.seeds) * len(data.windows)
    for seed in files.seeds:
        view = chain_view(data, files, chains_of(data)[0], seed, device)
        trained = load_trained(scorers, view, seed, device)
        for horizon, windows in data.windows.items():
            rows = (windows.split == SPLITS.index(split)).nonzero()[:, 0]
            if not len(rows):
                continue
            parts = list(predict_parts(view, trained, horizon, rows, seed, config))
            predictions += [table for part in parts for table in part.predictions]
            for pool in parts[0].headroom:
                headroom.append(headroom_row(seed, horizon, pool, [part.headroom[pool] for part in parts]))
            shuffles += shuffle_scores(view, windows.segments[rows], seed, config)
            done = len({(row.seed, row.horizon) for row in shuffles})
            progress(done, total, f"seed {seed}, H={horizon}: {len(rows)} windows")
    whole = pa.concat_tables(predictions) if predictions else SCHEMA.empty_table()
    return whole, table_of(Headroom, headroom), table_of(ShuffleScore, shuffles)


def load_trained(scorers: ModelFile, view: ChainView, seed: int, device: str) -> Trained:
    """Read the scorers of one seed, and collect what Scorer+ takes from the training takes of the final chain."""
    config = scorer_config(scorers)
    ablated = {name: ReadyScorer(*load_scorer(scorers, seed, device, name)) for name in config.ablations}
    plus = None
    if config.plus is not None:
        scorer, decision = load_plus(scorers, config.plus, seed, device)
        plus = ReadyPlus(scorer, decision, plus_source(view, config))
    return Trained(config, ReadyScorer(*load_scorer(scorers, seed, device)), ablated, plus)


def predict_parts(
    view: ChainView, trained: Trained, horizon: int, rows: Tensor, seed: int, config: EvaluationConfig
) -> Iterator[Part]:
    """Yield the results on `rows` (long of shape (N,)) of one horizon's windows, in parts that fit the memory."""
    windows = view.data.windows[horizon]
    bank = build_bank(view, horizon, trained.config.key)
    donors = donors_of(windows.segments[rows], config.seed, 0)
    strangers = derangement(len(bank.take), 1_000_003 * config.seed + horizon)
    for part, donors_BM in zip(batches(rows, WINDOWS_AT_ONCE), batches(donors, WINDOWS_AT_ONCE), strict=True):
        found = find_candidates(view, bank, part, trained.config)
        queries = queries_of(view, found, trained.config)
        asked = Asked(found, queries, permuted(view, bank, found, strangers), donors_BM)
        answers = all_answers(view, asked, trained)
        keys = endpoint_keys(view, found.segments, trained.config.key, found.fallback)
        pools = [pool for pool in config.headroom_pools if pool <= trained.config.candidates and len(bank.take)]
        draw = 1_000_003 * config.seed + int(part[0])
        yield Part(
            [prediction_table(answer, view.data, windows, part, seed) for answer in answers],
            {pool: pool_sums(view, bank, keys, found, queries, pool, draw) for pool in pools},
        )


def shuffle_scores(view: ChainView, segments_NH: Tensor, seed: int, config: EvaluationConfig) -> list[ShuffleScore]:
    """Score every derangement of the middle trajectories of one horizon's (N, H) windows."""
    truth = truth_of(view.data, segments_NH)
    scores = []
    for shuffle in range(config.shuffles):
        plan = shuffled_plan(view, segments_NH, donors_of(segments_NH, config.seed, shuffle))
        right = truth_ranks(plan[:, 1:-1], truth, view.data.bank) == 0
        scores.append(
            ShuffleScore(
                seed=seed,
                shuffle=shuffle,
                horizon=segments_NH.shape[1],
                n_windows=len(segments_NH),
                m1=100 * float(right.double().mean()),
                mseq=100 * float(right.all(1).double().mean()),
            )
        )
    return scores


def prediction_table(answers: Answers, data: PlanningData, windows: WindowSet, rows: Tensor, seed: int) -> pa.Table:
    """Return the B x H rows of one variant on (B,) rows of one horizon, window by window."""
    rows = rows.cpu()
    ids_BHR = answers.ids.cpu().numpy()
    n, horizon, ranked = ids_BHR.shape
    labels, window_ids = pa.array(data.label_ids, pa.string()), pa.array(windows.window_ids, pa.string())
    repeat = np.repeat(rows.numpy(), horizon)
    takes = windows.take.cpu()[rows].numpy().repeat(horizon)
    offsets = pa.array(np.arange(0, n * horizon * ranked + 1, ranked, dtype=np.int32))
    truth = data.labels[windows.segments[rows.to(data.labels.device)]].cpu().numpy()
    scores = answers.scores.cpu().numpy().astype(np.float64)
    decoded = ids_BHR[:, :, 0] if answers.decoded is None else answers.decoded.cpu().numpy()
    columns = {
        "window_id": window_ids.take(pa.array(repeat)),
        "take_id": pa.array(data.take_ids, pa.string()).take(pa.array(takes)),
        "horizon": pa.array(np.full(n * horizon, horizon)),
        "variant": pa.array([answers.variant], pa.string()).take(pa.array(np.zeros(n * horizon, dtype=np.int64))),
        "seed": pa.array(np.full(n * horizon, seed)),
        "position": pa.array(np.tile(np.arange(horizon), n)),
        "label_id": labels.take(pa.array(truth.ravel())),
        "decoded_id": labels.take(pa.array(decoded.ravel())),
        "top_ids": pa.ListArray.from_arrays(offsets, labels.take(pa.array(ids_BHR.ravel()))),
        "top_scores": pa.ListArray.from_arrays(offsets, pa.array(scores.ravel())),
        "gate": _repeated(answers.gate, horizon, n, pa.float64()),
        "opened": _repeated(answers.opened, horizon, n, pa.bool_()),
        "candidate": _window_names(answers.window, window_ids, horizon, n),
    }
    return pa.table({name: columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names}, schema=SCHEMA)


def _repeated(value_B: Tensor | None, horizon: int, n: int, type_: pa.DataType) -> pa.Array:
    """Return one value per position of each of the n windows; nulls for None."""
    if value_B is None:
        return pa.nulls(n * horizon, type_)
    return pa.array(np.repeat(value_B.cpu().numpy(), horizon)).cast(type_)


def _window_names(window_B: Tensor | None, window_ids: pa.Array, horizon: int, n: int) -> pa.Array:
    """Return the ids of the windows used, one per position; null for -1 and for None."""
    if window_B is None:
        return pa.nulls(n * horizon, pa.string())
    index = np.repeat(window_B.cpu().numpy(), horizon)
    return window_ids.take(pa.array(index, mask=index < 0))
