"""The search of head motion: a known optimum is found, and windows do not depend on each other."""

import torch
from torch import Tensor
from torch.testing import assert_close

from schemas.latent import SearchConfig
from trajpilot_core.models.latent import cross_entropy_search, fit_controls, noise_of

CFG = SearchConfig(samples=256, iterations=12, elites=26)
MIDS, DIRECTIONS = 2, 3


def linear_gaussian(n: int = 8) -> tuple[Tensor, Tensor, Tensor]:
    """Map, goals and optima of a world whose last latent is linear in the controls, these normal a priori.

    The energy is the squared distance to the goal plus the squared controls, whose least point is that of ridge
    regression.
    """
    generator = torch.Generator().manual_seed(3)
    size = MIDS * DIRECTIONS
    map_ZC = torch.randn(6, size, generator=generator)
    goals = torch.randn(n, 6, generator=generator)
    best = torch.linalg.solve(map_ZC.T @ map_ZC + 0.1 * torch.eye(size), map_ZC.T @ goals.T).T
    return map_ZC, goals, best.view(n, MIDS, DIRECTIONS)


def energy_of(map_ZC: Tensor, goals: Tensor, sign: float = 1.0):
    def energy(controls_BSMP: Tensor) -> Tensor:
        flat = controls_BSMP.flatten(2)
        return sign * ((flat @ map_ZC.T - goals[:, None]).square().sum(-1) + 0.1 * flat.square().sum(-1))

    return energy


def test_the_optimum_of_a_linear_gaussian_world_is_found() -> None:
    map_ZC, goals, optimum = linear_gaussian()
    noise = noise_of(CFG, MIDS, DIRECTIONS, 0, "cpu")
    energy = energy_of(map_ZC, goals)
    least = energy(optimum[:, None])[:, 0]
    found = cross_entropy_search(energy, len(goals), noise, CFG)
    away = cross_entropy_search(energy_of(map_ZC, goals, -1.0), len(goals), noise, CFG)
    reached, fled = (energy(controls[:, None])[:, 0] for controls in (found, away))
    assert bool((reached >= least - 1e-4).all())
    start = energy(torch.zeros(len(goals), 1, MIDS, DIRECTIONS))[:, 0]
    assert bool((reached - least < 0.1 * (start - least)).all())
    assert not bool((fled - least < 0.1 * (start - least)).any()), "a search that climbs must fail this test"


def test_a_window_is_searched_as_it_would_be_alone() -> None:
    map_ZC, goals, _ = linear_gaussian()
    noise = noise_of(CFG, MIDS, DIRECTIONS, 0, "cpu")
    together = cross_entropy_search(energy_of(map_ZC, goals), len(goals), noise, CFG)
    alone = cross_entropy_search(energy_of(map_ZC, goals[5:6]), 1, noise, CFG)
    assert_close(together[5:6], alone, atol=1e-3, rtol=1e-3)


def test_controls_are_white_and_keep_the_variance_that_is_asked_for() -> None:
    generator = torch.Generator().manual_seed(0)
    few = torch.randn(400, 5, generator=generator) * torch.tensor([9.0, 5.0, 2.0, 0.2, 0.1])
    motions = (few @ torch.randn(5, 96, generator=generator)).view(400, 16, 6) * 0.01
    controls = fit_controls(motions, 0.95)
    assert 1 <= len(controls.directions) <= 3
    standard = controls.standardised(motions)
    white = standard @ torch.linalg.pinv(controls.directions)
    assert_close(white.T @ white / len(white), torch.eye(len(controls.directions)), atol=1e-2, rtol=1e-2)
    kept = controls.motions(white).square().sum() / standard.square().sum()
    assert 0.95 <= float(kept) <= 1.0
    assert len(fit_controls(motions, 1.0).directions) >= 5
