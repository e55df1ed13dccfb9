"""Planning in the space of the video encoder: predictors of latents and the classifier on them, one of each per seed.

Source: paper, 1 (first table) and 3.1 to 3.2; docs/decisions/latent-planning.md.
"""

from typing import TYPE_CHECKING

from schemas.config import PipelineConfig
from schemas.latent import LATENT_VARIANTS, LatentConfig
from trajpilot_core.data.cross_fitting import Contributions, chains_in, folds_of, horizons_of, model_key, part_of
from trajpilot_core.engine.stage import Inputs, Work
from trajpilot_core.errors import InputError, TrainingError
from trajpilot_core.stages.predictor import TAKES_GIVE
from trajpilot_core.stages.trained import Facts, Fits, TrainedStage, Trainings, trained_stage

if TYPE_CHECKING:
    from trajpilot_core.training.jobs import TrainingJob

ENTRY = "latent_models"
PLANS_ALONE = ("seeds", "search", "candidates", "key_width", "correlation_windows", "bootstrap", "confidence", "seed")
"""Settings that no training depends on."""
VERSION = 2  # raise when the numbers that this stage writes change


def trainings(inputs: Inputs, cfg: LatentConfig) -> Trainings:
    """Return every variant and seed."""
    chain = chains_in(folds_of(inputs))[0]
    return {model_key(chain, seed, name): (chain, seed, name) for seed in cfg.seeds for name in LATENT_VARIANTS}


def completed(config: PipelineConfig) -> LatentConfig:
    """Return the settings of the stage.

    Raises InputError: they contradict the other settings.
    """
    latent = config.latent
    if config.evaluation.vocabulary == "classes":
        raise InputError(
            "latent.is_asked with evaluation.vocabulary=classes: the classifier of latents predicts labels; set "
            "evaluation.vocabulary=labels"
        )
    if latent.target == "temporal" and config.features.tokens != "temporal":
        raise InputError(
            "latent.target=temporal, but features have one vector per segment; set features.tokens=temporal or "
            "latent.target=pooled"
        )
    return latent


def facts(inputs: Inputs, cfg: LatentConfig, known: Trainings) -> dict[str, Facts]:
    """Return what decides each training: what the takes that it is fitted and measured on contribute."""
    fold_of = folds_of(inputs)
    shared: Facts = {
        **Contributions.read(inputs, TAKES_GIVE).facts(fold_of, chains_in(fold_of)[0]),
        "text bank": part_of(inputs, "text_bank"),
        "horizons": horizons_of(inputs),
    }
    return dict.fromkeys(known, shared)


def fits(work: Work[LatentConfig], wanted: Trainings) -> Fits:
    """Prepare the predictors of latents and the classifier; dev chooses the epoch.

    Raises TrainingError: there is no window to fit on, or none in dev.
    """
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.training.fit_latent import NEXT, latent_task, train_latent
    from trajpilot_core.training.jobs import chain_job, fitted_takes, put_task

    data, scratch = load_planning_data(work.inputs, "latent"), work.runtime.scratch / "latent"
    task = latent_task(data, chains_of(data)[0])
    if set(task.fit) == {NEXT}:
        raise TrainingError(
            "no horizon has windows both to fit on and in dev; look at the rejects of ingest, trajectories and features"
        )
    shape = task.shape().to_json()
    put_task(scratch, scratch, task)
    jobs = {name: chain_job(work, *of, scratch, scratch) for name, of in wanted.items()}

    def about(job: "TrainingJob") -> dict[str, str]:
        return {"shape": shape, **fitted_takes(job, data.segment_take, data.take_ids)}

    return Fits(jobs, train_latent, about)


STAGE = trained_stage(
    TrainedStage(ENTRY, "latent_curves", trainings, facts, fits),
    name="latent",
    reads=("takes", "take_contents", "segments", "windows", "motions", "features", "text_bank", "folds"),
    config=LatentConfig,
    version=VERSION,
    summary="Trains predictors of latents of the video encoder, with and without head motion, and a classifier on them",
    completed=completed,
    lowers=("latent.train.batch",),
    outside_shards=PLANS_ALONE,
)
