"""Outcome: made or missed, predicted from what precedes a shot; trains every row, scores it, and writes its pages."""

from dataclasses import replace
from typing import TYPE_CHECKING

from schemas.annotation import SIMULATED
from schemas.arrow import table_of
from schemas.config import PipelineConfig
from schemas.outcome import OutcomeConfig, ShotAnswer, ShotContrast, ShotScore
from schemas.probe import ProbeConfig
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.cross_fitting import (
    FINAL,
    TWIN,
    Chain,
    model_key,
    seeds_of,
    variants_of,
)
from trajpilot_core.engine.needs import Need, Needs, NeedsMachine
from trajpilot_core.engine.progress import CountedSteps
from trajpilot_core.engine.sizes import CorpusSizes
from trajpilot_core.engine.stage import Output, Stage, Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.stages.needs_of_probe import probe_needs
from trajpilot_core.stages.needs_of_trainings import predictor_needs
from trajpilot_core.stages.pretrained import origin_of_models

if TYPE_CHECKING:
    from torch.nn import Module

    from trajpilot_core.data.planning import PlanningData
    from trajpilot_core.data.shots import Shots
    from trajpilot_core.evaluation.shot_rows import OutcomeModels
    from trajpilot_core.models.outcome import ShotProbe
    from trajpilot_core.retrieval.shots import OutcomeChain
    from trajpilot_core.training.fit_outcome import OutcomeTask
    from trajpilot_core.training.jobs import TrainingJob

ENTRY = "outcome_models"
VERSION = 2  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> OutcomeConfig:
    """Return the settings of the stage with those of predictor, scorer and evaluation that it works with."""
    scorer = config.scorer.replace(plus=None, ablations=())
    measured = {name: getattr(config.evaluation, name) for name in ("bootstrap", "confidence", "seed")}
    return config.outcome.replace(predictor=config.predictor, scorer=scorer, **measured)


def needs(sizes: CorpusSizes, cfg: OutcomeConfig, machine: NeedsMachine) -> Needs:
    """State what fitting predictors needs, as those of planning, of windows of three positions, and probes."""
    found = predictor_needs(sizes, sizes.config.predictor.replace(train=cfg.train), machine)
    if sizes.tokens == 1:
        return found
    probes = probe_needs(sizes, probe_settings(sizes, cfg), machine)
    host, device, scratch = (
        max((getattr(one, kind) for one in (found, probes)), key=lambda need: need.bytes)
        for kind in ("host", "device", "scratch")
    )
    return Needs(host, device, Need(found.disk.bytes + probes.disk.bytes), scratch)


def probe_settings(sizes: CorpusSizes, cfg: OutcomeConfig) -> ProbeConfig:
    """Return the probe of shots as one of actions: one training a seed."""
    return ProbeConfig(
        tokens="temporal",
        seeds=sizes.config.alignment.seeds,
        heads=cfg.probe_heads,
        blocks=cfg.probe_blocks,
        rates=(cfg.train.lr,),
        decays=(cfg.train.weight_decay,),
        batch=cfg.train.batch,
    )


def run(work: Work[OutcomeConfig]) -> None:
    """Fit the predictors of all chains and seeds, then the scorers; answer the test shots and score the answers."""
    from trajpilot_core.data.chains import chains_of
    from trajpilot_core.data.shots import load_shots
    from trajpilot_core.evaluation.shot_checks import fitted_judgements, trained_judgements
    from trajpilot_core.training.fit_shot_probe import train_shot_model
    from trajpilot_core.training.jobs import run_jobs
    from trajpilot_core.training.loop import one_thread

    shots, data, rejects = load_shots(work.inputs)
    chains, seeds = chains_of(data), seeds_of(work.inputs.models("e_tau").keys)
    refuse_other_run(work, chains, seeds)
    steps = CountedSteps(work.runtime.progress, after=len(seeds) + 2)
    jobs = [job for chain in chains for seed in seeds for job in chain_jobs(work, shots, data, chain, seed)]
    run_jobs(jobs, train_shot_model, replace(work.runtime, progress=steps))
    curves, judged = read_curves(jobs), fitted_judgements(jobs, shots)
    answers: list[ShotAnswer] = []
    said: dict[str, str] = {"config": work.config.model_dump_json()}
    with one_thread(work.runtime.device):
        for seed in seeds:
            steps.begin(f"scorer of seed {seed}, and the answers of all rows")
            models, curve = models_of_seed(work, shots, data, chains, seed)
            answers += answers_of(models, shots, seed)
            curves += curve
            judged.append(sight_judgement(models, shots, seed))
            keep_models(work, models, seed, said)
    work.sink.models(ENTRY, said)
    work.sink.reject(rejects)
    work.sink.count(len(shots) + sum(row.n_units for row in rejects), len(shots))
    steps.begin("metrics, intervals and pages")
    write_results(work, answers, curves, judged + trained_judgements(curves, shots), shots)


def refuse_other_run(work: Work[OutcomeConfig], chains: tuple[Chain, ...], seeds: list[int]) -> None:
    """Refuse weights of another run that have seen what is held out here, before anything is trained.

    Raises:
        InputError: names the takes and captures (docs/decisions/pretrained.md).
    """
    from trajpilot_core.data.contributions import folds_of
    from trajpilot_core.stages.pretrained import initial_weights

    wanted = {
        weights_key(chain, seed, variant): (chain, seed, variant)
        for chain in chains
        for seed in seeds
        for variant in variants_of(chain)
    }
    initial_weights(work.inputs, work.config.net, wanted, folds_of(work.inputs))


def weights_key(chain: Chain, seed: int, variant: str) -> str:
    """Return the key of the weights with which a training begins: those of the goal-dropout twin, where there is one.

    The Goal of an event is masked, which only twins have learned.
    """
    return f"{model_key(chain, seed, variant)}{TWIN}"


def chain_jobs(
    work: Work[OutcomeConfig], shots: "Shots", data: "PlanningData", chain: Chain, seed: int
) -> "list[TrainingJob]":
    """Write the tensors of a chain and seed to scratch, and return its trainings.

    Raises:
        TrainingError: no shot to fit on.
    """
    from trajpilot_core.training.fit_outcome import task_tensors
    from trajpilot_core.training.jobs import OWN, SHARED, TrainingJob, put_tensors

    task, scratch = task_of(work, shots, data, chain, seed), work.runtime.scratch / "outcome"
    if not len(task.fit):
        raise TrainingError(f"chain {chain.name}: no shot to fit on; look at the rejects of ingest and trajectories")
    own = scratch / f"{chain.name}-s{seed}"
    shared, tensors = task_tensors(task)
    put_tensors(scratch, SHARED, shared)
    put_tensors(own, OWN, tensors)
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
        for variant in trained_variants(chain, shots)
    ]


def trained_variants(chain: Chain, shots: "Shots") -> tuple[str, ...]:
    """Return what is trained of a chain: its predictors, and of the final one the probe, where there are tokens."""
    from trajpilot_core.training.fit_shot_probe import PROBE, has_tokens

    has_probe = chain.name == FINAL.name and has_tokens(shots.context)
    return (*variants_of(chain), *((PROBE,) if has_probe else ()))


def task_of(work: Work[OutcomeConfig], shots: "Shots", data: "PlanningData", chain: Chain, seed: int) -> "OutcomeTask":
    """Return the tensors of one chain and seed: what is seen, the latents of its E_tau, the shots of its takes."""
    import torch

    from trajpilot_core.data.chains import fit_takes, load_e_tau, trajectory_latents
    from trajpilot_core.data.planning import rows_of_takes
    from trajpilot_core.data.shots import DEV
    from trajpilot_core.training.fit_outcome import OutcomeTask

    e_tau = load_e_tau(work.inputs.models("e_tau"), chain, seed, work.runtime.device)
    motions = shots.motions.to(work.runtime.device).flatten(0, 1)
    latents = trajectory_latents(e_tau, motions).view(len(shots), 2, -1).cpu()
    fit = rows_of_takes(shots.take, fit_takes(data, chain))
    return OutcomeTask(shots.context, latents, fit, torch.nonzero(shots.split == DEV)[:, 0], shots.made)


def chain_models(
    work: Work[OutcomeConfig], shots: "Shots", data: "PlanningData", chain: Chain, seed: int
) -> "OutcomeChain":
    """Build the frozen models of a chain and seed from the checkpoints of its trainings."""
    from trajpilot_core.data.chains import load_e_tau
    from trajpilot_core.retrieval.shots import OutcomeChain
    from trajpilot_core.training.checkpoint import read_progress
    from trajpilot_core.training.fit_outcome import new_outcome_predictor

    task, device = task_of(work, shots, data, chain, seed), work.runtime.device
    found = {}
    for variant in variants_of(chain):
        model = new_outcome_predictor(task, work.config)
        folder = work.runtime.scratch / "outcome" / f"{chain.name}-s{seed}" / variant
        model.load_state_dict(read_progress(folder).best)
        found[variant] = model.to(device).eval().requires_grad_(False)
    e_tau = load_e_tau(work.inputs.models("e_tau"), chain, seed, device)
    endpoint = found.get("endpoint_traj")
    return OutcomeChain(e_tau, found["traj"], found["no_traj"], endpoint, task.fit.to(device))


def probe_of(work: Work[OutcomeConfig], shots: "Shots", data: "PlanningData", seed: int) -> "ShotProbe | None":
    """Build the frozen probe of a seed from its checkpoint; None without tokens."""
    from trajpilot_core.training.checkpoint import read_progress
    from trajpilot_core.training.fit_shot_probe import PROBE, new_shot_probe

    if PROBE not in trained_variants(FINAL, shots):
        return None
    model = new_shot_probe(task_of(work, shots, data, FINAL, seed), work.config)
    model.load_state_dict(read_progress(work.runtime.scratch / "outcome" / f"{FINAL.name}-s{seed}" / PROBE).best)
    return model.to(work.runtime.device).eval().requires_grad_(False)


def models_of_seed(
    work: Work[OutcomeConfig], shots: "Shots", data: "PlanningData", chains: tuple[Chain, ...], seed: int
) -> "tuple[OutcomeModels, list[CurvePoint]]":
    """Fit the scorer of a seed on what each chain has not seen, and return what its rows answer with, and its curve."""
    import torch

    from trajpilot_core.data.chains import query_takes
    from trajpilot_core.data.planning import rows_of_takes
    from trajpilot_core.data.shots import DEV
    from trajpilot_core.evaluation.shot_rows import OutcomeModels
    from trajpilot_core.models.scorer import GateThenRankScorer
    from trajpilot_core.training.outcome_scorer import fit_shot_scorer

    cfg, device = work.config, work.runtime.device
    built = {chain: chain_models(work, shots, data, chain, seed) for chain in chains}
    here = shots.to(device)
    asked = [(model, rows_of_takes(shots.take, query_takes(data, chain)).to(device)) for chain, model in built.items()]
    dev = torch.nonzero(here.split == DEV)[:, 0]
    final = next(model for chain, model in built.items() if chain.name == FINAL.name)
    scratch = work.runtime.scratch / "outcome" / f"scorer-s{seed}"
    fitted = fit_shot_scorer(
        final, asked, here, dev, cfg, seed, scratch, device, lambda *_: None, work.runtime.checkpoint_s
    )
    scorer = GateThenRankScorer(cfg.ranking, fitted.shape).to(device).eval()
    scorer.load_state_dict(fitted.state)
    renamed = [row.replace(quantity=row.quantity.replace("M@1", "accuracy")) for row in fitted.curve]
    probe = probe_of(work, shots, data, seed)
    return OutcomeModels(final, scorer.requires_grad_(False), fitted.decision, cfg, probe), renamed


def answers_of(models: "OutcomeModels", shots: "Shots", seed: int) -> list[ShotAnswer]:
    """Ask every row of every test shot."""
    import torch

    from trajpilot_core.data.shots import TEST
    from trajpilot_core.evaluation.shot_rows import METHODS

    here = shots.to(str(models.chain.bank.device))
    rows = torch.nonzero(here.split == TEST)[:, 0]
    found = []
    for one in METHODS:
        said = one.answer(models, here, rows)
        if said is None:
            continue
        for at, row in enumerate(rows.tolist()):
            used = -1 if said.candidate is None else int(said.candidate[at])
            found.append(
                ShotAnswer(
                    shot_id=shots.ids[row],
                    take_id=shots.take_ids[int(shots.take[row])],
                    row=one.id,
                    seed=seed,
                    p_made=float(said.p_made[at]),
                    is_made=bool(shots.made[row]),
                    gate=None if said.gate is None else float(said.gate[at]),
                    opened=None if said.opened is None else bool(said.opened[at]),
                    candidate=shots.ids[used] if used >= 0 else None,
                )
            )
    return found


def sight_judgement(models: "OutcomeModels", shots: "Shots", seed: int) -> Judgement:
    """Ask every row twice, the second time without what it must not see.

    Raises:
        LeakError: a row answers otherwise.
    """
    import torch

    from trajpilot_core.data.shots import TEST
    from trajpilot_core.evaluation.shot_rows import METHODS, check_sight

    here = shots.to(str(models.chain.bank.device))
    check_sight(METHODS, models, here, torch.nonzero(here.split == TEST)[:, 0])
    detail = "pixels, durations, texts, outcomes and evidence of the shots exchanged; no answer changed in a bit"
    return Judgement(check=f"sight: every row, seed {seed}", verdict="holds", detail=detail)


def read_curves(jobs: "list[TrainingJob]") -> list[CurvePoint]:
    """Return the curves of all trainings."""
    from trajpilot_core.training.jobs import job_result

    return [row for job in jobs for row in job_result(job)[1]]


def keep_models(work: Work[OutcomeConfig], models: "OutcomeModels", seed: int, said: dict[str, str]) -> None:
    """Write the models that the rows of a seed answer with, and what dev chose."""
    chain = models.chain
    kept: dict[str, Module | None] = {"traj": chain.traj, "no_traj": chain.no_traj}
    kept |= {"endpoint_traj": chain.endpoint_traj, "scorer": models.scorer, "probe": models.probe}
    for variant, model in kept.items():
        if model is not None:
            tensors = {name: value.cpu().numpy() for name, value in model.state_dict().items()}
            work.sink.model(ENTRY, model_key(FINAL, seed, variant), tensors)
    said[model_key(FINAL, seed, "scorer")] = models.decision.model_dump_json()


def write_results(
    work: Work[OutcomeConfig],
    answers: list[ShotAnswer],
    curves: list[CurvePoint],
    judged: list[Judgement],
    shots: "Shots",
) -> None:
    """Score the answers, and write tables and pages."""
    from trajpilot_core.evaluation.shot_scores import contrasts_of, scores_of
    from trajpilot_core.report.outcome_page import OutcomeResults, documents

    takes = work.inputs.table("takes", ["take_id", "corpus", "capture", "split"]).to_pylist()
    scores, contrasts = scores_of(answers, work.config), contrasts_of(answers, work.config)
    for name, table in (
        ("shot_answers", table_of(ShotAnswer, answers)),
        ("shot_scores", table_of(ShotScore, scores)),
        ("shot_contrasts", table_of(ShotContrast, contrasts)),
        ("outcome_judgements", table_of(Judgement, judged)),
        ("outcome_curves", table_of(CurvePoint, curves)),
    ):
        work.sink.table(name, table)
    kinds = {split: [row["capture"] for row in takes if row["split"] == split] for split in ("train", "dev", "test")}
    shared = len({*kinds["test"]} & {*kinds["train"], *kinds["dev"]})
    counts = ", ".join(f"{int((shots.split == at).sum())} {name}" for at, name in enumerate(("train", "dev", "test")))
    facts = [
        f"shots: {counts}; takes: {', '.join(f'{len(held)} {name}' for name, held in kinds.items())}",
        f"{shared} captures hold test takes and other takes, whose wearer and room a model may have seen",
        origin_of_models(work.inputs.models("e_tau").about, work.config.net, "the captions of this corpus"),
    ]
    is_simulated = SIMULATED in {row["corpus"] for row in takes}
    results = OutcomeResults(scores, contrasts, judged, curves, facts, is_simulated, work.config)
    for name, content in documents(results).items():
        work.sink.document(name, content)


STAGE = Stage(
    name="outcome",
    reads=(
        "takes",
        "segments",
        "details",
        "windows",
        "motions",
        "features",
        "text_bank",
        "folds",
        "e_tau",
    ),
    writes=(
        ENTRY,
        "outcome_curves",
        "shot_answers",
        "shot_scores",
        "shot_contrasts",
        "outcome_judgements",
        "outcome.html",
        "outcome.json",
        "outcome.tex",
    ),
    config=OutcomeConfig,
    run=run,
    version=VERSION,
    summary="Predicts whether shots go in: trains the predictors and the scorer, scores every row, writes its pages",
    completed=completed,
    uses_gpu=True,
    needs=needs,
    output=Output("test shots", "shot_answers", ("shot_id",), lambda table: len(set(table["shot_id"].to_pylist()))),
)
