"""Learned networks memorise 64 examples, learn what shows, and fall to their floor where their inputs are permuted."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from kitchens_fixture import CFG
from planning_fixture import on_cpu
from torch import Tensor
from torch.nn import functional as F
from trainings_fixture import (
    E_TAU,
    EMBED,
    FEATURES,
    LABELS,
    LEARNED,
    LEARNING,
    PREDICTOR,
    SCORER,
    N,
    clear_task,
    collected,
    drawn,
    ended,
    fit_e_tau,
    fit_predictor,
    job_of,
    memory_task,
    noise,
    permuted,
    scorer_queries,
    segment_task,
    units,
    values,
)

from schemas.base import Record
from schemas.results import CurvePoint
from schemas.training import GOAL_DROPOUT
from trajpilot_core.data.cross_fitting import twin_of
from trajpilot_core.metrics.epic_kitchens import ACTION_TOP1
from trajpilot_core.models.attentive_probe import AttentiveProbe
from trajpilot_core.training.dev_scores import floor_scores
from trajpilot_core.training.fit_event import ACTION_FIT, ActionTask
from trajpilot_core.training.fit_probe import TOKEN_FIT, ProbeTask, TokenTask
from trajpilot_core.training.jobs import put_task
from trajpilot_core.training.loop import seeded
from trajpilot_core.training.scorer import Queries
from trajpilot_core.training.scorer_fit import train_scorer

AHEAD = PREDICTOR.replace(twin_goal_dropout=GOAL_DROPOUT, anticipates=True)
FEW = LEARNING.replace(epochs=6)
"""Enough where labels show; `LEARNING` is enough to memorise."""
FEW_TOKEN = CFG.replace(
    train=CFG.train.replace(epochs=4, lr=5e-3, weight_decay=0.0, patience=None),
    predictor=CFG.predictor.replace(trajectory_dropout=0.0),
    rates=(2e-2,),
    decays=(0.0,),
    epochs=10,
)


class Curves(NamedTuple):
    """Share of right answers after each epoch."""

    train: list[float]
    dev: list[float]


def curves(curve: list[CurvePoint], quantity: str) -> Curves:
    return Curves(*(values(curve, split, quantity) for split in ("train", "dev")))


def action_task(n_fit: int, n_dev: int) -> ActionTask:
    """Clips whose actions show in what is seen and in head motion."""
    n, g = n_fit + n_dev, drawn()
    labels, bank = torch.randint(LABELS, (n,), generator=g), units(LABELS, EMBED)
    around, latents = torch.randn(n, 1, FEATURES, generator=g), units(n, 2, EMBED, seed=1)
    context = torch.randn(LABELS, 1, FEATURES, generator=g)[labels] + 0.3 * around
    latents = F.normalize(bank[labels][:, None] + 0.3 * latents, dim=-1)
    rows = torch.arange(n)
    return ActionTask(context.half(), latents, rows[:n_fit], rows[n_fit:], labels, bank)


def token_task(n_fit: int, n_dev: int) -> TokenTask:
    """Clips whose tokens tell nothing; the token that is added tells the action of each."""
    n, g = n_fit + n_dev, drawn()
    actions = torch.randint(LABELS, (n,), generator=g)
    classes = torch.arange(LABELS)
    columns = torch.stack([actions % 3, actions // 3, actions], dim=1)
    parts = {"verb": classes[:3].clone(), "noun": classes[:4].clone(), "action": classes}
    clips = ProbeTask(torch.randn(n, 3, 16, generator=g).half(), columns, torch.arange(n) >= n_fit, parts)
    token = units(LABELS, EMBED)[actions] + 0.1 * torch.randn(n, EMBED, generator=g)
    with seeded(0):
        begun = AttentiveProbe(clips.shape(FEW_TOKEN.tuned)).state_dict()
    return TokenTask(**vars(clips), token=token.half(), begun=begun)


def fit_action(task: ActionTask, folder: Path) -> Curves:
    put_task(folder, folder, task)
    return curves(ended(job_of(folder, "traj", FEW_TOKEN), ACTION_FIT)[1], "action")


def fit_token(task: TokenTask, folder: Path) -> Curves:
    """A probe that is given a token."""
    put_task(folder, folder, task)
    return curves(ended(job_of(folder, "oracle", FEW_TOKEN), TOKEN_FIT)[1], ACTION_TOP1.id)


@pytest.mark.parametrize("variant", [pytest.param("traj", marks=pytest.mark.campaign), twin_of("traj")])
def test_a_predictor_memorises_64_windows_that_teach_nothing_about_others(variant: str, tmp_path: Path) -> None:
    """Twins are shown and asked no goal, they memorise windows by their Starts."""
    longer = AHEAD.replace(train=LEARNING.replace(epochs=60))
    train, dev = curves(fit_predictor(memory_task(), variant, tmp_path, longer)[1], "M@1")
    assert train[0] < 0.3
    assert train[-1] > LEARNED
    assert dev[-1] < 0.3


def test_the_trajectory_encoder_memorises_64_segments(tmp_path: Path) -> None:
    train, dev = curves(fit_e_tau(segment_task(N, N, is_clear=False), tmp_path)[1], "R@1")
    assert train[-1] > LEARNED
    assert dev[-1] < 0.3


def scored(train: Queries, dev: Queries, folder: Path, config: Record = LEARNING) -> list[CurvePoint]:
    return train_scorer(collected(train, dev), SCORER.replace(train=config), None, 0, on_cpu(folder)).curve


def test_the_scorer_memorises_which_candidate_of_64_queries_is_right(tmp_path: Path) -> None:
    queries = scorer_queries(N, 1, is_clear=False)
    curve = scored(queries, queries, tmp_path)
    assert values(curve, "train", "fallback M@1")[-1] == 0.5
    assert values(curve, "train", "M@1")[-1] > LEARNED


def with_plans_of_others(queries: Queries, seed: int) -> Queries:
    """The same queries and truths, with the plans of another query's candidates, in another order."""
    n, k = queries.plans.shape[:2]
    order = torch.randperm(n * k, generator=drawn(seed))
    return replace(queries, plans=queries.plans.flatten(0, 1)[order].view_as(queries.plans))


def test_a_scorer_of_permuted_candidates_falls_to_a_candidate_at_random(tmp_path: Path) -> None:
    train, dev = scorer_queries(200, 1, is_clear=True), scorer_queries(200, 11, is_clear=True)
    clear = scored(train, dev, tmp_path / "a", FEW)
    shuffled = scored(with_plans_of_others(train, 1), with_plans_of_others(dev, 2), tmp_path / "b", FEW)
    at_random = float(dev.m1.mean())
    assert values(clear, "dev", "always open M@1")[-1] > 0.45
    assert values(shuffled, "dev", "always open M@1")[-1] <= at_random + noise(at_random, 200)


def commonest(labels: Tensor, fit: Tensor, dev: Tensor) -> float:
    """Share of dev that has the commonest label of what is fitted."""
    return float((labels[dev] == torch.bincount(labels[fit]).argmax()).double().mean())


def test_a_predictor_of_permuted_inputs_falls_to_the_majority(tmp_path: Path) -> None:
    task = clear_task()
    labels = [{h: task.labels[rows] for h, rows in part.items()} for part in (task.fit, task.dev)]
    floor = floor_scores(*labels, len(task.bank))["majority"]["M@1"]
    clear, shuffled = (
        curves(fit_predictor(of, "endpoint_traj", tmp_path / name, AHEAD.replace(train=FEW))[1], "M@1").dev
        for name, of in (("a", task), ("b", permuted(task)))
    )
    assert max(clear) > floor + 0.4
    assert shuffled[-1] <= floor + noise(1 / 12, 120)


def test_a_trajectory_encoder_of_permuted_motions_falls_to_the_majority(tmp_path: Path) -> None:
    task = segment_task(300, 200, is_clear=True)
    other = task | {"motions": task["motions"][torch.randperm(500, generator=drawn(3))]}
    clear, shuffled = (
        curves(fit_e_tau(of, tmp_path / name, E_TAU.replace(train=FEW))[1], "R@1").dev
        for name, of in (("a", task), ("b", other))
    )
    floor = commonest(task["labels"], task["fit"], task["dev"])
    assert max(clear) > floor + 0.4
    assert shuffled[-1] <= floor + noise(1 / 12, 200)


def test_a_predictor_of_actions_and_a_probe_with_permuted_inputs_fall_to_the_majority(tmp_path: Path) -> None:
    order = torch.randperm(440, generator=drawn(3))
    task, told = (of(240, 200) for of in (action_task, token_task))
    other = replace(task, context=task.context[order], latents=task.latents[order])
    actions = [fit_action(of, tmp_path / f"a{n}") for n, of in enumerate((task, other))]
    others = (told, replace(told, token=told.token[order]))
    probes = [fit_token(of, tmp_path / f"p{n}") for n, of in enumerate(others)]
    for (clear, shuffled), labels in ((actions, task.labels), (probes, told.columns[:, 2])):
        floor = commonest(labels, task.fit, task.dev)
        assert max(clear.dev) > floor + 0.4
        assert shuffled.dev[-1] <= floor + noise(1 / LABELS, 200)
