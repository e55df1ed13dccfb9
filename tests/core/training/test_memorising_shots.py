"""The networks of shot outcomes memorise 64 shots, learn what shows, and fall to the majority with permuted inputs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from shots_fixture import CFG
from trainings_fixture import EMBED, LEARNED, N, drawn, ended, job_of, noise, units, values

from schemas.events import CompletedOutcome
from trajpilot_core.training.fit_event import PROBE, OutcomeTask, train_shot_model
from trajpilot_core.training.jobs import put_task

LEARNING = CFG.replace(
    train=CFG.train.replace(epochs=32, lr=5e-3, weight_decay=0.0),
    predictor=CFG.predictor.replace(trajectory_dropout=0.0, dropout=0.0),
)
FEW = LEARNING.replace(train=LEARNING.train.replace(epochs=4))
FEATURES = 32
VARIANTS = ("traj", PROBE)


def shots(n_fit: int, n_dev: int, *, is_clear: bool) -> OutcomeTask:
    """Shots whose outcome shows in every token of the clip and in head motion; else in nothing."""
    n, g = n_fit + n_dev, drawn()
    made = torch.rand(n, generator=g) < 0.5
    context, latents = torch.randn(n, 3, FEATURES, generator=g), units(n, 2, EMBED, seed=1)
    if is_clear:
        sign = made.float()[:, None, None] * 2 - 1
        context, latents = (
            context + 6 * sign * units(FEATURES),
            torch.nn.functional.normalize(latents + sign * units(EMBED), dim=-1),
        )
    rows = torch.arange(n)
    return OutcomeTask(context.half(), latents, rows[:n_fit], rows[n_fit:], context.half().clone(), made)


def accuracies(
    task: OutcomeTask, variant: str, folder: Path, config: CompletedOutcome = LEARNING
) -> tuple[list[float], list[float]]:
    put_task(folder, folder, task)
    curve = ended(job_of(folder, variant, config), train_shot_model)[1]
    return values(curve, "train", "accuracy"), values(curve, "dev", "accuracy")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_network_memorises_64_shots_that_teach_nothing_about_others(variant: str, tmp_path: Path) -> None:
    train, dev = accuracies(shots(N, N, is_clear=False), variant, tmp_path)
    assert train[0] < 0.85
    assert train[-1] > LEARNED
    assert dev[-1] < 0.7


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_network_of_permuted_inputs_falls_to_the_majority(variant: str, tmp_path: Path) -> None:
    task = shots(200, 200, is_clear=True)
    order = torch.randperm(400, generator=drawn(3))
    permuted = replace(task, context=task.context[order], tokens=task.tokens[order], latents=task.latents[order])
    clear, shuffled = (accuracies(of, variant, tmp_path / name, FEW)[1] for name, of in (("a", task), ("b", permuted)))
    made = task.made[task.dev].double().mean().item()
    floor = max(made, 1 - made)
    assert max(clear) > floor + 0.3
    assert shuffled[-1] <= floor + noise(0.5, 200)
