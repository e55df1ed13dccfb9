"""Controls of planning in latents: a planted rule is found, and nothing is found without it."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from latent_fixture import CFG, LABELS, fitted, made_up
from torch import Tensor

from schemas.latent import SearchConfig
from trajpilot_core.evaluation.latent_plans import LatentModels, LatentWindows, latent_windows
from trajpilot_core.evaluation.latent_scores import judge_energies, relative_spread
from trajpilot_core.models.latent import LatentHead, LatentPredictor, fit_controls, l1_between, targets_of
from trajpilot_core.training import fit_latent
from trajpilot_core.training.fit_latent import LatentTask

SEARCH = SearchConfig(samples=64, iterations=4, elites=8, variance=0.8)
HELPS = 0.05
"""Least gain, in the l1 of normalised latents, that counts as help."""
QUICK = {"epochs": 8, "batch": 128, "lr": 1e-2}


def head_on_looks(task: LatentTask) -> LatentHead:
    """A classifier of made-up latents, fitted in closed form on true ones."""
    head = LatentHead(task.shape())
    latents = targets_of(task.features[task.fit_rows], "pooled")[:, 0]
    ones = torch.nn.functional.one_hot(task.labels[task.fit_rows], LABELS).float()
    with torch.no_grad():
        head.out.weight.copy_(20 * torch.linalg.lstsq(latents, ones - 1 / LABELS).solution.T)
        head.out.bias.zero_()
    return head


def windows_of(task: LatentTask, planner: LatentPredictor, rows: Tensor) -> LatentWindows:
    """Windows of the task, planned by one seed of models."""
    controls = fit_controls(task.motions[task.fit_rows], SEARCH.variance)
    models = LatentModels(CFG.replace(search=SEARCH), 0, {"plan_trajectory": planner}, head_on_looks(task), controls)
    take = torch.arange(len(task.labels)) // 3
    data: Any = SimpleNamespace(features=task.features, motions=task.motions, labels=task.labels, segment_take=take)
    return latent_windows(models, data, rows)


def l1(task: Any, variant: Any) -> float:
    """The l1 on dev of a variant."""
    return fitted(task, variant, **QUICK)[1]


def test_motion_and_text_help_only_where_they_are_informative() -> None:
    """Motion without information, to none nor to text; text where looks do not name the label."""
    telling = made_up()
    assert l1(telling, "next_none") - l1(telling, "next_trajectory") > HELPS
    empty = made_up(moves=False)
    alone, text = l1(empty, "next_none"), l1(empty, "next_text")
    assert alone - l1(empty, "next_trajectory") < HELPS
    assert text - l1(empty, "next_both") < HELPS
    assert alone - text > HELPS
    nothing = made_up(looks=False, moves=False)
    assert l1(nothing, "next_none") - l1(nothing, "next_text") < HELPS


@torch.inference_mode()
def search_and_oracle(task: Any, planner: Any) -> tuple[float, float]:
    """Share of middle steps right, of CEM and of the plan under the true motion."""
    rows = task.dev[3][:60]
    windows, right = windows_of(task, planner, rows), task.labels[rows[:, 1]]
    found = windows.follow(windows.search(partial(windows.energy, name="last_mid")))
    own = windows.follow(windows.motions_of(rows))
    cem, oracle = (float((plan.ids[:, 1, 0] == right).float().mean()) for plan in (found, own))
    return cem, oracle


def test_the_search_succeeds_only_where_the_goal_looks_like_the_last_middle() -> None:
    straight, crooked = made_up(straight=1.0), made_up(straight=0.0)
    cem, oracle = search_and_oracle(straight, fitted(straight, "plan_trajectory", **QUICK)[0])
    assert oracle > 0.9
    assert cem > oracle - 0.1
    cem, oracle = search_and_oracle(crooked, fitted(crooked, "plan_trajectory", **QUICK)[0])
    assert oracle > 0.9
    assert cem < oracle - 0.1, "a goal that says nothing about the middle must mislead the search"


@torch.inference_mode()
def test_energies_are_those_of_all_windows_at_once_and_a_window_has_the_bits_that_it_has_alone() -> None:
    task = made_up(n=60)
    planner, motion = LatentPredictor(CFG, task.shape()).eval(), torch.randn(5, 7, 1, 96)
    windows = windows_of(task, planner, task.dev[3][:5])
    seen = [(keys[1:2], values[1:2]) for keys, values in windows.seen]
    alone = replace(windows, segments=windows.segments[1:2], goal=windows.goal[1:2], seen=seen)
    energy = windows.energy(motion, "last_mid")
    together = l1_between(windows.roll_out(motion)[:, :, -1], windows.goal[:, None])
    torch.testing.assert_close(energy, together, atol=1e-5, rtol=0)
    assert torch.equal(energy[1:2], alone.energy(motion[1:2], "last_mid"))
    assert torch.equal(windows.surprise(motion)[1:2], alone.surprise(motion[1:2]))
    others = replace(windows, seen=[(keys.roll(1, 0), values.roll(1, 0)) for keys, values in windows.seen])
    assert not torch.allclose(others.energy(motion, "last_mid"), energy, atol=1e-3), "planted: another window's context"


@torch.inference_mode()
def spread_of(task: Any, planner: Any, energy: str) -> tuple[int, dict[str, float]]:
    rows = task.dev[3][:60]
    windows = windows_of(task, planner, rows)
    several = torch.stack([rows.roll(k, 0) for k in range(8)], 1)
    energies = windows.energy(windows.motions_of(several), energy)
    return 3, {"goal_step": float(relative_spread(windows, energies).mean())}


def test_a_goal_that_the_predictor_sees_flattens_the_energy_and_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    task = made_up(straight=0.3)
    honest = fitted(task, "plan_trajectory", **QUICK)[0]
    assert [one.verdict for one in judge_energies([spread_of(task, honest, "goal_step")])] == ["holds"]
    with monkeypatch.context() as patch:  # the goal is a target where it is an input: it is copied
        patch.setattr(fit_latent, "goal_weight", lambda seen_B: torch.ones_like(seen_B, dtype=torch.float32))
        leaky = fitted(task, "plan_trajectory", 30, lr=6e-3)[0]
    told, seen = (spread_of(task, leaky, name) for name in ("goal_step", "goal_step_seen"))
    assert [one.verdict for one in judge_energies([seen])] == ["fails"]
    assert [one.verdict for one in judge_energies([told])] == ["holds"]
