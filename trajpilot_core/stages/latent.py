"""Planning in the space of the video encoder: predictors of latents and the classifier on them, one of each per seed.

Source: paper, 1 (first table) and 3.1 to 3.2; docs/decisions/latent-planning.md.
"""

from typing import TYPE_CHECKING

from pydantic import JsonValue

from schemas.arrow import table_of
from schemas.config import PipelineConfig
from schemas.latent import LATENT_VARIANTS, LatentConfig
from schemas.results import CurvePoint
from trajpilot_core.data.contributions import Contributions, chains_in, folds_of, horizons_of, part_of
from trajpilot_core.data.cross_fitting import Chain, model_key
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.errors import InputError, TrainingError
from trajpilot_core.stages.predictor import TAKES_GIVE

if TYPE_CHECKING:
    from trajpilot_core.training.jobs import TrainingJob

ENTRY = "latent_models"
PLANS_ALONE = ("seeds", "search", "candidates", "key_width", "correlation_windows", "bootstrap", "confidence", "seed")
"""Settings that no training depends on; what the search keeps of head motion is no input of a model."""
VERSION = 2  # raise when the numbers that this stage writes change


def trainings(chain: Chain, cfg: LatentConfig) -> dict[str, tuple[int, str]]:
    """Return training -> its seed and variant; none where none is asked for."""
    seeds = cfg.seeds if cfg.is_asked else ()
    return {model_key(chain, seed, variant): (seed, variant) for seed in seeds for variant in LATENT_VARIANTS}


def completed(config: PipelineConfig) -> LatentConfig:
    """Return the settings of the stage.

    Raises:
        InputError: what is asked for does not fit the other settings.
    """
    own = config.latent
    if own.is_asked and config.evaluation.vocabulary == "classes":
        raise InputError(
            "latent.is_asked with evaluation.vocabulary=classes: the classifier of latents reads labels, which are not "
            "scored there; set evaluation.vocabulary=labels"
        )
    if own.is_asked and own.target == "temporal" and config.features.tokens != "temporal":
        raise InputError(
            "latent.target=temporal, but features hold one vector a segment; set features.tokens=temporal, or "
            "latent.target=pooled"
        )
    return own


def sources(inputs: Inputs, cfg: LatentConfig, data_root: str) -> list[Source]:
    """Return one source per training: what the takes that it is fitted and measured on contribute."""
    if not cfg.is_asked:
        return []
    fold_of = folds_of(inputs)
    chain = chains_in(fold_of)[0]
    facts: dict[str, JsonValue] = {
        **Contributions.read(inputs, TAKES_GIVE).facts(fold_of, chain),
        "text bank": part_of(inputs, "text_bank"),
        "horizons": horizons_of(inputs),
    }
    return [Source(name, facts=facts) for name in trainings(chain, cfg)]


def run(work: Work[LatentConfig]) -> None:
    """Fit what is asked for, and keep the best epoch on dev.

    Raises:
        TrainingError: there is no window to fit on, or none in dev.
    """
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.training.fit_latent import NEXT, latent_task, train_latent
    from trajpilot_core.training.jobs import chain_job, fitted_takes, hand_over, put_task, run_jobs

    if not work.pending:
        return
    data = load_planning_data(work.inputs, "latent")
    chain, scratch = chains_of(data)[0], work.runtime.scratch / "latent"
    task = latent_task(data, chain)
    if set(task.fit) == {NEXT}:
        raise TrainingError(
            "no horizon has windows to fit on and in dev: look at the rejects of ingest, trajectories and features"
        )
    shape = task.shape().to_json()
    put_task(scratch, scratch, task)
    asked, known = {source.shard for source in work.pending}, trainings(chain, work.config)
    jobs = [
        chain_job(work, chain, seed, variant, scratch, scratch)
        for name, (seed, variant) in known.items()
        if name in asked
    ]

    def ended(job: "TrainingJob") -> None:
        with work.sink.training(job.key) as share:
            share.table("latent_curves", table_of(CurvePoint, hand_over(job, ENTRY, share)))
            share.models(ENTRY, {"shape": shape, **fitted_takes(job, data.segment_take, data.take_ids)})

    run_jobs(jobs, train_latent, work.runtime, ended)


def conclude(work: Work[LatentConfig]) -> None:
    """Write the settings of the models, and an empty table of curves where none was asked for; rows are windows."""
    if not work.config.is_asked:
        work.sink.table("latent_curves", table_of(CurvePoint, []))
    work.sink.models(ENTRY, {"config": work.config.model_dump_json()})
    n_windows = work.inputs.table("windows", ["horizon"]).num_rows
    work.sink.count(n_windows, n_windows)


STAGE = Stage(
    name="latent",
    reads=("takes", "take_contents", "segments", "windows", "motions", "features", "text_bank", "folds"),
    writes=(ENTRY, "latent_curves"),
    config=LatentConfig,
    run=run,
    version=VERSION,
    summary="Trains predictors of latents of the video encoder, with and without head motion, and a classifier on them",
    shard_by="training",
    completed=completed,
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    lowers=("latent.train.batch",),
    conclude=conclude,
    outside_shards=PLANS_ALONE,
    may_be_empty=True,
)
