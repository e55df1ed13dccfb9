"""Scorer: retrieve candidates, roll them out, and learn when to trust one and which."""

from dataclasses import replace

from schemas.arrow import table_of
from schemas.base import fingerprint
from schemas.results import CurvePoint, ScorerChoice
from schemas.training import ScorerConfig
from trajpilot_core.data.cross_fitting import Contributions, folds_of, horizons_of, is_twin, part_of, seeds_of
from trajpilot_core.engine.progress import portion
from trajpilot_core.engine.stage import Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages.predictor import TAKES_GIVE
from trajpilot_core.stages.trained import PLANNING, Facts
from trajpilot_core.store.reading import Inputs

VERSION = 9  # raise when the numbers that this stage writes change


def training_of(seed: int, *, sees_goal: bool = True) -> str:
    """Return the name of the training of one seed; one without a goal has its own queries, ablations share theirs."""
    return f"final/s{seed}" if sees_goal else f"final/s{seed}/no_goal"


def sources(inputs: Inputs, cfg: ScorerConfig, data_root: str) -> list[Source]:
    """Return one source per seed: the models of its chains, and what all training and dev takes contribute.

    With a scorer without a goal there is one more per seed, of the goal-dropout twins.
    """
    takes, fold_of = Contributions.read(inputs, TAKES_GIVE, ("capture",)), folds_of(inputs)
    every: Facts = {
        "training takes": takes.digest(takes.train),
        "dev takes": takes.digest(takes.dev),
        "folds": fingerprint(dict(fold_of)),
        "text bank": part_of(inputs, "text_bank"),
        "horizons": horizons_of(inputs),
        "scenario labels": part_of(inputs, "scenario_labels"),
    }
    e_tau, predictors = inputs.parts("e_tau"), inputs.parts("predictors")
    listed = []
    for sees_goal in (True, False) if cfg.anticipates else (True,):
        for seed in seeds_of(e_tau):
            encoders = {key: digest for key, digest in e_tau.items() if f"/s{seed}/" in key}
            behind = {k: v for k, v in predictors.items() if f"/s{seed}/" in k and is_twin(k) != sees_goal}
            facts: Facts = {**every, "E_tau": {**encoders}, "predictors": {**behind}}
            listed.append(Source(training_of(seed, sees_goal=sees_goal), facts=facts))
    return listed


def run(work: Work[ScorerConfig]) -> None:
    """Fit the scorers of seeds on the held-out takes of every chain.

    Raises InputError: a scorer without a goal is enabled, but no predictor anticipates.
    """
    from trajpilot_core.data.chains import open_model_files, predictor_config
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.data.transitions import with_closed_tables
    from trajpilot_core.training.jobs import UNIT
    from trajpilot_core.training.loop import one_thread
    from trajpilot_core.training.scorer_fit import epochs_of, fit_scorers, write_scorers

    config, runtime = work.config, work.runtime
    files = open_model_files(work.inputs)
    if config.anticipates and not predictor_config(files.predictors).anticipates:
        raise InputError(
            "scorer.anticipates=true, but no predictor was trained to answer without a goal; set "
            "predictor.anticipates=true and predictor.twin_goal_dropout, or scorer.anticipates=false"
        )
    data = with_closed_tables(load_planning_data(work.inputs, "scorer"), work.inputs, files.predictors)
    data = data.to(runtime.device)
    pending = {source.shard for source in work.pending}
    every = [(training_of(seed), seed, epochs_of(config), True) for seed in files.seeds]
    every += [(training_of(seed, sees_goal=False), seed, config.train.epochs, False) for seed in files.seeds]
    jobs = [job for job in every if job[0] in pending]
    total, done = sum(epochs for *_, epochs, _ in jobs), 0

    def shown(done: int, total: int, what: str) -> None:
        runtime.progress(done, total, f"{UNIT}; {what}")

    with one_thread(runtime.device):
        for name, seed, epochs, sees_goal in jobs:
            own = replace(runtime, scratch=runtime.training_scratch[name], progress=portion(shown, done, total))
            fitted, done = fit_scorers(data, files, config, seed, own, sees_goal=sees_goal), done + epochs
            with work.sink.training(name) as share:
                write_scorers(share, seed, fitted)
                curves = [row for scorer in fitted.values() for row in scorer.curve]
                choices = [row for scorer in fitted.values() for row in scorer.choices]
                share.table("scorer_curves", table_of(CurvePoint, curves))
                share.table("scorer_choices", table_of(ScorerChoice, choices))


def conclude(work: Work[ScorerConfig]) -> None:
    """Write the settings of the scorers.

    Rows are their training and dev windows; predictor has rejected the others, so none is lost here.
    """
    from trajpilot_core.data.planning import count_windows

    work.sink.models("scorers", {"config": work.config.model_dump_json()})
    used = count_windows(work.inputs, "scorer")[0]
    work.sink.count(used, used)


STAGE = Stage(
    name="scorer",
    reads=(*PLANNING, "take_contents", "scenario_labels", "e_tau", "predictors"),
    writes=("scorers", "scorer_curves", "scorer_choices"),
    config=ScorerConfig,
    run=run,
    version=VERSION,
    summary="Retrieves candidate trajectories and learns when to trust one, and which (gate, then rank)",
    shard_by="training",
    sources=sources,
    uses_gpu=True,
    lowers=("scorer.candidates", "scorer.max_queries", "scorer.train.batch"),
    conclude=conclude,
    outside_shards=("anticipates",),
)
