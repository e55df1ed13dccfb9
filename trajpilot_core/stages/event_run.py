"""What the stages `outcome` and `action_token` have in common: the models of a chain and seed, and its scorer; the rows
of `outcome` (those of `action_token`: token_parts.py).

Source: docs/decisions/outcome.md, docs/decisions/epic-token.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from schemas.events import ShotAnswer
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
from trajpilot_core.training.jobs import Fit, fitted_takes

E = TypeVar("E", bound=Events)


class EventKind(NamedTuple):
    """What a stage of events states about its kind of event."""

    entry: str
    """Entry of the stage's models."""
    right: str
    """What the curves of the scorer call the share of right predictions."""
    predictor: type[EventPredictor]
    task: type[EventTask]
    fields: tuple[str, ...]
    """Fields of the events that its task has, too."""
    variants: Callable[[Chain], tuple[str, ...]]
    """The predictors of a chain."""
    target: Callable[[Any, Any, int], Target]
    """Events, settings and text width of E_tau -> what the scorer predicts."""


@dataclass(frozen=True)
class EventRun(Generic[E]):
    """Inputs of every part of a stage of events."""

    work: Work[Any]
    events: E
    """On the CPU."""
    kind: EventKind

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

    def task(self, chain: Chain, seed: int) -> Any:
        """Return the tensors of a chain and seed: contexts, the head motion before and during each event, encoded by
        the E_tau of the chain, (N, 2, E), and the events of its takes."""
        e_tau = load_e_tau(self.work.inputs.models("e_tau"), chain, seed, self.work.runtime.device)
        every = torch.arange(len(self.here), device=self.work.runtime.device)
        latents = torch.stack([latents_of(e_tau, self.here, every, part) for part in (BEFORE, DURING)], dim=1).cpu()
        more, dev = {name: getattr(self.events, name) for name in self.kind.fields}, self.events.rows(DEV)
        return self.kind.task(self.events.context, latents, self.fitted(chain), dev, **more)

    def trained(self, chain: Chain, seed: int, variant: str) -> Models:
        """Return the models of a finished training."""
        return self.work.trained[model_key(chain, seed, variant)].models(self.kind.entry)

    def folder(self, seed: int) -> Path:
        """Return the scratch of a seed."""
        return self.work.runtime.scratch / self.kind.entry / f"s{seed}"


def event_fits(this: EventRun[E], wanted: Trainings, fit: Fit[Any, Any]) -> Fits:
    """Write the tensors of chains and seeds to scratch; return their trainings.

    Raises TrainingError: no event to fit on.
    """

    def task_of(chain: Chain, seed: int) -> EventTask:
        task: EventTask = this.task(chain, seed)
        if not len(task.fit):
            raise TrainingError(
                f"chain {chain.name}: no event to fit on; look at the rejects of ingest and trajectories"
            )
        return task

    jobs, events = prepared(this.work, wanted, this.kind.entry, task_of), this.events
    return Fits(jobs, fit, lambda job: fitted_takes(job, events.take, events.take_ids))


def _chain_models(this: EventRun[E], chain: Chain, seed: int) -> EventChain:
    """Build the frozen models of a chain and seed from its finished trainings."""
    task, device = this.task(chain, seed), this.work.runtime.device
    models = {}
    for variant in this.kind.variants(chain):
        new = new_event_predictor(this.kind.predictor, task, this.work.config.predictor)
        models[variant] = frozen(new, this.trained(chain, seed, variant), model_key(chain, seed, variant), device)
    e_tau, fit = load_e_tau(this.work.inputs.models("e_tau"), chain, seed, device), task.fit.to(device)
    bank = fit[this.here.has_motion[fit, DURING]]
    return EventChain(e_tau, models["traj"], models["no_traj"], models.get("endpoint_traj"), bank)


def seed_models(
    this: EventRun[E], seed: int, progress: Progress
) -> tuple[dict[Chain, EventModels[Any]], list[CurvePoint]]:
    """Fit the scorer of a seed on events from takes that each chain has not seen.

    Returns chain -> its frozen models with the scorer (the first chain answers dev and test), and the scorer's curve.
    """
    runtime = this.work.runtime
    built = {chain: _chain_models(this, chain, seed) for chain in this.chains}
    final = built[this.chains[0]]
    target, dev = this.kind.target(this.here, this.work.config, final.e_tau.text_width), this.here.rows(DEV)
    training = [(models, this.held_out(chain).to(runtime.device)) for chain, models in built.items()]
    own = replace(runtime, scratch=this.folder(seed) / "scorer", progress=progress)
    fitted = fit_event_scorer(final, training, this.here, dev, target, seed, own)
    scorer = GateThenRankScorer(target.ranking, fitted.shape).to(runtime.device).eval()
    scorer.load_state_dict(fitted.state)
    renamed = [row.replace(quantity=row.quantity.replace("M@1", this.kind.right)) for row in fitted.curve]
    parts = scorer.requires_grad_(False), fitted.decision, this.work.config
    return {chain: EventModels(models, *parts) for chain, models in built.items()}, renamed


SHOTS = EventKind(ENTRY, "accuracy", OutcomePredictor, OutcomeTask, ("tokens", "made"), variants_of, shot_target)


def answer_seed(
    this: EventRun[Shots], seed: int
) -> tuple[OutcomeModels, list[CurvePoint], list[ShotAnswer], Judgement]:
    """Fit the scorer of a seed, answer every test shot with every row, and check what the answers depend on.

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
        if answer is None:
            continue
        for at, row in enumerate(rows.tolist()):
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
