"""Scorer: retrieve candidates, roll them out, and learn when to trust one and which."""

from pathlib import Path

from schemas.arrow import table_of
from schemas.results import CurvePoint
from schemas.training import ScorerConfig
from trajpilot_core.engine.progress import Progress, portion
from trajpilot_core.engine.stage import Stage, Work
from trajpilot_core.stages.needs_of_trainings import scorer_needs

VERSION = 6  # raise when the numbers that this stage writes change


def run(work: Work[ScorerConfig]) -> None:
    """Fit the scorers of every seed on the held-out takes of every chain.

    Rows are the training and dev windows that it reads; predictor has rejected the others, so none is lost here.
    """
    from trajpilot_core.data.chains import open_model_files
    from trajpilot_core.data.planning import SPLITS, load_planning_data
    from trajpilot_core.training.jobs import UNIT
    from trajpilot_core.training.loop import one_thread
    from trajpilot_core.training.scorer_file import fit_once, write_scorers
    from trajpilot_core.training.scorer_fit import FittedSeed, epochs_of, fit_scorers
    from trajpilot_core.training.scorer_plus_statistics import StatisticsByChain

    config = work.config
    device, scratch = work.runtime.device, work.runtime.scratch
    data = load_planning_data(work.inputs, "scorer").to(device)
    files = open_model_files(work.inputs)
    each = epochs_of(config)

    def shown(done: int, total: int, what: str) -> None:
        work.runtime.progress(done, total, f"{UNIT}; {what}")

    total, known = len(files.seeds) * each, StatisticsByChain()
    fitted = {}
    with one_thread(device):
        for n, seed in enumerate(files.seeds):
            own = portion(shown, n * each, total)

            def fit(folder: Path, seed: int = seed, progress: Progress = own) -> FittedSeed:
                checkpoint_s = work.runtime.checkpoint_s
                return fit_scorers(data, files, config, seed, folder, device, progress, known, checkpoint_s)

            fitted[seed] = fit_once(scratch / f"s{seed}", seed, config, fit)
    write_scorers(work.sink, fitted, config)
    work.sink.table("scorer_curves", table_of(CurvePoint, [row for s in files.seeds for row in fitted[s].curves()]))
    used = sum(int((windows.split != SPLITS.index("test")).sum()) for windows in data.windows.values())
    work.sink.count(used, used)


STAGE = Stage(
    name="scorer",
    reads=("takes", "segments", "windows", "motions", "features", "text_bank", "folds", "e_tau", "predictors"),
    writes=("scorers", "scorer_curves"),
    config=ScorerConfig,
    run=run,
    version=VERSION,
    summary="Retrieves candidate trajectories and learns when to trust one, and which (gate, then rank)",
    uses_gpu=True,
    needs=scorer_needs,
)
