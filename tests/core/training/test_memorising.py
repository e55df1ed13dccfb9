"""Every learned row memorises 64 windows, learns what shows, and falls to its floor where its inputs are permuted."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from planning_fixture import on_cpu
from trainings_fixture import (
    E_TAU,
    LEARNED,
    LEARNING,
    PREDICTOR,
    SCORER,
    N,
    clear_task,
    collected,
    drawn,
    fit_e_tau,
    fit_predictor,
    memory_task,
    noise,
    permuted,
    scorer_queries,
    segment_task,
    values,
)

from schemas.results import CurvePoint
from schemas.training import GOAL_DROPOUT, TrainConfig
from trajpilot_core.data.cross_fitting import twin_of
from trajpilot_core.training.dev_scores import floor_scores
from trajpilot_core.training.scorer import Queries
from trajpilot_core.training.scorer_fit import train_scorer

TWIN = twin_of("traj")
"""Stands for all: twins are shown and asked no goal, they memorise windows by their Starts."""
AHEAD = PREDICTOR.replace(twin_goal_dropout=GOAL_DROPOUT, anticipates=True)
FEW = LEARNING.replace(epochs=6)
"""Enough where labels show."""


def scored(train: Queries, dev: Queries, folder: Path, config: TrainConfig = LEARNING) -> list[CurvePoint]:
    return train_scorer(collected(train, dev), SCORER.replace(train=config), None, 0, on_cpu(folder)).curve


@pytest.mark.parametrize("variant", [*(pytest.param(v, marks=pytest.mark.campaign) for v in ("traj", "no_traj")), TWIN])
def test_a_predictor_memorises_64_windows_that_teach_nothing_about_others(variant: str, tmp_path: Path) -> None:
    longer = AHEAD.replace(train=LEARNING.replace(epochs=60))
    curve = fit_predictor(memory_task(), variant, tmp_path, longer)[1]
    train, dev = (values(curve, split, "M@1") for split in ("train", "dev"))
    assert train[0] < 0.3
    assert train[-1] > LEARNED
    assert dev[-1] < 0.3


def test_the_trajectory_encoder_memorises_64_segments(tmp_path: Path) -> None:
    curve = fit_e_tau(segment_task(N, N, is_clear=False), tmp_path)[1]
    assert values(curve, "train", "R@1")[-1] > LEARNED
    assert values(curve, "dev", "R@1")[-1] < 0.3


def test_the_scorer_memorises_which_candidate_of_64_queries_is_right(tmp_path: Path) -> None:
    queries = scorer_queries(N, 1, is_clear=False)
    curve = scored(queries, queries, tmp_path)
    assert values(curve, "train", "fallback M@1")[-1] == 0.5
    assert values(curve, "train", "M@1")[-1] > LEARNED


def test_a_predictor_of_permuted_inputs_falls_to_the_majority(tmp_path: Path) -> None:
    task = clear_task()
    labels = [{h: task.labels[rows] for h, rows in part.items()} for part in (task.fit, task.dev)]
    floor = floor_scores(*labels, len(task.bank))["majority"]["M@1"]
    clear, shuffled = (
        fit_predictor(of, "endpoint_traj", tmp_path / name, AHEAD.replace(train=FEW))[1]
        for name, of in (("a", task), ("b", permuted(task)))
    )
    assert max(values(clear, "dev", "M@1")) > floor + 0.4
    assert values(shuffled, "dev", "M@1")[-1] <= floor + noise(1 / 12, 120)


def test_a_trajectory_encoder_of_permuted_motions_falls_to_the_majority(tmp_path: Path) -> None:
    task = segment_task(300, 200, is_clear=True)
    order = torch.randperm(500, generator=drawn(3))
    dev = task["labels"][task["dev"]]
    floor = float((dev == torch.bincount(task["labels"][task["fit"]]).argmax()).double().mean())
    short = E_TAU.replace(train=FEW)
    clear = fit_e_tau(task, tmp_path / "a", short)[1]
    shuffled = fit_e_tau(task | {"motions": task["motions"][order]}, tmp_path / "b", short)[1]
    assert max(values(clear, "dev", "R@1")) > floor + 0.4
    assert values(shuffled, "dev", "R@1")[-1] <= floor + noise(1 / 12, 200)


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
