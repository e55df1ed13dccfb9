"""Pose sources: predictors trained on one source of head motion and asked with another; trains, scores, writes pages.

One frozen E_tau, fitted on pose files; only the predictors' trajectories differ; every row is given the true middle
trajectories, from the source that it is asked with (paper, robustness to RGB-only camera poses).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.annotation import SIMULATED
from schemas.arrow import table_of
from schemas.config import PipelineConfig
from schemas.pose_sources import PoseScore, PoseSourcesConfig
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import seeds_of
from trajpilot_core.engine.needs import Needs, NeedsMachine
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.engine.stage import Stage, Work
from trajpilot_core.stages.needs_of_trainings import predictor_needs
from trajpilot_core.stages.predictor import make_task
from trajpilot_core.stages.pretrained import origin_of_models

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.arrays import Array
    from trajpilot_core.data.cross_fitting import Chain
    from trajpilot_core.data.planning import PlanningData
    from trajpilot_core.data.two_motions import TwoMotions
    from trajpilot_core.models.predictor import CausalPredictor
    from trajpilot_core.training.fit_predictor import PredictorTask
    from trajpilot_core.training.jobs import TrainingJob

VERSION = 1  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> PoseSourcesConfig:
    """Return the settings of the stage with those of predictor, decoding and evaluation that it works with."""
    measured = {name: getattr(config.evaluation, name) for name in ("bootstrap", "confidence", "seed")}
    predictor = config.predictor.replace(twin_goal_dropout=None)
    return config.pose_sources.replace(predictor=predictor, decoding=config.scorer.decoding, **measured)


def needs(sizes: CorpusSizes, cfg: PoseSourcesConfig, machine: NeedsMachine) -> Needs:
    """State what fitting the predictors needs: as those of planning."""
    return predictor_needs(sizes, sizes.config.predictor, machine)


def run(work: Work[PoseSourcesConfig]) -> None:
    """Fit one predictor per source, mixture and seed; ask each as its rows say; score and judge."""
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.two_motions import two_motions
    from trajpilot_core.training.fit_predictor import train_predictor
    from trajpilot_core.training.jobs import job_result, run_jobs
    from trajpilot_core.training.loop import one_thread

    found = two_motions(work.inputs, "pose_sources")
    data, chain = found.data, chains_of(found.data)[0]
    seeds = seeds_of(work.inputs.models("e_tau").keys)
    refuse_other_run(work, chain, seeds)
    steps = CountedSteps(work.runtime.progress, after=len(seeds) + 1)
    latents = {seed: latents_of(work, found, chain, seed) for seed in seeds}
    tasks = {seed: tasks_of(work, data, chain, seed, latents[seed]) for seed in seeds}
    jobs = {(seed, name): job_of(work, seed, name, task) for seed in seeds for name, task in tasks[seed].items()}
    run_jobs(list(jobs.values()), train_predictor, replace(work.runtime, progress=steps))
    curves = [row for job in jobs.values() for row in job_result(job)[1]]
    scores: dict[tuple[str, int], Array] = {}
    with one_thread(work.runtime.device):
        for seed in seeds:
            steps.begin(f"the rows of seed {seed}")
            models = {name: fitted(work, jobs[seed, name], task) for name, task in tasks[seed].items()}
            scores |= ask(work, data, chain, models, latents[seed], seed)
    steps.begin("metrics, intervals and pages")
    work.sink.reject(data.rejects)
    n_windows = sum(len(windows.window_ids) for windows in data.windows.values())
    work.sink.count(n_windows + sum(row.n_units for row in data.rejects), n_windows)
    write_results(work, scores, curves, found)


def refuse_other_run(work: Work[PoseSourcesConfig], chain: "Chain", seeds: list[int]) -> None:
    """Refuse weights of another run that have seen what is held out here, before anything is trained.

    Raises:
        InputError: names the takes and captures (docs/decisions/pretrained.md).
    """
    from trajpilot_core.data.contributions import folds_of
    from trajpilot_core.data.cross_fitting import model_key
    from trajpilot_core.stages.pretrained import initial_weights

    variants = ("traj", "no_traj")
    wanted = {model_key(chain, seed, variant): (chain, seed, variant) for seed in seeds for variant in variants}
    initial_weights(work.inputs, work.config.net, wanted, folds_of(work.inputs))


def latents_of(work: Work[PoseSourcesConfig], found: "TwoMotions", chain: "Chain", seed: int) -> "dict[str, Tensor]":
    """Return source -> (S, E) embeddings of its head motion by the one E_tau, on the CPU."""
    from trajpilot_core.data.chains import load_e_tau, trajectory_latents

    encoder = load_e_tau(work.inputs.models("e_tau"), chain, seed, work.runtime.device)
    motions = {"files": found.data.motions, "raw": found.raw, "by_rule": found.by_rule}
    return {name: trajectory_latents(encoder, one.to(work.runtime.device)).cpu() for name, one in motions.items()}


def tasks_of(
    work: Work[PoseSourcesConfig], data: "PlanningData", chain: "Chain", seed: int, latents: "Mapping[str, Tensor]"
) -> "dict[str, PredictorTask]":
    """Return the tensors of each predictor of a seed (evaluation.pose_rows.MODELS)."""
    from trajpilot_core.training.initial_weights import places_for

    files = make_task(data, work.inputs.models("e_tau"), chain, seed, work.runtime.device)
    files = replace(files, max_horizon=places_for(files.max_horizon, work.config.net))
    video = replace(files, latents=latents["by_rule"])
    both = union(files, latents["by_rule"])
    return {"files": files, "video": video, "both": both, "both_equal": both, "none": files}


def union(task: "PredictorTask", latents_SE: "Tensor") -> "PredictorTask":
    """Return the task that is fitted on every window twice, with its latents and with others, which dev has."""
    import torch

    n = len(task.latents)
    return replace(
        task,
        features=torch.cat([task.features, task.features]),
        latents=torch.cat([task.latents, latents_SE]),
        labels=torch.cat([task.labels, task.labels]),
        fit={h: torch.cat([rows, rows + n]) for h, rows in task.fit.items()},
        dev={h: rows + n for h, rows in task.dev.items()},
    )


def job_of(work: Work[PoseSourcesConfig], seed: int, name: str, task: "PredictorTask") -> "TrainingJob":
    """Write the tensors of a predictor to scratch, and return its training.

    The mixture has twice the windows, so twice the steps an epoch; `both_equal` has half the epochs.
    """
    from trajpilot_core.training.fit_predictor import task_tensors
    from trajpilot_core.training.jobs import OWN, SHARED, TrainingJob, put_tensors

    cfg, folder = work.config.net, work.runtime.scratch / "pose-sources" / f"s{seed}" / name
    for part, tensors in zip((SHARED, OWN), task_tensors(task), strict=True):
        put_tensors(folder, part, tensors)
    if name == "both_equal":
        cfg = cfg.replace(train=cfg.train.replace(epochs=max(1, cfg.train.epochs // 2)))
    variant = "no_traj" if name == "none" else "traj"
    return TrainingJob(
        name=f"final/{name}",
        seed=seed,
        variant=variant,
        folder=folder / "fit",
        own=folder,
        shared=folder,
        config=cfg.model_dump_json(),
        device=work.runtime.device,
        checkpoint_s=work.runtime.checkpoint_s,
    )


def fitted(work: Work[PoseSourcesConfig], job: "TrainingJob", task: "PredictorTask") -> "CausalPredictor":
    """Build the frozen predictor of a training that has ended."""
    from trajpilot_core.training.fit_predictor import new_predictor
    from trajpilot_core.training.jobs import job_result

    model = new_predictor(task, work.config.net)
    model.load_state_dict(job_result(job)[0], strict=True)
    return model.to(work.runtime.device).eval().requires_grad_(False)


def ask(
    work: Work[PoseSourcesConfig],
    data: "PlanningData",
    chain: "Chain",
    models: "Mapping[str, CausalPredictor]",
    latents: "Mapping[str, Tensor]",
    seed: int,
) -> "dict[tuple[str, int], Array]":
    """Return (row, seed) -> scores (N, 2) of the test windows."""
    from trajpilot_core.data.transitions import closed
    from trajpilot_core.evaluation.pose_rows import ROWS, window_scores
    from trajpilot_core.retrieval.bank import readout_of

    device = work.runtime.device
    is_closed, decoding = work.config.net.head == "classes", work.config.decoding
    assert decoding is not None
    data = (closed(data, work.inputs) if is_closed else data).to(device)
    found = {}
    for row in ROWS:
        model, variant = models[row.model], "no_traj" if row.model == "none" else "traj"
        readout = readout_of(data, chain, model, decoding)
        found[row.name, seed] = window_scores(model, readout, data, latents[row.asked].to(device), variant)
    return found


def write_results(
    work: Work[PoseSourcesConfig],
    scores: "Mapping[tuple[str, int], Array]",
    curves: list[CurvePoint],
    found: "TwoMotions",
) -> None:
    """Score and judge the answers, and write tables and pages."""
    from trajpilot_core.evaluation.pose_rows import judge_poses, scores_of, tested_takes
    from trajpilot_core.report.pose_page import PoseResults, documents

    table = scores_of(scores, tested_takes(found.data), work.config)
    judged = judge_poses(table, work.config)
    sources = {
        name: "/".join(sorted(set(work.inputs.table(name, ["source"])["source"].to_pylist())))
        for name in ("motions", "video_motions")
    }
    facts = [
        f"pose files: {sources['motions']}; video: {sources['video_motions']}",
        f"windows left out because a source lacks a segment: {sum(row.n_units for row in found.data.rejects)}",
        f"median step of the pose files, to which the scale rule brings the others: {found.step_m:.4f} m",
        origin_of_models(work.inputs.models("e_tau").about, work.config.net, "the pose files of this run"),
    ]
    takes = work.inputs.table("takes", ["corpus"])["corpus"].to_pylist()
    is_closed = work.config.net.head == "classes"
    results = PoseResults(table, judged, facts, is_simulated=SIMULATED in takes, is_closed=is_closed)
    work.sink.table("pose_scores", table_of(PoseScore, table))
    work.sink.table("pose_judgements", table_of(Judgement, judged))
    work.sink.table("pose_sources_curves", table_of(CurvePoint, curves))
    for name, content in documents(results).items():
        work.sink.document(name, content)


STAGE = Stage(
    name="pose_sources",
    reads=(
        "takes",
        "segments",
        "scenario_labels",
        "windows",
        "motions",
        "video_motions",
        "features",
        "text_bank",
        "folds",
        "e_tau",
    ),
    writes=(
        "pose_scores",
        "pose_judgements",
        "pose_sources_curves",
        "pose_sources.html",
        "pose_sources.json",
        "pose_sources.tex",
    ),
    config=PoseSourcesConfig,
    run=run,
    version=VERSION,
    summary="Trains predictors on one source of head motion and asks them with another, and writes the table",
    completed=completed,
    uses_gpu=True,
    needs=needs,
)
