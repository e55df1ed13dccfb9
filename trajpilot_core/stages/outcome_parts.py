"""The parts of the stage `outcome`: its trainings, the models of its rows, their answers.

Source: docs/decisions/outcome.md.
"""

from dataclasses import dataclass

from schemas.events import CompletedOutcome, ShotAnswer
from schemas.results import CurvePoint, Judgement
from trajpilot_core.data.chains import frozen
from trajpilot_core.data.cross_fitting import FINAL, Chain, model_key, variants_of
from trajpilot_core.data.events import DEV, TEST, Shots
from trajpilot_core.engine.stage import Work
from trajpilot_core.evaluation.shot_rows import METHODS, OutcomeModels, check_sight
from trajpilot_core.models.events import OutcomePredictor
from trajpilot_core.stages.event_run import EventRun, seed_models
from trajpilot_core.stages.outcome import ENTRY, PROBE
from trajpilot_core.training.event_scorer import Target, shot_target
from trajpilot_core.training.fit_event import OutcomeTask, new_shot_probe


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


def models_of_seed(this: ShotRun, seed: int) -> tuple[OutcomeModels, list[CurvePoint]]:
    """Return the models of the rows of a seed, and the curve of the scorer."""
    models, key, probe = seed_models(this, seed, lambda *_: None), model_key(FINAL, seed, PROBE), None
    if key in this.work.trained:
        new = new_shot_probe(this.task(FINAL, seed), this.work.config)
        probe = frozen(new, this.trained(FINAL, seed, PROBE), key, this.work.runtime.device)
    return OutcomeModels(models.final, models.scorer, models.decision, this.work.config, probe), models.curve


def answers_of(models: OutcomeModels, shots: Shots, seed: int) -> list[ShotAnswer]:
    """Return the answers of every row to every test shot."""
    here = shots.to(str(models.chain.bank.device))
    rows = here.rows(TEST)
    answers = []
    for method in METHODS:
        answer = method.answer(models, here, rows)
        if answer is None:
            continue
        for at, row in enumerate(rows.tolist()):
            used = -1 if answer.candidate is None else int(answer.candidate[at])
            answers.append(
                ShotAnswer(
                    shot_id=shots.ids[row],
                    take_id=shots.take_ids[int(shots.take[row])],
                    row=method.id,
                    seed=seed,
                    p_made=float(answer.p_made[at]),
                    is_made=bool(shots.made[row]),
                    gate=None if answer.gate is None else float(answer.gate[at]),
                    opened=None if answer.opened is None else bool(answer.opened[at]),
                    candidate=shots.ids[used] if used >= 0 else None,
                )
            )
    return answers


def sight_judgement(models: OutcomeModels, shots: Shots, seed: int) -> Judgement:
    """Check that no row's answer depends on inputs that it must not see.

    Raises LeakError: an answer does.
    """
    here = shots.to(str(models.chain.bank.device))
    check_sight(METHODS, models, here, here.rows(TEST))
    detail = "pixels, durations, texts, outcomes and evidence of the shots exchanged; no answer changed in a bit"
    return Judgement(check=f"sight: every row, seed {seed}", verdict="holds", detail=detail)
