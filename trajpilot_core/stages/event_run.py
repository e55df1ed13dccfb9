"""What the stages `outcome` and `action_token` have in common: the models of a chain and seed, and its scorer.

Source: docs/decisions/outcome.md, docs/decisions/epic-token.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from schemas.results import CurvePoint
from trajpilot_core.data.chains import chains_of, fit_takes, frozen, load_e_tau, query_takes
from trajpilot_core.data.cross_fitting import Chain, model_key
from trajpilot_core.data.events import BEFORE, DEV, DURING, Events
from trajpilot_core.data.planning import rows_of_takes
from trajpilot_core.engine.progress import Progress
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.models.scorer import GateThenRankScorer
from trajpilot_core.retrieval.events import EventChain, EventPredictor, latents_of
from trajpilot_core.stages.trained import Trainings, variants_by_chain
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.event_scorer import Target, fit_event_scorer
from trajpilot_core.training.fit_event import EventTask, new_event_predictor
from trajpilot_core.training.jobs import TrainingJob, chain_job, put_task
from trajpilot_core.training.scorer_fit import ScorerDecision

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


def event_jobs(this: EventRun[E, T], wanted: Trainings) -> list[TrainingJob]:
    """Write the tensors of chains and seeds to scratch; return their trainings.

    Raises TrainingError: no event to fit on.
    """
    jobs = []
    for (chain, seed), variants in variants_by_chain(wanted).items():
        task, shared = this.task(chain, seed), this.folder(seed) / "predictors"
        if not len(task.fit):
            raise TrainingError(
                f"chain {chain.name}: no event to fit on; look at the rejects of ingest and trajectories"
            )
        put_task(shared, shared / chain.name, task)
        jobs += [chain_job(this.work, chain, seed, variant, shared / chain.name, shared) for variant in variants]
    return jobs


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


class SeedModels(NamedTuple):
    """The frozen models of one seed."""

    chains: Mapping[Chain, EventChain]
    final: EventChain
    """The chain that answers dev and test."""
    scorer: GateThenRankScorer
    decision: ScorerDecision
    curve: list[CurvePoint]
    """Curve of the scorer."""


def seed_models(this: EventRun[E, T], seed: int, progress: Progress) -> SeedModels:
    """Fit the scorer of a seed on events from takes that each chain has not seen; return it with all chains."""
    runtime = this.work.runtime
    built = {chain: chain_models(this, chain, seed) for chain in this.chains}
    final = built[this.chains[0]]
    target = this.target(final.e_tau.text_width)
    fitted = fit_event_scorer(
        final,
        [(models, this.held_out(chain).to(runtime.device)) for chain, models in built.items()],
        this.here,
        this.here.rows(DEV),
        target,
        seed,
        this.folder(seed) / "scorer",
        runtime.device,
        progress,
        runtime.checkpoint_s,
    )
    scorer = GateThenRankScorer(target.ranking, fitted.shape).to(runtime.device).eval()
    scorer.load_state_dict(fitted.state)
    renamed = [row.replace(quantity=row.quantity.replace("M@1", this.RIGHT)) for row in fitted.curve]
    return SeedModels(built, final, scorer.requires_grad_(False), fitted.decision, renamed)
