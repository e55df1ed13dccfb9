"""The networks of shot outcomes and of TrajPilot's token memorise 64 events, learn what shows, and fall to a floor with
permuted inputs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kitchens_fixture import CFG
from shots_fixture import CFG as OUTCOME
from torch import Tensor
from trainings_fixture import EMBED, FEATURES, LABELS, LEARNED, N, drawn, ended, job_of, noise, units, values

from schemas.base import Record
from schemas.events import CompletedActionToken
from trajpilot_core.metrics.epic_kitchens import ACTION_TOP1, ActionPart
from trajpilot_core.models.attentive_probe import AttentiveProbe
from trajpilot_core.training.fit_event import PROBE, ActionTask, OutcomeTask, train_action, train_shot_model
from trajpilot_core.training.fit_probe import ProbeTask, TokenTask, choose_probe, train_token_probe
from trajpilot_core.training.jobs import Task, Train, put_task
from trajpilot_core.training.loop import seeded

LEARNING = CFG.replace(
    train=CFG.train.replace(epochs=40, lr=5e-3, weight_decay=0.0, patience=None),
    predictor=CFG.predictor.replace(trajectory_dropout=0.0),
    rates=(2e-2,),
    decays=(0.0,),
    epochs=32,
)
"""Of networks that memorise."""
FEW = LEARNING.replace(train=LEARNING.train.replace(epochs=4), epochs=10)
"""Of those that learn what shows."""


def floor_of(labels: Tensor, fit: Tensor, dev: Tensor) -> float:
    """Share of dev that has the commonest label of what is fitted."""
    return float((labels[dev] == torch.bincount(labels[fit]).argmax()).double().mean())


def action_task(n_fit: int, n_dev: int, *, is_clear: bool) -> ActionTask:
    """Clips whose actions show in what is seen and in head motion; else in nothing."""
    n, g = n_fit + n_dev, drawn()
    labels, bank = torch.randint(LABELS, (n,), generator=g), units(LABELS, EMBED)
    context, latents = torch.randn(n, 1, FEATURES, generator=g), units(n, 2, EMBED, seed=1)
    if is_clear:
        context = torch.randn(LABELS, 1, FEATURES, generator=g)[labels] + 0.3 * context
        latents = torch.nn.functional.normalize(bank[labels][:, None] + 0.3 * latents, dim=-1)
    rows = torch.arange(n)
    return ActionTask(context.half(), latents, rows[:n_fit], rows[n_fit:], labels, bank)


def scores(task: Task, variant: str, folder: Path, config: Record, train: Train) -> list[list[float]]:
    """Share of right answers after each epoch, of train and of dev."""
    put_task(folder, folder, task)
    curve = ended(job_of(folder, variant, config), train)[1]
    return [values(curve, split, "action" if train is train_action else "accuracy") for split in ("train", "dev")]


def test_a_predictor_of_actions_memorises_64_clips_that_teach_nothing_about_others(tmp_path: Path) -> None:
    train, dev = scores(action_task(N, N, is_clear=False), "no_traj", tmp_path, LEARNING, train_action)
    assert train[0] < 0.3
    assert train[-1] > LEARNED
    assert dev[-1] < 0.3


def test_a_predictor_of_actions_with_permuted_inputs_falls_to_the_majority(tmp_path: Path) -> None:
    task = action_task(240, 200, is_clear=True)
    order = torch.randperm(440, generator=drawn(3))
    permuted = replace(task, context=task.context[order], latents=task.latents[order])
    clear, shuffled = (
        scores(of, "traj", tmp_path / name, FEW, train_action)[1] for name, of in (("a", task), ("b", permuted))
    )
    floor = floor_of(task.labels, task.fit, task.dev)
    assert max(clear) > floor + 0.4
    assert shuffled[-1] <= floor + noise(1 / LABELS, 200)


def token_task(n_fit: int, n_dev: int, *, told: bool) -> TokenTask:
    """Clips whose tokens tell nothing; the token that is added tells the action of each, or nothing."""
    n, g = n_fit + n_dev, drawn()
    actions = torch.randint(LABELS, (n,), generator=g)
    classes = torch.arange(LABELS)
    columns = torch.stack([actions % 3, actions // 3, actions], dim=1)
    parts: dict[ActionPart, Tensor] = {"verb": classes[:3].clone(), "noun": classes[:4].clone(), "action": classes}
    clips = ProbeTask(torch.randn(n, 3, 16, generator=g).half(), columns, torch.arange(n) >= n_fit, parts)
    token = torch.randn(n, EMBED, generator=g)
    token = units(LABELS, EMBED)[actions] + 0.1 * token if told else token / EMBED**0.5
    with seeded(0):
        begun = AttentiveProbe(clips.shape(LEARNING.tuned)).state_dict()
    return TokenTask(**vars(clips), token=token.half(), begun=begun)


def fit_token(task: TokenTask, folder: Path, config: CompletedActionToken = LEARNING) -> dict[str, list[float]]:
    """Scores of a probe that is given a token; one without it is fitted in test_fit_token_probe.py."""
    put_task(folder, folder, task)
    job = job_of(folder, "oracle", config)
    train_token_probe(job, lambda epoch, epochs, line: None)
    curve = choose_probe(job, config.tuned).curve
    return {split: values(curve, split, ACTION_TOP1.id) for split in ("train", "dev")}


def test_a_probe_memorises_64_clips_that_teach_nothing_about_others(tmp_path: Path) -> None:
    found = fit_token(token_task(N, N, told=False), tmp_path)
    assert found["train"][0] < 0.5
    assert found["train"][-1] > LEARNED
    assert found["dev"][-1] < 0.3


def test_a_probe_with_permuted_tokens_falls_to_the_majority(tmp_path: Path) -> None:
    task = token_task(240, 200, told=True)
    permuted = replace(task, token=task.token[torch.randperm(440, generator=drawn(3))])
    told, shuffled = (fit_token(of, tmp_path / name, FEW)["dev"] for name, of in (("a", task), ("b", permuted)))
    actions, rows = task.columns[:, 2], torch.arange(440)
    floor = floor_of(actions, rows[:240], rows[240:])
    assert max(told) > floor + 0.4
    assert shuffled[-1] <= floor + noise(1 / LABELS, 200)


SHOTS = OUTCOME.replace(
    train=OUTCOME.train.replace(epochs=32, lr=5e-3, weight_decay=0.0),
    predictor=OUTCOME.predictor.replace(trajectory_dropout=0.0, dropout=0.0),
)
FEW_SHOTS = SHOTS.replace(train=SHOTS.train.replace(epochs=4))
WIDTH = 32
VARIANTS = ("traj", PROBE)


def shots(n_fit: int, n_dev: int, *, is_clear: bool) -> OutcomeTask:
    """Shots whose outcome shows in every token of the clip and in head motion; else in nothing."""
    n, g = n_fit + n_dev, drawn()
    made = torch.rand(n, generator=g) < 0.5
    context, latents = torch.randn(n, 3, WIDTH, generator=g), units(n, 2, EMBED, seed=1)
    if is_clear:
        sign = made.float()[:, None, None] * 2 - 1
        context, latents = (
            context + 6 * sign * units(WIDTH),
            torch.nn.functional.normalize(latents + sign * units(EMBED), dim=-1),
        )
    rows = torch.arange(n)
    return OutcomeTask(context.half(), latents, rows[:n_fit], rows[n_fit:], context.half().clone(), made)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_network_memorises_64_shots_that_teach_nothing_about_others(variant: str, tmp_path: Path) -> None:
    train, dev = scores(shots(N, N, is_clear=False), variant, tmp_path, SHOTS, train_shot_model)
    assert train[0] < 0.85
    assert train[-1] > LEARNED
    assert dev[-1] < 0.7


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_network_of_permuted_inputs_falls_to_the_majority(variant: str, tmp_path: Path) -> None:
    task = shots(200, 200, is_clear=True)
    order = torch.randperm(400, generator=drawn(3))
    permuted = replace(task, context=task.context[order], tokens=task.tokens[order], latents=task.latents[order])
    clear, shuffled = (
        scores(of, variant, tmp_path / name, FEW_SHOTS, train_shot_model)[1]
        for name, of in (("a", task), ("b", permuted))
    )
    made = task.made[task.dev].double().mean().item()
    floor = max(made, 1 - made)
    assert max(clear) > floor + 0.3
    assert shuffled[-1] <= floor + noise(0.5, 200)
