"""The predictions of every row of the tables, as Arrow columns, and the figures next to them.

Axes: B windows of one horizon H, R ranked answers. Every row sees the same windows in the same order: seed, horizon,
part, variant, window, position. Source: docs/decisions/scorer.md.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from schemas.arrow import arrow_schema
from schemas.config import CompletedEvaluation
from schemas.rejects import Reject
from schemas.results import DecodingChoice, Headroom, Prediction, SamplingScore, ShuffleScore
from trajpilot_core.data.chains import ModelFiles, chains_of, open_model_files
from trajpilot_core.data.planning import SPLITS, PlanningData, WindowSet, in_classes, load_planning_data
from trajpilot_core.data.transitions import with_closed_tables
from trajpilot_core.engine.progress import Progress
from trajpilot_core.evaluation import headroom
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import Answers
from trajpilot_core.methods.batch import (
    Anticipation,
    Scorers,
    WindowBatch,
    at_horizon,
    load_anticipation,
    load_scorers,
    retrieve,
    retrieved_by_start,
)
from trajpilot_core.methods.planner_models import PlannerRows, PlannerTables, open_planners, planner_rows
from trajpilot_core.methods.plans import derangement, donors_of
from trajpilot_core.methods.sequences import Knobs, SequenceModels, fit_sequences
from trajpilot_core.methods.sight import check_sight, probe_rows, stand_ins
from trajpilot_core.retrieval.bank import Bank, ChainView, batches, build_bank, chain_view, goal_dropout_view
from trajpilot_core.runtime import in_threads
from trajpilot_core.store.reading import Inputs
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.loop import one_thread
from trajpilot_core.training.scorer_fit import scorer_config
from trajpilot_core.vlm.material import subset

WINDOWS_AT_ONCE = 768
SCHEMA = arrow_schema(Prediction)


@dataclass(frozen=True)
class RowFigures:
    """Figures of rows next to their predictions; complete once all predictions were read."""

    headroom: list[Headroom] = field(default_factory=list)
    shuffles: list[ShuffleScore] = field(default_factory=list)
    """Scores of every shuffle; the first one is the row `shuffled` of the predictions."""
    samplings: list[SamplingScore] = field(default_factory=list)
    decoding: list[DecodingChoice] = field(default_factory=list)
    """Choices on dev for rows that decode steps together."""


class RowModels(NamedTuple):
    """Models of rows, next to those of the chain, for windows of one seed and horizon."""

    ready: Scorers
    sequences: SequenceModels
    planners: PlannerRows | None = None
    goal_dropout: ChainView | None = None
    anticipation: Anticipation | None = None


class RowsResult(NamedTuple):
    """Everything that the evaluation needs from the models."""

    predictions: Iterator[pa.Table]
    """Columns of `Prediction`, predicted as they are read and not kept."""
    figures: RowFigures
    rejects: list[Reject]
    """Test windows that lack a feature or a trajectory."""
    n_in: int
    n_out: int
    """Test windows, before and after those rejects."""


def predict_all(
    inputs: Inputs, config: CompletedEvaluation, device: str, progress: Progress, threads: int = 1
) -> RowsResult:
    """Predict every test window with every row and every seed.

    Args:
        inputs: takes, segments, label_classes, scenario_labels, windows, motions, features, text_bank,
            folds, e_tau, predictors, scorers, and the entries that `config.further_entries` names.
        threads: how many parts of the windows are predicted at a time on a CPU; changes no number.

    Raises:
        LeakError: a row sees more than it declares (while the predictions are read).
    """
    files, scorers = open_model_files(inputs), inputs.models("scorers")
    data = load_planning_data(inputs, "evaluation")
    if config.vocabulary == "classes":
        data = in_classes(data, inputs.table("label_classes"))
    data = with_closed_tables(data, inputs, files.predictors)
    if config.windows_per_horizon is not None:
        data = on_subset(data, config.windows_per_horizon, config.subset_seed)
    split_of = dict(zip(data.take_ids, data.take_split.tolist(), strict=True))
    rejects = [row for row in data.rejects if SPLITS[split_of[row.take]] == "test"]
    figures = RowFigures()
    n_out = sum(int((windows.split == SPLITS.index("test")).sum()) for windows in data.windows.values())
    has_planners = "planner_models" in config.further_entries
    planners = open_planners(inputs, data, chains_of(data)[0], device) if has_planners else None
    on_device = data.to(device)
    ours = predict_rows(on_device, files, scorers, config, "test", device, progress, planners, figures, threads)
    entries = [entry for entry in config.further_entries if entry in {row.predictions for row in METHODS}]
    others = (inputs.table(entry).cast(SCHEMA) for entry in entries)
    tables = itertools.chain(on_one_thread(ours, device), others)
    n_in = n_out + sum(row.n_units for row in rejects)
    return RowsResult(tables, figures, rejects, n_in, n_out)


def on_one_thread(tables: Iterator[pa.Table], device: str) -> Iterator[pa.Table]:
    """Yield the tables; each is computed under `one_thread`, and their reader keeps its own number of threads."""
    while True:
        with one_thread(device):
            table = next(tables, None)
        if table is None:
            return
        yield table


def predict_rows(
    data: PlanningData,
    files: ModelFiles,
    scorers: Models,
    config: CompletedEvaluation,
    split: str,
    device: str,
    progress: Progress,
    planners: PlannerTables | None = None,
    figures: RowFigures | None = None,
    threads: int = 1,
) -> Iterator[pa.Table]:
    """Yield predictions of one split, table by table, and add to `figures`; `data` is on `device`."""
    figures = figures or RowFigures()
    done, total = 0, len(files.seeds) * len(data.windows)
    chain = chains_of(data)[0]
    fitted = fit_sequences(data, chain)
    for seed in files.seeds:
        view = chain_view(data, files, chain, seed, device, scorer_config(scorers).decoding)
        ready = load_scorers(scorers, seed, device)
        twins = goal_dropout_view(view, files, seed, device)
        blind = load_anticipation(files, scorers, twins, seed, device)
        for horizon, windows in data.windows.items():
            rows = (windows.split == SPLITS.index(split)).nonzero()[:, 0]
            if not len(rows):
                continue
            bank = build_bank(view, horizon, ready.config.key)
            planning = planner_rows(planners, seed, horizon, device)
            undecided = SequenceModels(fitted, config.joint)
            models = RowModels(ready, undecided, planning, twins, at_horizon(blind, horizon))
            dev, strangers = headroom.dev_rows(windows, config.joint.dev_windows), derangement(len(bank.take), horizon)
            on_dev = batch_of(view, bank, models, dev, strangers) if len(dev) else None
            choices = headroom.choose_knobs(on_dev, config.joint, seed, horizon)
            del on_dev  # its tensors are not needed while test windows are predicted
            knobs = {choice.variant: Knobs(choice.temperature, choice.weight) for choice in choices}
            models = models._replace(sequences=SequenceModels(fitted, config.joint, knobs))
            if seed == files.seeds[0]:
                check_rows(view, bank, models, rows)
            sums: list[dict[int, headroom.PoolSums]] = []
            parts = predict_parts(view, models, bank, rows, seed, config, device)
            for tables, pools in in_threads(parts, threads if device == "cpu" else 1):
                yield from tables
                sums.append(pools)
            figures.headroom.extend(
                headroom.headroom_row(seed, horizon, pool, [part[pool] for part in sums]) for pool in sums[0]
            )
            figures.shuffles.extend(headroom.shuffle_scores(view, windows.segments[rows], seed, config))
            figures.samplings.extend(headroom.sampling_scores(models.planners, data, windows.segments[rows]))
            figures.decoding.extend(choices)
            done += 1
            progress(done, total, f"seed {seed}, H={horizon}: {len(rows)} windows")


def batch_of(
    view: ChainView, bank: Bank, models: RowModels, rows: Tensor, strangers: Tensor, donors: Tensor | None = None
) -> WindowBatch:
    """Return windows (long of shape (B,)) of the bank's horizon with everything that rows are made from."""
    batch = retrieve(view, bank, rows, models.ready, strangers, donors, models.sequences)
    blind = retrieved_by_start(models.anticipation, rows)
    return replace(batch, planners=models.planners, goal_dropout=models.goal_dropout, anticipation=blind)


def check_rows(view: ChainView, bank: Bank, models: RowModels, rows: Tensor) -> None:
    """Check on a few windows of one horizon that every row sees no more than it declares.

    Args:
        rows: long of shape (n,), windows that are scored.

    Raises:
        LeakError: one sees more.
    """
    strangers = derangement(len(bank.take), bank.horizon)
    n_mids = bank.horizon - 2

    def make(some: Tensor) -> WindowBatch:
        """Retrieve for windows of shape (P,), with training segments in place of shuffled middles."""
        donors = stand_ins(view, len(some) * n_mids).view(len(some), n_mids)
        return batch_of(view, bank, models, some, strangers, donors)

    check_sight(METHODS, view, make, probe_rows(view.data.windows[bank.horizon].take, rows))


def predict_parts(
    view: ChainView, models: RowModels, bank: Bank, rows: Tensor, seed: int, config: CompletedEvaluation, device: str
) -> Iterator[Callable[[], tuple[list[pa.Table], dict[int, headroom.PoolSums]]]]:
    """Yield work on parts of `rows`, long of shape (N,), that fit the memory: predictions, and pool size -> sums."""
    horizon, ready = bank.horizon, models.ready
    windows = view.data.windows[horizon]
    donors = donors_of(windows.segments[rows], config.seed, 0)
    strangers = derangement(len(bank.take), 1_000_003 * config.seed + horizon)
    pools = [pool for pool in config.headroom_pools if pool <= ready.config.candidates and len(bank.take)]

    def predict(part: Tensor, donors_BM: Tensor) -> tuple[list[pa.Table], dict[int, headroom.PoolSums]]:
        """Predict windows of shape (B,)."""
        with one_thread(device):
            batch = batch_of(view, bank, models, part, strangers, donors_BM)
            candidates, queries = batch.candidates().found, batch.candidates().queries
            draw = 1_000_003 * config.seed + int(part[0])
            answers = {row.id: row.answer(batch) for row in METHODS if row.answer is not None}
            known = [(id_, answer) for id_, answer in answers.items() if answer is not None]
            tables = [prediction_table(id_, answer, view.data, windows, part, seed) for id_, answer in known]
            return tables, {pool: headroom.pool_sums(view, bank, candidates, queries, pool, draw) for pool in pools}

    for part, donors_BM in zip(batches(rows, WINDOWS_AT_ONCE), batches(donors, WINDOWS_AT_ONCE), strict=True):
        yield partial(predict, part, donors_BM)


def prediction_table(
    row_id: str, answers: Answers, data: PlanningData, windows: WindowSet, rows: Tensor, seed: int
) -> pa.Table:
    """Return the B x H rows of one variant on (B,) rows of one horizon, window by window."""
    rows = rows.cpu()
    ids_BHR = answers.ids.cpu().numpy()
    n, horizon, ranked = ids_BHR.shape
    labels, window_ids = pa.array(data.label_ids, pa.string()), windows.id_column
    repeat = np.repeat(rows.numpy(), horizon)
    takes = windows.take.cpu()[rows].numpy().repeat(horizon)
    offsets = pa.array(np.arange(0, n * horizon * ranked + 1, ranked, dtype=np.int32))
    truth = data.labels[windows.segments[rows.to(data.labels.device)]].cpu().numpy()
    scores = answers.scores.cpu().numpy().astype(np.float64)
    decoded = ids_BHR[:, :, 0] if answers.decoded is None else answers.decoded.cpu().numpy()
    used = np.repeat(np.full(n, -1) if answers.window is None else answers.window.cpu().numpy(), horizon)
    columns = {
        "window_id": window_ids.take(pa.array(repeat)),
        "take_id": pa.array(data.take_ids, pa.string()).take(pa.array(takes)),
        "horizon": pa.array(np.full(n * horizon, horizon)),
        "variant": pa.array([row_id], pa.string()).take(pa.array(np.zeros(n * horizon, dtype=np.int64))),
        "seed": pa.array(np.full(n * horizon, seed)),
        "position": pa.array(np.tile(np.arange(horizon), n)),
        "label_id": labels.take(pa.array(truth.ravel())),
        "decoded_id": labels.take(pa.array(decoded.ravel())),
        "top_ids": pa.ListArray.from_arrays(offsets, labels.take(pa.array(ids_BHR.ravel()))),
        "top_scores": pa.ListArray.from_arrays(offsets, pa.array(scores.ravel())),
        "gate": _repeated(answers.gate, horizon, n, pa.float64()),
        "opened": _repeated(answers.opened, horizon, n, pa.bool_()),
        "candidate": window_ids.take(pa.array(used, mask=used < 0)),
    }
    return pa.table({name: columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names}, schema=SCHEMA)


def _repeated(value_B: Tensor | None, horizon: int, n: int, type_: pa.DataType) -> pa.Array:
    """Return one value per position of each of the n windows; nulls for None."""
    if value_B is None:
        return pa.nulls(n * horizon, type_)
    return pa.array(np.repeat(value_B.cpu().numpy(), horizon)).cast(type_)


def on_subset(data: PlanningData, per_horizon: int, seed: int) -> PlanningData:
    """Return the data with the subset of the test windows of each horizon that vision-language models answer."""
    windows = {}
    for horizon, known in data.windows.items():
        is_test = (known.split == SPLITS.index("test")).tolist()
        tested = [(id_, horizon) for id_, test in zip(known.window_ids, is_test, strict=True) if test]
        kept = subset(tested, per_horizon, seed)
        rows = [row for row, id_ in enumerate(known.window_ids) if not is_test[row] or id_ in kept]
        at, ids = torch.tensor(rows, dtype=torch.long), tuple(known.window_ids[row] for row in rows)
        windows[horizon] = WindowSet(ids, known.take[at], known.split[at], known.segments[at])
    return replace(data, windows=windows)
