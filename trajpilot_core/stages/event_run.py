"""What the stages `outcome` and `action_token` have in common: the models of a chain and seed, and its scorer; the rows
of `outcome` (those of `action_token`: token_parts.py).

Source: docs/decisions/outcome.md, docs/decisions/epic-token.md.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from schemas.events import CompletedOutcome, ShotAnswer
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.chains import chains_of, fit_takes, frozen, load_e_tau, query_takes
from trajpilot_core.data.cross_fitting import FINAL, Chain, model_key, variants_of
from trajpilot_core.data.events import BEFORE, DEV, DURING, TEST, Events, Shots
from trajpilot_core.data.planning import rows_of_takes
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.evaluation.event_rows import SHOT_ROWS, EventModels, OutcomeModels, check_sight
from trajpilot_core.models.events import OutcomePredictor
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.events import EventChain, EventPredictor, latents_of
from trajpilot_core.stages.outcome import ENTRY, PROBE
from trajpilot_core.stages.trained import Fits, Trainings, prepared
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.event_scorer import Target, fit_event_scorer, shot_target
from trajpilot_core.training.fit_event import EventTask, OutcomeTask, new_event_predictor, new_shot_probe
from trajpilot_core.training.jobs import Train, fitted_takes

E = TypeVar("E", bound=Events)
T = TypeVar("T", bound=EventTask)


@dataclass(frozen=True)
class EventRun(ABC, Generic[E, T]):
    """Inputs of every part of a stage of events, and what a kind of event states about itself."""

    work: Work[Any]
    events: E
    """On the CPU."""

    ENTRY: ClassVar[str]
    """Entry of the stage's models."""
    RIGHT: ClassVar[str]
    """What the curves of the scorer call the share of right predictions."""
    KIND: ClassVar[type[EventPredictor]]
    """Class of the predictors."""

    @abstractmethod
    def variants(self, chain: Chain) -> tuple[str, ...]:
        """Return the predictors of a chain."""

    @abstractmethod
    def task(self, chain: Chain, seed: int) -> T:
        """Return the tensors of the trainings of a chain and seed."""

    @abstractmethod
    def target(self, embed: int) -> Target:
        """Return what the scorer predicts of the events `here`; `embed` is the text width of E_tau."""

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The chains that the folds call for, first the one that answers dev and test."""
        return chains_of(self.events)

    @cached_property
    def here(self) -> E:
        """The events on the device of the models."""
        return self.events.to(self.work.runtime.device)

    def fitted(self, chain: Chain) -> Tensor:
        """Return (n,) long: the training events that a chain is fitted on."""
        return rows_of_takes(self.events.take, fit_takes(self.events, chain))

    def held_out(self, chain: Chain) -> Tensor:
        """Return (n,) long: the training events that a chain has not seen."""
        return rows_of_takes(self.events.take, query_takes(self.events, chain))

    def latents(self, chain: Chain, seed: int) -> Tensor:
        """Return (N, 2, E) on the CPU: the head motion before and during each event, encoded by a chain's E_tau."""
        e_tau = load_e_tau(self.work.inputs.models("e_tau"), chain, seed, self.work.runtime.device)
        every = torch.arange(len(self.here), device=self.work.runtime.device)
        return torch.stack([latents_of(e_tau, self.here, every, part) for part in (BEFORE, DURING)], dim=1).cpu()

    def trained(self, chain: Chain, seed: int, variant: str) -> Models:
        """Return the models of a finished training."""
        return self.work.trained[model_key(chain, seed, variant)].models(self.ENTRY)

    def folder(self, seed: int) -> Path:
        """Return the scratch of a seed."""
        return self.work.runtime.scratch / self.ENTRY / f"s{seed}"


def event_fits(this: EventRun[E, T], wanted: Trainings, train: Train) -> Fits:
    """Write the tensors of chains and seeds to scratch; return their trainings.

    Raises TrainingError: no event to fit on.
    """

    def task_of(chain: Chain, seed: int) -> T:
        task = this.task(chain, seed)
        if not len(task.fit):
            raise TrainingError(
                f"chain {chain.name}: no event to fit on; look at the rejects of ingest and trajectories"
            )
        return task

    jobs, events = prepared(this.work, wanted, this.ENTRY, task_of), this.events
    return Fits(jobs, train, lambda job: fitted_takes(job, events.take, events.take_ids))


def chain_models(this: EventRun[E, T], chain: Chain, seed: int) -> EventChain:
    """Build the frozen models of a chain and seed from its finished trainings."""
    task, device = this.task(chain, seed), this.work.runtime.device
    models = {}
    for variant in this.variants(chain):
        new = new_event_predictor(this.KIND, task, this.work.config.predictor)
        models[variant] = frozen(new, this.trained(chain, seed, variant), model_key(chain, seed, variant), device)
    e_tau, fit = load_e_tau(this.work.inputs.models("e_tau"), chain, seed, device), task.fit.to(device)
    bank = fit[this.here.has_motion[fit, DURING]]
    return EventChain(e_tau, models["traj"], models["no_traj"], models.get("endpoint_traj"), bank)


def seed_models(
    this: EventRun[E, T], seed: int, progress: Progress
) -> tuple[dict[Chain, EventModels[Any]], list[CurvePoint]]:
    """Fit the scorer of a seed on events from takes that each chain has not seen.

    Returns:
        The frozen models of each chain with the scorer, first those that answer dev and test, and its curve.
    """
    runtime = this.work.runtime
    built = {chain: chain_models(this, chain, seed) for chain in this.chains}
    final = built[this.chains[0]]
    target, dev = this.target(final.e_tau.text_width), this.here.rows(DEV)
    training = [(models, this.held_out(chain).to(runtime.device)) for chain, models in built.items()]
    how = this.folder(seed) / "scorer", runtime.device, progress, runtime.checkpoint_s
    fitted = fit_event_scorer(final, training, this.here, dev, target, seed, *how)
    scorer = GateThenRankScorer(target.ranking, fitted.shape).to(runtime.device).eval()
    scorer.load_state_dict(fitted.state)
    renamed = [row.replace(quantity=row.quantity.replace("M@1", this.RIGHT)) for row in fitted.curve]
    parts = scorer.requires_grad_(False), fitted.decision, this.work.config
    return {chain: EventModels(models, *parts) for chain, models in built.items()}, renamed


@dataclass(frozen=True)
class ShotRun(EventRun[Shots, OutcomeTask]):
    """Inputs of every part of the stage."""

    work: Work[CompletedOutcome]

    ENTRY = ENTRY
    RIGHT = "accuracy"
    KIND = OutcomePredictor

    def variants(self, chain: Chain) -> tuple[str, ...]:
        """Return the predictors of a chain."""
        return variants_of(chain)

    def task(self, chain: Chain, seed: int) -> OutcomeTask:
        """Return the tensors of one chain and seed: features, the latents of its E_tau, the shots of its takes."""
        shots = self.events
        parts = self.latents(chain, seed), self.fitted(chain), shots.rows(DEV)
        return OutcomeTask(shots.context, *parts, shots.tokens, shots.made)

    def target(self, embed: int) -> Target:
        """Return the outcome as the target."""
        return shot_target(self.here, self.work.config, embed)


def answer_seed(this: ShotRun, seed: int) -> tuple[OutcomeModels, list[CurvePoint], list[ShotAnswer], Judgement]:
    """Fit the scorer of a seed, answer every test shot with every row, and check what the answers depend on.

    Returns:
        The models of the rows, the curve of the scorer, the answers, and the check.

    Raises LeakError: an answer depends on inputs that its row must not see.
    """
    (fitted, curve), key, probe = seed_models(this, seed, lambda *_: None), model_key(FINAL, seed, PROBE), None
    if key in this.work.trained:
        new = new_shot_probe(this.task(FINAL, seed), this.work.config)
        probe = frozen(new, this.trained(FINAL, seed, PROBE), key, this.work.runtime.device)
    models: OutcomeModels = replace(fitted[this.chains[0]], probe=probe)
    shots, here, rows = this.events, this.here, this.here.rows(TEST)
    answers = []
    for id_, answer in models.answers(here, rows, SHOT_ROWS).items():
        for at, row in enumerate(rows.tolist() if answer is not None else ()):
            used = -1 if answer.event is None else int(answer.event[at])
            answers.append(
                ShotAnswer(
                    shot_id=shots.ids[row],
                    take_id=shots.take_ids[int(shots.take[row])],
                    row=id_,
                    seed=seed,
                    p_made=float(answer.prediction[at]),
                    is_made=bool(shots.made[row]),
                    gate=None if answer.gate is None else float(answer.gate[at]),
                    opened=None if answer.opened is None else bool(answer.opened[at]),
                    candidate=shots.ids[used] if used >= 0 else None,
                )
            )
    check_sight(SHOT_ROWS, models, here, rows)
    detail = "pixels, durations, texts, outcomes and evidence of the shots exchanged; no answer changed in a bit"
    sight = Judgement(check=f"sight: every row, seed {seed}", verdict="holds", detail=detail)
    return models, curve, answers, sight
