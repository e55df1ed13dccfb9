"""Causal predictors: three checkpoints of the final chain, two of each fold's chain, per seed (paper, 3.4)."""

from typing import TYPE_CHECKING

from schemas.annotation import SHORTEST_PLAN
from schemas.arrow import table_of
from schemas.results import CurvePoint
from schemas.training import PredictorConfig
from trajpilot_core.engine.stage import Stage, Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.stages.needs_of_trainings import predictor_needs

if TYPE_CHECKING:
    from trajpilot_core.data.chains import Chain
    from trajpilot_core.data.planning import PlanningData
    from trajpilot_core.store.tensors import Models
    from trajpilot_core.training.fit_predictor import PredictorTask
    from trajpilot_core.training.jobs import TrainingJob

VERSION = 4  # raise when the numbers that this module writes change


def run(work: Work[PredictorConfig]) -> None:
    """Fit every predictor of every chain and seed on the windows of its takes, keep the best epoch on dev."""
    from trajpilot_core.data.chains import alignment_config, chains_of, variants_of
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.training.fit_predictor import predictor_shape, task_tensors, train_predictor
    from trajpilot_core.training.jobs import SHARED, fitted_takes, hand_over, put_tensors, run_jobs

    cfg = work.config
    data = load_planning_data(work.inputs, "predictor")
    e_tau = work.inputs.models("e_tau")
    jobs: list[TrainingJob] = []
    rows: list[CurvePoint] = []
    shape = None
    for chain in chains_of(data):
        for seed in alignment_config(e_tau).seeds:
            task = make_task(data, e_tau, chain, seed, work.runtime.device)
            if shape is None:
                shape = predictor_shape(task)
                put_tensors(work.runtime.scratch / "predictor", SHARED, task_tensors(task)[0])
            rows += floor_rows(task, chain, seed)
            jobs += chain_jobs(task, chain, seed, variants_of(chain), work)
    run_jobs(jobs, train_predictor, work.runtime)
    for job in jobs:
        rows += hand_over(job, "predictors", work.sink)
    assert shape is not None
    about = {"config": cfg.model_dump_json(), "shape": shape.to_json()}
    about["fitted_takes"] = fitted_takes(jobs, data.segment_take, data.take_ids)
    work.sink.models("predictors", about)
    work.sink.table("predictor_curves", table_of(CurvePoint, rows))
    count_windows(data, work)


def count_windows(data: "PlanningData", work: Work[PredictorConfig]) -> None:
    """Count and reject the training and dev windows; this stage uses no test window, evaluation counts those."""
    from trajpilot_core.data.planning import SPLITS

    test = SPLITS.index("test")
    split_of = dict(zip(data.take_ids, data.take_split.tolist(), strict=True))
    lost = [row for row in data.rejects if split_of[row.take] != test]
    kept = sum(int((windows.split != test).sum()) for windows in data.windows.values())
    work.sink.reject(lost)
    work.sink.count(kept + sum(row.n_units for row in lost), kept)


def make_task(data: "PlanningData", e_tau: "Models", chain: "Chain", seed: int, device: str) -> "PredictorTask":
    """Return the tensors of one chain and seed: its latents, the windows of its takes, and all dev windows.

    Raises:
        TrainingError: no window to fit on, or none in dev, or windows without a step between Start and Goal.
    """
    import torch

    from trajpilot_core.data.chains import fit_takes, load_e_tau, trajectory_latents
    from trajpilot_core.data.planning import rows_of_takes
    from trajpilot_core.training.fit_predictor import PredictorTask

    if min(data.windows, default=SHORTEST_PLAN) < SHORTEST_PLAN:
        raise TrainingError(
            f"windows of {min(data.windows)} segments leave no step to plan between Start and Goal, {SHORTEST_PLAN} is "
            "least; a corpus of such windows (basketball) waits for a head of its own: end its run before predictor"
        )
    takes = fit_takes(data, chain)
    fit = {h: w.segments[torch.isin(w.take, takes)] for h, w in data.windows.items()}
    dev = {h: w.segments[w.split == 1] for h, w in data.windows.items()}
    fit, dev = ({h: s for h, s in part.items() if len(s)} for part in (fit, dev))
    if not fit or not dev:
        raise TrainingError(
            f"chain {chain.name}: windows of {len(fit)} horizons to fit on and of {len(dev)} in dev; both are needed: "
            "look at the rejects of ingest, trajectories and features"
        )
    encoder = load_e_tau(e_tau, chain, seed, device)
    latents = trajectory_latents(encoder, data.motions.to(device)).cpu()
    rows = rows_of_takes(data.segment_take, takes)
    return PredictorTask(data.features, latents, data.labels, data.bank, rows, fit, dev, max(data.windows))


def chain_jobs(
    task: "PredictorTask", chain: "Chain", seed: int, variants: tuple[str, ...], work: Work[PredictorConfig]
) -> "list[TrainingJob]":
    """Write a chain's own tensors to scratch and return its trainings, one per variant."""
    from trajpilot_core.training.fit_predictor import task_tensors
    from trajpilot_core.training.jobs import OWN, TrainingJob, put_tensors

    scratch = work.runtime.scratch / "predictor"
    own = scratch / f"{chain.name}-s{seed}"
    put_tensors(own, OWN, task_tensors(task)[1])
    return [
        TrainingJob(
            name=f"{chain.name}/{variant}",
            seed=seed,
            variant=variant,
            folder=own / variant,
            own=own,
            shared=scratch,
            config=work.config.model_dump_json(),
            device=work.runtime.device,
            checkpoint_s=work.runtime.checkpoint_s,
        )
        for variant in variants
    ]


def floor_rows(task: "PredictorTask", chain: "Chain", seed: int) -> list[CurvePoint]:
    """Return the dev scores of the rows that need no model, as epoch 0 of `<chain>/majority` and `<chain>/previous`."""
    from trajpilot_core.training.dev_scores import floor_scores

    labels = [{h: task.labels[segments] for h, segments in part.items()} for part in (task.fit, task.dev)]
    scores = floor_scores(labels[0], labels[1], len(task.bank))
    return [
        CurvePoint(model=f"{chain.name}/{row}", seed=seed, epoch=0, split="dev", quantity=name, value=value)
        for row, values in scores.items()
        for name, value in values.items()
    ]


STAGE = Stage(
    name="predictor",
    reads=("takes", "segments", "windows", "motions", "features", "text_bank", "folds", "e_tau"),
    writes=("predictors", "predictor_curves"),
    config=PredictorConfig,
    run=run,
    version=VERSION,
    summary="Trains the causal predictors, with and without trajectories",
    uses_gpu=True,
    needs=predictor_needs,
)
