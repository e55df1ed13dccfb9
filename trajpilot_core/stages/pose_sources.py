"""Pose sources: predictors trained on one source of head motion and tested with another; trains, scores, writes pages.

One frozen E_tau, fitted on pose files; only the predictors' trajectories differ; every row gets the true middle
trajectories from the source it is tested with (paper, robustness to RGB-only camera poses).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of, table_of
from schemas.config import PipelineConfig
from schemas.poses import POSE_MODELS, CompletedPoseSources, PoseScore, PoseSourcesConfig
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import FINAL, chains_in, folds_of, model_key, seeds_of
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.stage import Work
from trajpilot_core.stages.pretrained import origin_of_models, predictor_facts
from trajpilot_core.stages.trained import PLANNING, Facts, Fits, TrainedStage, Trainings, named, variants_by_chain
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.arrays import Array
    from trajpilot_core.data.two_motions import TwoMotions
    from trajpilot_core.training.fit_predictor import PredictorTask
    from trajpilot_core.training.jobs import TrainingJob

ENTRY, CURVES = "pose_models", "pose_sources_curves"
READS = (*PLANNING, "scenario_labels", "video_motions", "e_tau")
RESULTS = ("pose_scores", "pose_judgements", "pose_sources.html", "pose_sources.json", "pose_sources.tex")
VERSION = 5  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> CompletedPoseSources:
    """Return the settings of the stage with those of predictor, decoding and evaluation that it uses."""
    measured = {name: getattr(config.evaluation, name) for name in ("bootstrap", "confidence", "seed")}
    predictor = config.predictor.replace(twin_goal_dropout=None)
    return CompletedPoseSources.completing(
        config.pose_sources, predictor=predictor, decoding=config.scorer.decoding, **measured
    )


def trainings(inputs: Inputs, cfg: CompletedPoseSources) -> Trainings:
    """Return each of `POSE_MODELS` of every seed."""
    return named(product(chains_in(folds_of(inputs))[:1], seeds_of(inputs.parts("e_tau")), POSE_MODELS))


def facts(inputs: Inputs, cfg: CompletedPoseSources, known: Trainings) -> dict[str, Facts]:
    """Return what decides each training: all windows and both motions, since lengths of the second follow the first.

    Raises InputError: weights of another run have seen what is held out here (docs/decisions/pretrained.md).
    """
    first = {name: model_key(chain, seed, variant_of(model)) for name, (chain, seed, model) in known.items()}
    return predictor_facts(inputs, cfg.predictor, known, READS, first)


def variant_of(model: str) -> str:
    """Return the variant as which one of `POSE_MODELS` is trained and tested."""
    return "no_traj" if model == "none" else "traj"


def fits(work: Work[CompletedPoseSources], wanted: Trainings) -> Fits:
    """Prepare the predictors of each source, mixture and seed."""
    from trajpilot_core.data.two_motions import two_motions
    from trajpilot_core.training.fit_predictor import FIT

    motions = two_motions(work.inputs)
    jobs: dict[str, TrainingJob] = {}
    for (_, seed), models in variants_by_chain(wanted).items():
        _, tasks = latents_and_tasks(work, motions, seed)
        jobs |= {model_key(FINAL, seed, model): job_of(work, (seed, model), tasks[model]) for model in models}
    return Fits(jobs, FIT, lambda job: {"config": work.config.predictor.model_dump_json()})


def conclude(work: Work[CompletedPoseSources]) -> None:
    """Test each predictor with the sources of its rows, score and judge; write tables and pages."""
    from trajpilot_core.data.two_motions import two_motions
    from trajpilot_core.training.loop import one_thread

    motions = two_motions(work.inputs)
    first, second = (
        "/".join(sorted({*work.inputs.table(name, ["source"])["source"].to_pylist()}))
        for name in ("motions", "video_motions")
    )
    data, seeds = motions.data, seeds_of(work.inputs.models("e_tau").keys)
    steps = CountedSteps(work.runtime.progress, after=len(seeds) + 1)
    scores: dict[tuple[str, int], Array] = {}
    trained: list[Judgement] = []
    with one_thread(work.runtime.device):
        for seed in seeds:
            steps.begin(f"the rows of seed {seed}")
            of_seed = answer_seed(work, motions, seed, (first, second))
            scores, trained = scores | of_seed[0], trained + of_seed[1]
    steps.begin("metrics, intervals and pages")
    work.sink.reject(data.rejects)
    n_windows = sum(len(windows.window_ids) for windows in data.windows.values())
    work.sink.count(n_windows + sum(row.n_units for row in data.rejects), n_windows)
    work.sink.models(ENTRY, {})
    write_results(work, scores, (first, second), motions, trained)


def answer_seed(
    work: Work[CompletedPoseSources], motions: "TwoMotions", seed: int, sources: tuple[str, str]
) -> "tuple[dict[tuple[str, int], Array], list[Judgement]]":
    """Return (row, seed) -> scores (N, 2) of the test windows, and whether each predictor is trained (D 51)."""
    from trajpilot_core.data.chains import chains_of, frozen
    from trajpilot_core.data.transitions import closed
    from trajpilot_core.evaluation.pose_rows import pose_rows, trained_on, window_scores
    from trajpilot_core.evaluation.trained_rows import TRAINED, complete, dev_rows, judge_scores
    from trajpilot_core.retrieval.bank import readout_of
    from trajpilot_core.training.dev_scores import floor_scores
    from trajpilot_core.training.fit_predictor import new_predictor

    cfg, device, decoding = work.config.predictor, work.runtime.device, work.config.decoding
    assert decoding is not None
    latents, tasks = latents_and_tasks(work, motions, seed)
    files = tasks["files"]
    fit, dev = ({h: files.labels[rows] for h, rows in part.items()} for part in (files.fit, files.dev))
    floors = complete({name: of["M@1"] for name, of in floor_scores(fit, dev, len(files.bank)).items()})
    models, trained = {}, []
    for name, task in tasks.items():
        key = model_key(FINAL, seed, name)
        models[name] = frozen(new_predictor(task, cfg), work.trained[key].models(ENTRY), key, device)
        curve = rows_of(CurvePoint, work.trained[key].table(CURVES))
        on_dev = [row.value for row in dev_rows(curve, f"{FINAL.name}/{name}", seed) if row.epoch]
        check = f"{TRAINED}{trained_on(sources)[name]}, seed {seed}"
        trained.append(judge_scores(check, on_dev, floors))
    data = (closed(motions.data, work.inputs) if cfg.head == "classes" else motions.data).to(device)
    scores = {}
    for row in pose_rows(sources):
        model = models[row.model]
        readout = readout_of(data, chains_of(data)[0], model, decoding)
        asked = latents[row.asked].to(device)
        scores[row.name, seed] = window_scores(model, readout, data, asked, variant_of(row.model))
    return scores, trained


def latents_and_tasks(
    work: Work[CompletedPoseSources], sets: "TwoMotions", seed: int
) -> "tuple[dict[str, Tensor], dict[str, PredictorTask]]":
    """Return source -> (S, E) embeddings of its head motion by the one E_tau, on the CPU, and the tensors of each
    predictor of a seed (`POSE_MODELS`)."""
    from trajpilot_core.data.chains import chains_of, load_e_tau, trajectory_latents
    from trajpilot_core.training.fit_predictor import predictor_task

    e_tau, device, chain = work.inputs.models("e_tau"), work.runtime.device, chains_of(sets.data)[0]
    encoder = load_e_tau(e_tau, chain, seed, device)
    motions = {"files": sets.data.motions, "raw": sets.raw, "by_rule": sets.by_rule}
    latents = {name: trajectory_latents(encoder, values.to(device)).cpu() for name, values in motions.items()}
    files = predictor_task(sets.data, e_tau, chain, seed, device, work.config.predictor)
    video = replace(files, latents=latents["by_rule"])
    both = union(files, latents["by_rule"])
    return latents, {"files": files, "video": video, "both": both, "both_equal": both, "none": files}


def union(task: "PredictorTask", latents_SE: "Tensor") -> "PredictorTask":
    """Return a task with every training window twice, with its own latents and with others; dev has the others."""
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


def job_of(work: Work[CompletedPoseSources], of: tuple[int, str], task: "PredictorTask") -> "TrainingJob":
    """Write the tensors of a predictor to scratch, and return its training.

    The mixture has twice the windows and so twice the steps per epoch; `both_equal` has half the epochs.
    """
    from trajpilot_core.training.jobs import chain_job, put_task

    seed, model = of
    cfg, folder = work.config.predictor, work.runtime.scratch / "pose-sources" / f"s{seed}" / model
    put_task(folder, folder, task)
    if model == "both_equal":
        cfg = cfg.replace(train=cfg.train.replace(epochs=max(1, cfg.train.epochs // 2)))
    job = chain_job(work, FINAL, seed, model, folder, folder)
    return job._replace(variant=variant_of(model), config=cfg.model_dump_json())


def write_results(
    work: Work[CompletedPoseSources],
    scores: "Mapping[tuple[str, int], Array]",
    sources: tuple[str, str],
    motions: "TwoMotions",
    trained: Sequence[Judgement],
) -> None:
    """Score the answers, and write tables and pages."""
    from trajpilot_core.evaluation.pose_rows import scores_of, tested_takes, trained_on
    from trajpilot_core.report.pose_page import PoseResults, documents

    table = scores_of(scores, sources, tested_takes(motions.data), work.config)
    first, second, *_ = trained_on(sources).values()
    facts = [
        f"head motion of the stage trajectories: {first}; of video_motions: {second}",
        f"windows excluded because a source lacks a segment: {sum(row.n_units for row in motions.data.rejects)}",
        f"median step of {first}, to which the scale rule scales the others: {motions.step_m:.4f} m",
        origin_of_models(work.inputs.models("e_tau").about, work.config.predictor, f"{first} of this run"),
    ]
    takes = work.inputs.table("takes", ["corpus"])["corpus"].to_pylist()
    is_closed = work.config.predictor.head == "classes"
    results = PoseResults(table, trained, facts, is_simulated=SIMULATED in takes, is_closed=is_closed)
    work.sink.table("pose_scores", table_of(PoseScore, table))
    work.sink.table("pose_judgements", table_of(Judgement, trained))
    for name, content in documents(results).items():
        work.sink.document(name, content)


STAGE = TrainedStage(ENTRY, CURVES, trainings, facts, fits, conclude, RESULTS).stage(
    name="pose_sources",
    reads=READS,
    config=PoseSourcesConfig,
    version=VERSION,
    summary="Trains predictors on one source of head motion and tests them with another, and writes the table",
    completed=completed,
    lowers=("predictor.train.batch",),
    outside_shards=("decoding", "bootstrap", "confidence", "seed"),
)
