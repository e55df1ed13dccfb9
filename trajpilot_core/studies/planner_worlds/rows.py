"""The planners of other papers and the rows that they are compared with, on all test windows of the planners' horizons.

None of these rows retrieves anything, so that neither candidates nor scorers are needed.
Axes: B windows of one horizon H.
"""

from dataclasses import replace
from functools import partial

import pyarrow as pa
from torch import Tensor

from schemas.config import EvaluationConfig
from schemas.planners import PLANNERS
from trajpilot_core.data.chains import chains_of, open_model_files
from trajpilot_core.data.planning import SPLITS, load_planning_data
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.errors import StoreError
from trajpilot_core.evaluation.joint_decoding import choose_knobs, dev_rows, with_choices
from trajpilot_core.evaluation.predictions import SCHEMA, WINDOWS_AT_ONCE, prediction_table
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.batch import WindowBatch, without_motion
from trajpilot_core.methods.planner_models import PlannerRows, PlannerTables, open_planners, planner_rows
from trajpilot_core.methods.planners import MASKED
from trajpilot_core.methods.sequences import SequenceModels, fit_sequences
from trajpilot_core.methods.sight import check_sight, probe_rows
from trajpilot_core.retrieval.bank import ChainView, batches
from trajpilot_core.studies.claims.worlds.curve import curve_view
from trajpilot_core.training.fit_planners import parts_of
from trajpilot_core.training.loop import one_thread

READER = "planner_worlds"
DECODED = "no_traj_viterbi"
COMPARED = ("no_traj", DECODED, "hmm", "oracle", "previous", "majority")
"""Rows next to the planners: what No-Traj says, alone and with the transitions, and what needs no training."""
ROWS = tuple(one for one in METHODS if one.id in {*COMPARED, *PLANNERS, *(f"{row}{MASKED}" for row in PLANNERS)})


def predict_rows(inputs: Inputs, config: EvaluationConfig, device: str, progress: Progress) -> pa.Table:
    """Predict every test window of the horizons that have planners, with every row and every seed.

    Args:
        inputs: what the stage of the rows reads.
        config: how No-Traj + Viterbi chooses on dev.
        device: where the models run.
        progress: called with (done, total, what) after every horizon.

    Returns:
        Columns of `schemas.results.Prediction`.

    Raises:
        LeakError: a row sees more than it declares.
        StoreError: no planner was trained.
    """
    data, files = load_planning_data(inputs, READER), open_model_files(inputs)
    chain = chains_of(data)[0]
    opened = open_planners(inputs, data, chain, device)
    if opened is None:
        raise StoreError(f"{READER}: no planner of another paper was trained here; name them in planners.methods")
    data, horizons = data.to(device), horizons_of(opened)
    tables: list[pa.Table] = []
    with one_thread(device):
        fitted = SequenceModels(fit_sequences(data, chain), config.joint)
        for seed in files.seeds:
            view = curve_view(data, files, seed, device)
            for number, horizon in enumerate(horizons, start=1):
                planned = planner_rows(opened, seed, horizon, device)
                tables += predict_horizon(view, fitted, planned, horizon, seed)
                progress(number, len(horizons), f"seed {seed}, H={horizon}")
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def horizons_of(planners: PlannerTables) -> list[int]:
    """Return the horizons that some planner was trained for, ascending."""
    return sorted({parts_of(key.rpartition("/")[2])[1] for key in planners.models.keys})


def predict_horizon(
    view: ChainView, fitted: SequenceModels, planned: PlannerRows | None, horizon: int, seed: int
) -> list[pa.Table]:
    """Return the predictions of the rows on the test windows of one horizon, in parts."""
    windows, tables = view.data.windows[horizon], []
    dev = windows.segments[dev_rows(windows, fitted.config.dev_windows)]
    on_dev = batch_of(view, fitted, planned, dev) if len(dev) else None
    chosen = with_choices(fitted, choose_knobs(on_dev, fitted.config, seed, horizon, [DECODED]))
    make = partial(batch_of, view, chosen, planned)
    tested = (windows.split == SPLITS.index("test")).nonzero()[:, 0]
    check_sight(ROWS, view, lambda rows: make(windows.segments[rows]), probe_rows(windows.take, tested))
    for rows in batches(tested, WINDOWS_AT_ONCE):
        batch = make(windows.segments[rows])
        for one in ROWS:
            assert one.answer is not None
            if (answers := one.answer(batch)) is not None:
                tables.append(prediction_table(one.id, answers, view.data, windows, rows, seed))
    return tables


def batch_of(
    view: ChainView, sequences: SequenceModels, planned: PlannerRows | None, segments_BH: Tensor
) -> WindowBatch:
    """Return windows with everything that these rows are made from."""
    return replace(without_motion(view, segments_BH), sequences=sequences, planners=planned)
