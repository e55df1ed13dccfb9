"""The rows of a world of the sweep: those that need no retrieval, on all test windows."""

import pyarrow as pa

from trajpilot_core.evaluation.rollout import own_plan, rank_plan
from trajpilot_core.evaluation.rows import SCHEMA, WINDOWS_AT_ONCE, Progress, prediction_table
from trajpilot_core.retrieval.bank import ChainView, batches, chain_view, no_traj_plans
from trajpilot_core.stages.stage import Inputs
from trajpilot_core.training.chains import chains_of, read_model_files
from trajpilot_core.training.data import SPLITS, load_planning_data
from trajpilot_core.training.loop import one_thread

STAGE = "sweep"


def predict_sweep(inputs: Inputs, device: str, progress: Progress) -> pa.Table:
    """Predict every test window with no_traj, endpoint_traj and oracle, every seed.

    Args:
        inputs: takes, segments, windows, controls, features, text_bank, folds, e_tau and predictors.
        device: where the models run.
        progress: told (done, total, what) after every horizon.

    Returns:
        Columns of `schemas.results.Prediction`.
    """
    data, files = load_planning_data(inputs, STAGE).to(device), read_model_files(inputs)
    tables: list[pa.Table] = []
    with one_thread(device):
        for seed in files.seeds:
            view = chain_view(data, files, chains_of(data)[0], seed, device)
            for number, horizon in enumerate(data.windows, start=1):
                tables += predict_horizon(view, horizon, seed)
                progress(number, len(data.windows), f"seed {seed}, H={horizon}")
    return pa.concat_tables(tables) if tables else SCHEMA.empty_table()


def predict_horizon(view: ChainView, horizon: int, seed: int) -> list[pa.Table]:
    """Return the predictions of the three rows on the test windows of one horizon, in parts."""
    windows, models = view.data.windows[horizon], view.models
    assert models.endpoint_traj is not None, "only the final chain predicts test windows"
    tables = []
    for rows in batches((windows.split == SPLITS.index("test")).nonzero()[:, 0], WINDOWS_AT_ONCE):
        segments = windows.segments[rows]
        answers = (
            rank_plan("no_traj", no_traj_plans(view, segments), view),
            rank_plan("endpoint_traj", own_plan(view, models.endpoint_traj, segments, with_mids=False), view),
            rank_plan("oracle", own_plan(view, models.traj, segments, with_mids=True), view),
        )
        tables += [prediction_table(answer, view.data, windows, rows, seed) for answer in answers]
    return tables
