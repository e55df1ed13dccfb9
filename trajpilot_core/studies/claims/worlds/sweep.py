"""The rows of a world of the sweep: those that need no retrieval, on all test windows."""

import pyarrow as pa

from schemas.claims import SWEEP_ROWS
from trajpilot_core.data.chains import chains_of, open_model_files
from trajpilot_core.data.planning import SPLITS, load_planning_data
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.evaluation.predictions import SCHEMA, WINDOWS_AT_ONCE, prediction_table
from trajpilot_core.methods import method
from trajpilot_core.methods.batch import without_motion
from trajpilot_core.retrieval.bank import ChainView, batches, chain_view
from trajpilot_core.training.loop import one_thread

STAGE = "sweep"


def predict_sweep(inputs: Inputs, device: str, progress: Progress) -> pa.Table:
    """Predict every test window with no_traj, endpoint_traj and oracle, every seed.

    Args:
        inputs: takes, segments, windows, motions, features, text_bank, folds, e_tau and predictors.
        device: where the models run.
        progress: called with (done, total, what) after every horizon.

    Returns:
        Columns of `schemas.results.Prediction`.
    """
    data, files = load_planning_data(inputs, STAGE).to(device), open_model_files(inputs)
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
    windows, tables = view.data.windows[horizon], []
    for rows in batches((windows.split == SPLITS.index("test")).nonzero()[:, 0], WINDOWS_AT_ONCE):
        batch = without_motion(view, windows.segments[rows])
        for one in map(method, SWEEP_ROWS):
            assert one.answer is not None
            answers = one.answer(batch)
            assert answers is not None, "a row of the sweep needs no scorer"
            tables.append(prediction_table(one.id, answers, view.data, windows, rows, seed))
    return tables
