"""Probes, permutation tests and exact beliefs: what the leak checks are made of."""

import itertools

import numpy as np
import pytest
from leaks_fixture import CHECKS, WORLD

from schemas.checks import LeakConfig
from trajpilot_core.arrays import Array
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import SegmentTruth, World
from trajpilot_core.studies.claims.leaks import probes
from trajpilot_core.studies.claims.leaks.label_posterior import Shown, joint_beliefs

FEW = LeakConfig(permutations=199)


def test_a_probe_learns_what_is_there_and_nothing_else() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(5, size=600)
    signal, noise = np.eye(5)[labels] + 0.3 * rng.normal(size=(600, 5)), rng.normal(size=(600, 5))
    for inputs, low, high in ((signal, 0.9, 1.0), (noise, 0.1, 0.3)):
        answers = probes.probe(inputs[:400], labels[:400], inputs[400:], 5, CHECKS)
        assert low <= (answers.argmax(axis=1) == labels[400:]).mean() <= high
        assert np.exp(answers).sum(axis=1) == pytest.approx(np.ones(200))


def test_a_probe_leaves_constant_inputs_out() -> None:
    fit, score = probes.standardised(np.array([[1.0, 7.0], [3.0, 7.0]]), np.array([[2.0, 9.0]]))
    assert fit.tolist() == [[-1.0], [1.0]]
    assert score.tolist() == [[0.0]]


def test_two_tables_are_weighed_by_what_they_tell() -> None:
    rng = np.random.default_rng(1)
    labels = rng.integers(4, size=2000)
    clear, idle = (np.eye(4)[labels] * 3 + rng.normal(size=(2000, 4)), rng.normal(size=(2000, 4)))
    first, second = probes.weighted_sum(clear, idle, labels, CHECKS)
    assert first > 1.0
    assert abs(second) < 0.2


def test_the_standard_error_counts_takes_and_not_rows() -> None:
    rng = np.random.default_rng(2)
    takes = np.repeat(np.arange(40), 10)
    of_take = rng.normal(size=40)
    found = probes.cluster_mean(of_take[takes], takes)
    assert found.n_takes == 40
    assert found.standard_error == pytest.approx(of_take.std(ddof=1) / np.sqrt(40))
    assert found.mean == pytest.approx(of_take.mean())


def test_unrelated_takes_seldom_look_related_and_related_ones_do() -> None:
    rng = np.random.default_rng(3)
    p_values = [probes.association_p(rng.normal(size=(60, 8)), rng.normal(size=(60, 3)), FEW) for _ in range(40)]
    assert 0.25 < np.mean(p_values) < 0.75
    assert np.mean(np.array(p_values) <= 0.05) <= 0.15
    codes = rng.integers(3, size=60)
    inputs = rng.normal(size=(60, 8))
    inputs[:, 5] += codes
    assert probes.association_p(inputs, probes.one_hot(codes, 3), FEW) == pytest.approx(1 / 200)


def test_rows_that_depend_on_each_other_within_a_take_do_not_look_like_a_leak() -> None:
    rng = np.random.default_rng(4)
    p_values, naive = [], []
    for _ in range(30):
        takes = np.repeat(np.arange(30), 8)
        labels, level = np.repeat(rng.integers(4, size=30), 8), np.repeat(rng.normal(size=30), 8)
        values = (level + 0.1 * rng.normal(size=240))[:, None]
        p_values.append(probes.grouped_p(values, labels, takes, FEW))
        naive.append(probes.grouped_p(values, labels, np.arange(240), FEW))
    assert np.mean(np.array(p_values) <= 0.05) <= 0.2
    assert np.mean(np.array(naive) <= 0.05) > 0.7


def test_rows_that_follow_their_label_are_found() -> None:
    rng = np.random.default_rng(5)
    takes = np.repeat(np.arange(40), 6)
    labels = rng.integers(3, size=240)
    values = rng.normal(size=(240, 2))
    values[:, 1] += labels
    assert probes.grouped_p(values, labels, takes, FEW) == pytest.approx(1 / 200)
    assert probes.grouped_p(values[:, :1], labels, takes, FEW) > 0.01


def test_constant_numbers_are_no_leak() -> None:
    takes, labels = np.repeat(np.arange(10), 4), np.arange(40) % 3
    assert probes.grouped_p(np.ones((40, 2)), labels, takes, FEW) == 1.0
    assert probes.association_p(np.ones((10, 3)), np.eye(10), FEW) == 1.0


def test_blocks_are_the_takes_by_their_length() -> None:
    blocks = probes.equal_blocks(np.array([4, 4, 7, 7, 7, 9, 9]))
    assert [block.tolist() for block in blocks] == [[[0, 1], [5, 6]], [[2, 3, 4]]]


Glimpse = tuple[SegmentTruth, bool, bool]
"""A step; whether its look and place, and whether its motion are seen."""


def by_enumeration(world: World, seen: list[Glimpse], at: int, operator: int) -> Array:
    """Sum over every task, intent, path of positions and choice of alternatives."""
    config = world.config
    total = np.zeros((len(world.labels), config.intents))
    for path in itertools.product(range(config.positions), repeat=len(seen)):
        moves = [(b - a) % config.positions for a, b in itertools.pairwise(path)]
        weight = np.prod([config.advance[m] if m < len(config.advance) else 0.0 for m in moves])
        for task, intent in itertools.product(range(config.tasks), range(config.intents)):
            for choice in itertools.product(range(config.alternatives), repeat=len(seen)):
                places = [task * config.positions + p for p in path]
                labels = [place * config.alternatives + a for place, a in zip(places, choice, strict=True)]
                chances = [chance(world, *pair, intent, operator) for pair in zip(seen, labels, strict=True)]
                total[labels[at], intent] += weight * np.prod(chances)
    return total / total.sum()


def chance(world: World, glimpse: Glimpse, label: int, intent: int, operator: int) -> float:
    """Chance of a label under an intent, times the density of what is seen of the step."""
    config, known = world.config, world.labels[label]
    step, look, motion = glimpse
    liked = world.preferred[intent, known.task, known.position] == known.alternative
    found = config.rho * liked + (1 - config.rho) / config.alternatives
    if look:
        found *= np.exp(-0.5 * ((step.look - world.look_means[label]) ** 2).sum())
        found *= config.place_fidelity * (known.place == step.place) + (1 - config.place_fidelity) / config.places
    if motion:
        style = config.style * world.motion_styles[operator, intent]
        found *= np.exp(-0.5 * ((step.motion - config.kappa * world.motion_labels[label] - style) ** 2).sum())
    return float(found)


def test_beliefs_are_those_of_a_full_enumeration() -> None:
    world = sample_world(WORLD.replace(positions=4, train_takes=3, test_takes=1))
    take, others = world.takes[1], world.takes[:3]
    operator = world.captures[take.capture].operator
    at = np.array([2, 2, 0])
    look, motion = np.array([[2, 3], [2, 2], [0, 0]]), np.array([[1, 2], [2, 2], [0, 1]])
    found = joint_beliefs(world, others, np.array([1, 1, 1]), at, Shown(look, motion))
    steps = take.segments
    wanted = [
        by_enumeration(world, [(steps[1], False, True), (steps[2], True, True), (steps[3], True, False)], 1, operator),
        by_enumeration(world, [(steps[2], True, True)], 0, operator),
        by_enumeration(world, [(steps[0], True, True), (steps[1], False, True)], 0, operator),
    ]
    assert found == pytest.approx(np.stack(wanted), abs=1e-9)
    nothing = joint_beliefs(world, others, np.array([0]), np.array([0]), Shown(None, None))
    assert nothing[0].reshape(8, -1).sum(axis=1) == pytest.approx(np.full(8, 1 / 8))
