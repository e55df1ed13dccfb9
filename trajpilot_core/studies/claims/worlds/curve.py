"""The rows of a world of the learning curve, which need no retrieval, on all test windows."""

import pyarrow as pa

from schemas.claims import CURVE_ROWS
from trajpilot_core.data.chains import (
    ChainModels,
    ModelFiles,
    chains_of,
    load_e_tau,
    load_predictor,
    open_model_files,
    predictor_config,
    trajectory_latents,
)
from trajpilot_core.data.planning import SPLITS, PlanningData, load_planning_data
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.evaluation.predictions import SCHEMA, WINDOWS_AT_ONCE, prediction_table
from trajpilot_core.methods import method
from trajpilot_core.methods.batch import without_motion
from trajpilot_core.models.ranking import LabelBank
from trajpilot_core.models.readout import CosineReadout
from trajpilot_core.retrieval.bank import ChainView, batches
from trajpilot_core.training.loop import one_thread

READER = "curve"


def predict_curve(inputs: Inputs, device: str, progress: Progress) -> pa.Table:
    """Predict every test window with the rows of the learning curve, every seed.

    Args:
        inputs: takes, segments, windows, motions, features, text_bank, folds, e_tau and predictors.
        device: where the models run.
        progress: called with (done, total, what) after every horizon.

    Returns:
        Columns of `schemas.results.Prediction`.
    """
    data, files = load_planning_data(inputs, READER).to(device), open_model_files(inputs)
    tables: list[pa.Table] = []
    with one_thread(device):
        for seed in files.seeds:
            view = curve_view(data, files, seed, device)
            for number, horizon in enumerate(data.windows, start=1):
                tables += predict_horizon(view, horizon, seed)
                progress(number, len(data.windows), f"seed {seed}, H={horizon}")
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def curve_view(data: PlanningData, files: ModelFiles, seed: int, device: str) -> ChainView:
    """Load the two predictors of the only chain and encode the trajectory of every segment."""
    chain = chains_of(data)[0]
    e_tau = load_e_tau(files.e_tau, chain, seed, device)
    traj, no_traj = (load_predictor(files.predictors, chain, seed, name, device) for name in ("traj", "no_traj"))
    precision = predictor_config(files.predictors).train.precision
    models = ChainModels(e_tau, traj, no_traj, None, e_tau.scale, precision)
    return ChainView(data, chain, models, trajectory_latents(e_tau, data.motions), CosineReadout(LabelBank(data.bank)))


def predict_horizon(view: ChainView, horizon: int, seed: int) -> list[pa.Table]:
    """Return the predictions of the rows on the test windows of one horizon, in parts."""
    windows, tables = view.data.windows[horizon], []
    for rows in batches((windows.split == SPLITS.index("test")).nonzero()[:, 0], WINDOWS_AT_ONCE):
        batch = without_motion(view, windows.segments[rows])
        for one in map(method, CURVE_ROWS):
            assert one.answer is not None
            answers = one.answer(batch)
            assert answers is not None, "a row of the learning curve needs no scorer"
            tables.append(prediction_table(one.id, answers, view.data, windows, rows, seed))
    return tables
