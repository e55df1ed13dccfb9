"""Planning in the space of the video encoder: predictors of latents and the classifier on them, one of each per seed,
and their answers: rows that search head motion, conditions, and tests of their energy.

Source: paper, 1 (first table), 3.1 to 3.2 and its appendix on diagnostics; docs/decisions/latent-planning.md.
"""

from itertools import product
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.arrow import arrow_schema, rows_of, table_of
from schemas.config import PipelineConfig
from schemas.latent import LATENT_VARIANTS, ConditionScore, EnergyCorrelation, LatentConfig
from schemas.results import CurvePoint, Judgement, Prediction
from trajpilot_core.data.cross_fitting import chains_in, folds_of, seeds_of
from trajpilot_core.engine.stage import Stage, Work
from trajpilot_core.errors import InputError, TrainingError
from trajpilot_core.stages.predictor import TAKES_GIVE
from trajpilot_core.stages.trained import PLANNING, Fits, TrainedStage, Trainings, chain_facts, named, prepared
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.data.planning import PlanningData
    from trajpilot_core.evaluation.latent_plans import LatentModels
    from trajpilot_core.retrieval.bank import Bank, EndKeys

ENTRY = "latent_models"
PLANS_ALONE = ("seeds", "search", "candidates", "key_width", "correlation_windows", "bootstrap", "confidence", "seed")
"""Settings that no training depends on."""
VERSION, PLANS_VERSION = 2, 5  # raise when the numbers that these stages write change


def trainings(inputs: Inputs, cfg: LatentConfig) -> Trainings:
    """Return every variant and seed."""
    return named(product(chains_in(folds_of(inputs))[:1], cfg.seeds, LATENT_VARIANTS))


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


def fits(work: Work[LatentConfig], wanted: Trainings) -> Fits:
    """Prepare the predictors of latents and the classifier; dev chooses the epoch.

    Raises TrainingError: there is no window to fit on, or none in dev.
    """
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.training.fit_latent import FIT, NEXT, latent_task
    from trajpilot_core.training.jobs import fitted_takes

    data = load_planning_data(work.inputs, "latent")
    task = latent_task(data, chains_of(data)[0])
    if set(task.fit) == {NEXT}:
        raise TrainingError(
            "no horizon has windows both to fit on and in dev; look at the rejects of ingest, trajectories and features"
        )
    jobs, shape = prepared(work, wanted, "latent", lambda *_: task), {"shape": task.shape().to_json()}
    return Fits(jobs, FIT, lambda job: shape | fitted_takes(job, data.segment_take, data.take_ids))


STAGE = TrainedStage(ENTRY, "latent_curves", trainings, chain_facts(TAKES_GIVE), fits).stage(
    name="latent",
    reads=(*PLANNING, "take_contents"),
    config=LatentConfig,
    version=VERSION,
    summary="Trains predictors of latents of the video encoder, with and without head motion, and a classifier on them",
    completed=completed,
    lowers=("latent.train.batch",),
    outside_shards=PLANS_ALONE,
)


def run_plans(work: Work[LatentConfig]) -> None:
    """Answer the test windows with every row, score conditions and energies, and judge the trainings."""
    from trajpilot_core.data.planning import load_planning_data
    from trajpilot_core.evaluation.latent_scores import judge_energies, judge_latents
    from trajpilot_core.training.loop import one_thread

    device = work.runtime.device
    data = load_planning_data(work.inputs, "latent_plans").to(device)
    with one_thread(device):
        scored = conditions(work, data)
        predicted, correlated, spread = plans(work, data)
    curves = rows_of(CurvePoint, work.inputs.table("latent_curves"))
    judged = judge_latents(curves) + judge_energies(spread)
    schema = arrow_schema(Prediction)
    work.sink.table("latent_predictions", pa.concat_tables([schema.empty_table(), *predicted]))
    work.sink.table("latent_conditions", table_of(ConditionScore, scored))
    work.sink.table("energy_correlations", table_of(EnergyCorrelation, correlated))
    work.sink.table("latent_checks", table_of(Judgement, judged))
    n_windows = work.inputs.table("windows", ["horizon"]).num_rows
    work.sink.count(n_windows, n_windows)


def conditions(work: Work[LatentConfig], data: "PlanningData") -> list[ConditionScore]:
    """Score the four trainings and two shuffled inputs on the test takes, one step ahead."""
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.planning import SPLITS
    from trajpilot_core.evaluation.latent_plans import load_latents
    from trajpilot_core.evaluation.latent_scores import condition_distances, condition_scores, next_pairs
    from trajpilot_core.training.fit_latent import pairs_of

    entry, chain = work.inputs.models("latent_models"), chains_of(data)[0]
    by_step = pairs_of({h: w.segments[w.split == SPLITS.index("test")] for h, w in data.windows.items()})
    if len(by_step) < 2:
        return []
    pairs, device = next_pairs(data, by_step, work.config.seed), work.runtime.device
    models = (load_latents(entry, data, chain, seed, device) for seed in seeds_of(entry.keys))
    return condition_scores([condition_distances(of_seed, data, pairs) for of_seed in models], pairs, work.config)


def plans(
    work: Work[LatentConfig], data: "PlanningData"
) -> tuple[list[pa.Table], list[EnergyCorrelation], list[tuple[int, dict[str, float]]]]:
    """Answer the test windows of every seed and horizon; energies are compared on training windows."""
    from trajpilot_core.data.chains import chains_of, fit_takes
    from trajpilot_core.data.planning import rows_of_takes
    from trajpilot_core.evaluation.latent_plans import load_latents
    from trajpilot_core.evaluation.latent_scores import energy_rows
    from trajpilot_core.retrieval.bank import fit_end_keys, neighbour_bank

    entry, chain = work.inputs.models("latent_models"), chains_of(data)[0]
    fitted = rows_of_takes(data.segment_take, fit_takes(data, chain))
    keys = fit_end_keys(data.features, fitted, work.config.key_width)
    predicted: list[pa.Table] = []
    correlated: list[EnergyCorrelation] = []
    spread: list[tuple[int, dict[str, float]]] = []
    seeds, done = seeds_of(entry.keys), 0
    for seed in seeds:
        models = load_latents(entry, data, chain, seed, work.runtime.device)
        for horizon in data.windows:
            work.runtime.progress(done, len(seeds) * len(data.windows), f"horizons; seed {seed}, H={horizon}")
            bank = neighbour_bank(data, chain, keys, horizon)
            predicted += answered(models, data, bank, keys, horizon)
            energies = energy_rows(models, data, bank, horizon)
            correlated, spread, done = [*correlated, *energies[0]], [*spread, (horizon, energies[1])], done + 1
    return predicted, correlated, spread


def answered(
    models: "LatentModels", data: "PlanningData", bank: "Bank", keys: "EndKeys", horizon: int
) -> list[pa.Table]:
    """Return the predictions of every row on the test windows of a horizon, after a sight check of each row."""
    from trajpilot_core.data.planning import SPLITS
    from trajpilot_core.evaluation.latent_plans import answer_windows, check_latent_sight, random_entries
    from trajpilot_core.evaluation.predictions import prediction_table
    from trajpilot_core.methods.sight import probe_rows

    windows = data.windows[horizon]
    rows = (windows.split == SPLITS.index("test")).nonzero()[:, 0]
    if not len(rows):
        return []
    if len(bank.segments):
        few = windows.segments[probe_rows(windows.take, rows)]
        check_latent_sight(models, data, few, bank, keys, bank.segments[:, 0])
    chance = random_entries(bank, windows.take[rows], 1_000_003 * models.cfg.seed + 1_009 * models.seed + horizon)
    given = answer_windows(models, data, windows.segments[rows], bank, keys, chance)
    return [prediction_table(id_, answers, data, windows, rows, models.seed) for id_, answers in given.items()]


PLANS = Stage(
    name="latent_plans",
    reads=(*PLANNING, "latent_models", "latent_curves"),
    writes=("latent_predictions", "latent_conditions", "energy_correlations", "latent_checks"),
    config=LatentConfig,
    run=run_plans,
    version=PLANS_VERSION,
    summary="Searches head motion in the space of the video encoder, and measures what its energy and conditions tell",
    completed=completed,
    uses_gpu=True,
    lowers=("latent.search.samples",),
)
