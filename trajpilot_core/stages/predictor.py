"""Causal predictors, per seed: three checkpoints of the final chain, two of each fold's, and goal-dropout twins of
traj and no_traj where they are enabled (paper, 3.4; docs/decisions/closed-vocabulary.md, anticipation.md)."""

from schemas.results import CurvePoint
from schemas.training import PredictorConfig
from trajpilot_core.data.cross_fitting import (
    E_TAU,
    VARIANTS,
    Chain,
    chains_in,
    folds_of,
    is_twin,
    model_key,
    seeds_of,
    trained_variants,
)
from trajpilot_core.data.imported_fits import with_imported
from trajpilot_core.engine.stage import Work
from trajpilot_core.stages.pretrained import initial_fits, initial_weights
from trajpilot_core.stages.trained import PLANNING, Facts, Fits, TrainedStage, Trainings, chain_facts, named, prepared
from trajpilot_core.store.reading import Inputs

VERSION = 7  # raise when the numbers that this module writes change
TAKES_GIVE = ("segments", "windows", "motions", "features")
"""Entries that trainings read of each take."""


def trainings(inputs: Inputs, cfg: PredictorConfig) -> Trainings:
    """Return the checkpoints and twins of every chain and seed."""
    every, seeds = chains_in(folds_of(inputs)), seeds_of(inputs.parts("e_tau"))
    return named((chain, seed, v) for chain in every for seed in seeds for v in trained_variants(chain, cfg))


def facts(inputs: Inputs, cfg: PredictorConfig, known: Trainings) -> dict[str, Facts]:
    """Return what decides each training: its E_tau, and what the takes that it is fitted and measured on contribute."""
    e_tau, initial = inputs.parts("e_tau"), initial_weights(inputs, cfg, known, folds_of(inputs))
    facts = chain_facts(TAKES_GIVE)(inputs, cfg, known)
    for name, (chain, seed, variant) in known.items():
        of_training: Facts = {"E_tau": e_tau[model_key(chain, seed, E_TAU)], **initial.get(name, {})}
        # settings outside the key of the stage; without effect, or at the default, they are left out of the facts
        if is_twin(variant):
            of_training["goal dropout"] = cfg.twin_goal_dropout
        if is_twin(variant) and cfg.anticipates:
            of_training["selected"] = "without a goal"
        if cfg.masked_goal_target != "dropped" and (is_twin(variant) or cfg.goal_dropout > 0):
            of_training["masked goal target"] = cfg.masked_goal_target
        facts[name] = {**facts[name], **of_training}
    return facts


def fits(work: Work[PredictorConfig], wanted: Trainings) -> Fits:
    """Prepare the predictors of chains and seeds on the windows of their takes; dev chooses the epoch.

    The rows that need no model are epoch 0 of `<chain>/majority` and `<chain>/previous`.
    """
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.training.dev_scores import floor_scores
    from trajpilot_core.training.fit_predictor import FIT, PredictorTask, predictor_shape, predictor_task
    from trajpilot_core.training.jobs import TrainingJob, fitted_takes

    data, e_tau = load_planning_data(work.inputs, "predictor"), work.inputs.models("e_tau")
    floors, shape, imported = dict[str, list[CurvePoint]](), dict[str, str](), initial_fits(work.config)

    def prepare(chain: Chain, seed: int) -> PredictorTask:
        task = predictor_task(data, e_tau, chain, seed, work.runtime.device, work.config)
        shape["shape"] = predictor_shape(task, work.config.head).to_json()
        labels = [{h: task.labels[segments] for h, segments in part.items()} for part in (task.fit, task.dev)]
        floors[model_key(chain, seed, VARIANTS[0])] = [
            CurvePoint(model=f"{chain.name}/{row}", seed=seed, epoch=0, split="dev", quantity=name, value=value)
            for row, values in floor_scores(labels[0], labels[1], len(task.bank)).items()
            for name, value in values.items()
        ]
        return task

    def about(job: TrainingJob) -> dict[str, str]:
        return shape | with_imported(fitted_takes(job, data.segment_take, data.take_ids), imported, data.take_ids)

    return Fits(prepared(work, wanted, "predictor", prepare), FIT, about, floors)


def conclude(work: Work[PredictorConfig]) -> None:
    """Write the settings of the models; count and reject windows of training and dev (evaluation: those of test)."""
    from trajpilot_core.data.planning import count_windows

    kept, lost = count_windows(work.inputs, "predictor")
    work.sink.models("predictors", {"config": work.config.model_dump_json()})
    work.sink.reject(lost)
    work.sink.count(kept + sum(row.n_units for row in lost), kept)


STAGE = TrainedStage("predictors", "predictor_curves", trainings, facts, fits, conclude).stage(
    name="predictor",
    reads=(*PLANNING, "take_contents", "e_tau"),
    config=PredictorConfig,
    version=VERSION,
    summary="Trains the causal predictors, with and without trajectories",
    lowers=("predictor.train.batch",),
    outside_shards=("pretrained", "twin_goal_dropout", "anticipates", "masked_goal_target"),
)
