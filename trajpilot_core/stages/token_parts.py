"""The parts of the stage `action_token`: its trainings, one after the other. Source: docs/decisions/epic-token.md.

Shapes: N clips, E text width.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from schemas.action_token import ActionTokenConfig, TokenRow
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.action_clips import ClipData
from trajpilot_core.data.action_events import ACTION, BEFORE, DEV, TEST, TRAIN, ActionEvents, columns_of, load_events
from trajpilot_core.data.chains import fitting_takes, held_out_takes, load_e_tau
from trajpilot_core.data.cross_fitting import FINAL, TWINNED, Chain, chains, model_key, noted_fitted
from trajpilot_core.data.planning import rows_of_takes
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.evaluation.action_scores import AnsweredRow
from trajpilot_core.evaluation.token_rows import METHODS, TokenMaker, TokenModels, answer, check_sight
from trajpilot_core.evaluation.token_scores import check_motion, check_unseen
from trajpilot_core.metrics.epic_kitchens import PARTS
from trajpilot_core.models.action_token import ActionPredictor
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.events import ActionChain, latents_of
from trajpilot_core.stages import probe
from trajpilot_core.stages.action_token import ENTRY
from trajpilot_core.stages.trained import Trainings, variants_by_chain
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.action_scorer import fit_action_scorer, scored
from trajpilot_core.training.fit_action import ActionTask, new_action_predictor
from trajpilot_core.training.fit_probe import ProbeTask
from trajpilot_core.training.fit_token_probe import (
    TokenTask,
    name_of,
    train_token_probe,
    tuned_probe,
)
from trajpilot_core.training.jobs import OWN, SHARED, TrainingJob, chain_job, put_task, put_tensors, run_jobs

Makers = Mapping[Chain, TokenMaker]
"""Chain -> models that make its tokens."""


@dataclass(frozen=True)
class TokenRun:
    """Inputs of every part of the stage."""

    work: Work[ActionTokenConfig]
    events: ActionEvents
    """On the CPU."""
    data: ClipData

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The chains that the folds call for."""
        return chains(int(self.events.fold.max()) + 1)

    @cached_property
    def here(self) -> ActionEvents:
        """The clips on the device of the models."""
        return self.events.to(self.work.runtime.device)

    def fitted(self, chain: Chain) -> Tensor:
        """Return (n,) long: the training clips that a chain is fitted on."""
        return rows_of_takes(self.events.take, fitting_takes(self.events.take_split, self.events.fold, chain))

    def held_out(self, chain: Chain) -> Tensor:
        """Return (n,) long: the training clips that a chain has not seen."""
        return rows_of_takes(self.events.take, held_out_takes(self.events.take_split, self.events.fold, chain))

    def given_to(self, chain: Chain, seed: int) -> list[str]:
        """Return the videos that the predictors of a chain were fitted on.

        Read from their input tensors, not from the folds that these should follow, so that a leak shows.
        """
        notes = [self.trained(chain, seed, variant).about for variant in TWINNED]
        return sorted({take for about in notes for takes in noted_fitted(about).values() for take in takes})

    def trained(self, chain: Chain, seed: int, variant: str) -> Models:
        """Return the models of a finished training of a predictor."""
        return self.work.trained[model_key(chain, seed, variant)].models(ENTRY)

    def takes_of(self, rows: Tensor) -> list[str]:
        """Return the distinct videos of clips."""
        return [self.events.take_ids[at] for at in torch.unique(self.events.take[rows.cpu()]).tolist()]

    def folder(self, seed: int) -> Path:
        """Return the scratch of a seed."""
        return self.work.runtime.scratch / "action-token" / f"s{seed}"


def loaded(work: Work[ActionTokenConfig]) -> TokenRun:
    """Load the clips of a run, as events and as clips."""
    events, data = load_events(work.inputs, work.config.seen_s, work.config.tuned.gap_s or 0.0)
    return TokenRun(work, events, data)


class TunedSeed(NamedTuple):
    """Answers of the rows of one seed, and their models."""

    seed: int
    answered: list[AnsweredRow]
    curve: list[CurvePoint]
    """Of the fine-tuning."""
    checks: list[Judgement]
    weights: dict[str, dict[str, Tensor]]
    """Name of a model -> its weights."""
    decision: str
    """Decision of dev for the scorer, as JSON."""


def task_of(this: TokenRun, chain: Chain, seed: int) -> ActionTask:
    """Return the tensors of one chain and seed: contexts, the latents of its E_tau, the clips of its takes."""
    device, events = this.work.runtime.device, this.here
    e_tau = load_e_tau(this.work.inputs.models("e_tau"), chain, seed, device)
    alone = ActionChain(e_tau, None, None, events.take[:0])  # type: ignore[arg-type]
    every = torch.arange(len(events), device=device)
    latents = torch.stack([latents_of(alone, events, every, part) for part in (BEFORE, ACTION)], dim=1)
    own = this.events
    return ActionTask(own.context, latents.cpu(), this.fitted(chain), own.rows(DEV), own.labels, own.bank)


def predictor_jobs(this: TokenRun, wanted: Trainings) -> list[TrainingJob]:
    """Write the inputs of the predictors of chains and seeds to scratch; return their trainings.

    Raises:
        TrainingError: no clip to fit on, or no training clip that a chain has not seen.
    """
    if not any(len(this.held_out(chain)) for chain in this.chains):
        raise TrainingError(
            "no training clip is left for fine-tuning that its predictor has not seen; add training videos"
        )
    jobs = []
    for (chain, seed), variants in variants_by_chain(wanted).items():
        task, shared = task_of(this, chain, seed), this.folder(seed) / "predictors"
        if not len(task.fit):
            raise TrainingError(f"chain {chain.name}: no clip to fit on; look at the rejects of ingest")
        own = shared / chain.name
        put_task(shared, own, task)
        jobs += [chain_job(this.work, chain, seed, variant, own, shared) for variant in variants]
    return jobs


def chain_models(this: TokenRun, chain: Chain, seed: int) -> ActionChain:
    """Build the frozen models of a chain and seed from its finished trainings."""
    task, device, found = task_of(this, chain, seed), this.work.runtime.device, dict[str, ActionPredictor]()
    for variant in TWINNED:
        model = new_action_predictor(task, this.work.config)
        weights = this.trained(chain, seed, variant).read(model_key(chain, seed, variant))
        model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        found[variant] = model.to(device).eval().requires_grad_(False)
    e_tau = load_e_tau(this.work.inputs.models("e_tau"), chain, seed, device)
    return ActionChain(e_tau, found["traj"], found["no_traj"], task.fit.to(device))


def makers_of_seed(this: TokenRun, seed: int, progress: Progress) -> tuple[Makers, list[CurvePoint]]:
    """Fit the scorer of a seed on clips that each chain has not seen; return the makers of tokens, and its curve."""
    cfg, device = this.work.config, this.work.runtime.device
    built = {chain: chain_models(this, chain, seed) for chain in this.chains}
    queries = [(models, this.held_out(chain).to(device)) for chain, models in built.items()]
    final = built[final_of(this.chains)]
    fitted = fit_action_scorer(
        final,
        queries,
        this.here,
        this.here.rows(DEV),
        cfg,
        seed,
        this.folder(seed) / "scorer",
        device,
        progress,
        this.work.runtime.checkpoint_s,
    )
    scorer = GateThenRankScorer(cfg.ranking, fitted.shape).to(device).eval()
    scorer.load_state_dict(fitted.state)
    scorer.requires_grad_(False)
    renamed = [row.replace(quantity=row.quantity.replace("M@1", "action")) for row in fitted.curve]
    return {chain: TokenMaker(models, scorer, fitted.decision, cfg) for chain, models in built.items()}, renamed


def final_of(known: tuple[Chain, ...]) -> Chain:
    """Return the chain that answers dev and test."""
    return next(chain for chain in known if chain.name == FINAL.name)


def clips_of(this: TokenRun) -> dict[Chain, Tensor]:
    """Return chain -> (n,) long: the clips for which it makes tokens for fine-tuning.

    A training clip gets the token of a chain that has not seen its video, a dev clip that of `final`.
    """
    found = {chain: this.held_out(chain) for chain in this.chains}
    final = final_of(this.chains)
    return {**found, final: torch.cat([found[final], this.events.rows(DEV)])}


def tokens_of(this: TokenRun, makers: Makers, row: TokenRow) -> Tensor:
    """Return (n, E) float16 on the CPU: the tokens of a row for the clips of `clips_of`, in that order."""
    one = next(method for method in METHODS if method.id == row)
    device = this.work.runtime.device
    parts = [
        one.token(makers[chain], this.here, part.to(device)).cpu().half()
        for chain, rows in clips_of(this).items()
        for part in of_one_split(this.events, rows)
        if len(part)
    ]
    return torch.cat(parts)


def of_one_split(events: ActionEvents, rows: Tensor) -> list[Tensor]:
    """Return the rows of training, then those of dev, because tokens are shuffled within a split."""
    return [rows[events.split[rows] == split] for split in (TRAIN, DEV)]


def probe_task(this: TokenRun, seed: int) -> tuple[ProbeTask, dict[str, Tensor]]:
    """Return the clips that every row is fine-tuned and measured on, and the initial weights."""
    models = this.work.inputs.models(probe.ENTRY)
    noted = json.loads(models.about["classes"])
    classes = {part: np.array(noted[part], dtype=np.int64) for part in PARTS}
    ordered = [part for rows in clips_of(this).values() for part in of_one_split(this.events, rows)]
    rows = torch.cat(ordered)
    task = ProbeTask(
        this.events.tokens[rows],
        columns_of(this.events, classes)[rows],
        this.events.split[rows] == DEV,
        {part: torch.from_numpy(found) for part, found in classes.items()},
    )
    begun = models.read(model_key(FINAL, seed, probe.VARIANT))
    return task, {name: torch.tensor(value) for name, value in begun.items()}


def tune_seed(this: TokenRun, seed: int, makers: Makers, runtime: Runtime) -> TunedSeed:
    """Fine-tune the probes of a seed and answer the tested clips with them.

    Raises:
        LeakError: a row sees more than it declares.
    """
    clips, begun = probe_task(this, seed)
    tasks = {one.id: TokenTask(**vars(clips), token=tokens_of(this, makers, one.id), begun=begun) for one in METHODS}
    jobs: dict[TokenRow, TrainingJob] = {}
    for row, task in tasks.items():
        shared, own = task.tensors()
        if not jobs:  # the same for every row
            put_tensors(this.folder(seed) / "probes", SHARED, shared)
        put_tensors(this.folder(seed) / "probes" / row, OWN, own)
        jobs[row] = row_job(this, seed, row)
    run_jobs(list(jobs.values()), train_token_probe, runtime)
    chosen = {row: tuned_probe(job, tasks[row], this.work.config) for row, job in jobs.items()}
    maker = makers[final_of(this.chains)]
    classes = {part: found.numpy() for part, found in clips.classes.items()}
    models = TokenModels(maker, {row: model for row, (model, _) in chosen.items()}, classes)
    rows = this.here.rows(TEST)
    check_sight(METHODS, models, this.here, rows)
    answered = [
        AnsweredRow(one.id, seed, chosen[one.id][1].trial.name, answer(models, this.here, rows, one)) for one in METHODS
    ]
    return TunedSeed(
        seed,
        answered,
        [point for _, one in chosen.values() for point in one.curve],
        seed_checks(this, seed, models),
        weights_of(models),
        maker.decision.model_dump_json(),
    )


def row_job(this: TokenRun, seed: int, row: TokenRow) -> TrainingJob:
    """Return the fine-tuning of a row; its tensors are in the scratch of its seed."""
    shared, runtime = this.folder(seed) / "probes", this.work.runtime
    return TrainingJob(
        name=name_of(row),
        seed=seed,
        variant=row,
        folder=shared / row / row,
        own=shared / row,
        shared=shared,
        config=this.work.config.model_dump_json(),
        device=runtime.device,
        checkpoint_s=runtime.checkpoint_s,
    )


def seed_checks(this: TokenRun, seed: int, models: TokenModels) -> list[Judgement]:
    """Check what each model has seen, from the input clips of the trainings, and how often the gate opened."""
    rows = this.here.rows(TEST)
    opened = scored(*models.maker[:3], this.here, rows, models.maker.cfg)[1]
    known = this.events.has_motion[this.events.rows(TEST)]
    fitted = {chain.name: this.given_to(chain, seed) for chain in this.chains}
    tokens = {chain.name: this.takes_of(rows) for chain, rows in clips_of(this).items()}
    sight = "the action, its text, how long it lasts and head motion that is not seen exchanged; no token and no answer"
    return [
        check_unseen(tokens, fitted),
        Judgement(check=f"sight: every row, seed {seed}", verdict="holds", detail=f"{sight} changed in a bit"),
        check_motion(known.numpy(), int(opened.sum())),
    ]


def weights_of(models: TokenModels) -> dict[str, dict[str, Tensor]]:
    """Return name -> weights of the models behind the rows of a seed, except the predictors."""
    kept: dict[str, torch.nn.Module] = {f"probe_{row}": model for row, model in models.probes.items()}
    kept["scorer"] = models.maker.scorer
    return {name: model.state_dict() for name, model in kept.items()}
