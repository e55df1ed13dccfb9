"""The parts of the stage `outcome`: tensors and models of a chain and seed, the scorer, answers of the rows.

Source: docs/decisions/outcome.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from schemas.outcome import OutcomeConfig, ShotAnswer
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.chains import chains_of, fit_takes, load_e_tau, query_takes, trajectory_latents
from trajpilot_core.data.cross_fitting import FINAL, Chain, model_key, variants_of
from trajpilot_core.data.planning import PlanningData, rows_of_takes
from trajpilot_core.data.shots import DEV, TEST, Shots
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.evaluation.shot_rows import METHODS, OutcomeModels, check_sight
from trajpilot_core.models.outcome import ShotProbe
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.events import OutcomeChain
from trajpilot_core.stages.outcome import ENTRY, PROBE
from trajpilot_core.training.fit_outcome import OutcomeTask, new_outcome_predictor, new_shot_probe
from trajpilot_core.training.jobs import TrainingJob, chain_job, put_task
from trajpilot_core.training.outcome_scorer import fit_shot_scorer


@dataclass(frozen=True)
class OutcomeRun:
    """Inputs of every part of the stage."""

    work: Work[OutcomeConfig]
    shots: Shots
    """On the CPU."""
    data: PlanningData

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The chains that the folds call for."""
        return chains_of(self.data)

    @cached_property
    def here(self) -> Shots:
        """The shots on the device of the models."""
        return self.shots.to(self.work.runtime.device)


def chain_jobs(this: OutcomeRun, chain: Chain, seed: int, variants: tuple[str, ...]) -> list[TrainingJob]:
    """Write the tensors of a chain and seed to scratch, and return its trainings, one per variant.

    Raises:
        TrainingError: no shot to fit on.
    """
    task, scratch = task_of(this, chain, seed), this.work.runtime.scratch / "outcome"
    if not len(task.fit):
        raise TrainingError(f"chain {chain.name}: no shot to fit on; look at the rejects of ingest and trajectories")
    own = scratch / f"{chain.name}-s{seed}"
    put_task(scratch, own, task)
    return [chain_job(this.work, chain, seed, variant, own, scratch) for variant in variants]


def task_of(this: OutcomeRun, chain: Chain, seed: int) -> OutcomeTask:
    """Return the tensors of one chain and seed: contexts, the latents of its E_tau, the shots of its takes."""
    shots, device = this.shots, this.work.runtime.device
    e_tau = load_e_tau(this.work.inputs.models("e_tau"), chain, seed, device)
    latents = trajectory_latents(e_tau, shots.motions.to(device).flatten(0, 1)).view(len(shots), 2, -1).cpu()
    fit = rows_of_takes(shots.take, fit_takes(this.data, chain))
    return OutcomeTask(shots.context, latents, fit, torch.nonzero(shots.split == DEV)[:, 0], shots.made)


def weights_of(this: OutcomeRun, key: str) -> Mapping[str, Tensor]:
    """Return the weights of a finished training: parameter or buffer -> CPU tensor of its shape."""
    found = this.work.trained[key].models(ENTRY).read(key)
    return {name: torch.tensor(value) for name, value in found.items()}


def chain_models(this: OutcomeRun, chain: Chain, seed: int) -> OutcomeChain:
    """Build the frozen models of a chain and seed from its finished trainings."""
    task, device = task_of(this, chain, seed), this.work.runtime.device
    found = {}
    for variant in variants_of(chain):
        model = new_outcome_predictor(task, this.work.config)
        model.load_state_dict(weights_of(this, model_key(chain, seed, variant)))
        found[variant] = model.to(device).eval().requires_grad_(False)
    e_tau = load_e_tau(this.work.inputs.models("e_tau"), chain, seed, device)
    endpoint = found.get("endpoint_traj")
    return OutcomeChain(e_tau, found["traj"], found["no_traj"], endpoint, task.fit.to(device))


def probe_of(this: OutcomeRun, seed: int) -> ShotProbe | None:
    """Build the frozen probe of a seed; None without tokens."""
    key = model_key(FINAL, seed, PROBE)
    if key not in this.work.trained:
        return None
    model = new_shot_probe(task_of(this, FINAL, seed), this.work.config)
    model.load_state_dict(weights_of(this, key))
    return model.to(this.work.runtime.device).eval().requires_grad_(False)


def models_of_seed(this: OutcomeRun, seed: int) -> tuple[OutcomeModels, list[CurvePoint]]:
    """Fit the scorer of a seed on takes that each chain has not seen; return the models of its rows, and its curve."""
    cfg, runtime, shots = this.work.config, this.work.runtime, this.shots
    built = {chain: chain_models(this, chain, seed) for chain in this.chains}
    queries = [
        (model, rows_of_takes(shots.take, query_takes(this.data, chain)).to(runtime.device))
        for chain, model in built.items()
    ]
    dev = torch.nonzero(this.here.split == DEV)[:, 0]
    final = next(model for chain, model in built.items() if chain.name == FINAL.name)
    scratch = runtime.scratch / "outcome" / f"scorer-s{seed}"
    fitted = fit_shot_scorer(
        final, queries, this.here, dev, cfg, seed, scratch, runtime.device, lambda *_: None, runtime.checkpoint_s
    )
    scorer = GateThenRankScorer(cfg.ranking, fitted.shape).to(runtime.device).eval()
    scorer.load_state_dict(fitted.state)
    renamed = [row.replace(quantity=row.quantity.replace("M@1", "accuracy")) for row in fitted.curve]
    probe = probe_of(this, seed)
    return OutcomeModels(final, scorer.requires_grad_(False), fitted.decision, cfg, probe), renamed


def answers_of(models: OutcomeModels, shots: Shots, seed: int) -> list[ShotAnswer]:
    """Return the answers of every row to every test shot."""
    here = shots.to(str(models.chain.bank.device))
    rows = torch.nonzero(here.split == TEST)[:, 0]
    found = []
    for one in METHODS:
        answer = one.answer(models, here, rows)
        if answer is None:
            continue
        for at, row in enumerate(rows.tolist()):
            used = -1 if answer.candidate is None else int(answer.candidate[at])
            found.append(
                ShotAnswer(
                    shot_id=shots.ids[row],
                    take_id=shots.take_ids[int(shots.take[row])],
                    row=one.id,
                    seed=seed,
                    p_made=float(answer.p_made[at]),
                    is_made=bool(shots.made[row]),
                    gate=None if answer.gate is None else float(answer.gate[at]),
                    opened=None if answer.opened is None else bool(answer.opened[at]),
                    candidate=shots.ids[used] if used >= 0 else None,
                )
            )
    return found


def sight_judgement(models: OutcomeModels, shots: Shots, seed: int) -> Judgement:
    """Check that no row's answer depends on inputs that it must not see.

    Raises:
        LeakError: an answer does.
    """
    here = shots.to(str(models.chain.bank.device))
    check_sight(METHODS, models, here, torch.nonzero(here.split == TEST)[:, 0])
    detail = "pixels, durations, texts, outcomes and evidence of the shots exchanged; no answer changed in a bit"
    return Judgement(check=f"sight: every row, seed {seed}", verdict="holds", detail=detail)
