"""Exact inference on the simulated world: brute force agrees, and what is seen is what an interval overlaps."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from brute_force import SMALL, WORLDS, brute_force, glimpses, summed

from trajpilot_core.simworld.inference import map_decoding
from trajpilot_core.simworld.inference.bayes_optimal import decide
from trajpilot_core.simworld.inference.evidence import (
    VisibleSteps,
    evidence_of,
    graph_of,
    look_likelihood,
    marginal,
    messages_of,
    motion_likelihood,
)
from trajpilot_core.simworld.sample import sample_world


def test_marginals_and_both_joint_decisions_equal_brute_force() -> None:
    for world, take, seen in itertools.chain(*(glimpses(config, n=1) for config in WORLDS.values())):
        posterior, graph = brute_force(world, take, seen), graph_of(world)
        evidence = evidence_of(world, graph, [take])
        messages = messages_of(graph, evidence, seen)
        for step in range(seen.steps.shape[1]):
            exact = summed(posterior, (step,))
            found = marginal(evidence, seen, messages, step)[0]
            assert found == pytest.approx([exact[(label,)] for label in range(len(world.labels))], abs=1e-9)
        best = decide(graph, evidence, seen, has_goal=False)
        parts = (seen.targets[1:-1], seen.targets, seen.targets[1:])
        mid, full, after = (summed(posterior, steps) for steps in parts)
        whole, rest = (best.full, best.full_chance, full), (best.after, best.after_chance, after)
        for labels, chance, exact in ((best.mid, best.mid_chance, mid), whole, rest):
            assert chance[0] == pytest.approx(max(exact.values()), rel=1e-6)
            assert exact[tuple(labels[0].tolist())] == pytest.approx(max(exact.values()), rel=1e-6)
        assert best.is_proven.all()
        assert best.is_proven.shape == (1, 3)
        assert decide(graph, evidence, seen).after is None
        for h, step in enumerate(seen.targets):
            exact = sorted(summed(posterior, (step,)).values(), reverse=True)[:5]
            assert best.chance[0, h] == pytest.approx([*exact, 0.0, 0.0, 0.0, 0.0][:5], abs=1e-9)


def test_a_narrow_search_says_that_it_proved_nothing_and_a_wide_one_settles_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """With one prefix per layer the search is greedy: wherever it is wrong it must not claim a proof."""
    wrong = 0
    for world, take, seen in glimpses(SMALL.replace(intents=4), n=4):
        graph = graph_of(world)
        evidence = evidence_of(world, graph, [take])
        whole = decide(graph, evidence, seen)
        monkeypatch.setattr(map_decoding, "WIDTHS", (1,))
        narrow = decide(graph, evidence, seen)
        monkeypatch.setattr(map_decoding, "WIDTHS", (1, 2, 4096))
        widened = decide(graph, evidence, seen)
        monkeypatch.undo()
        assert whole.is_proven.all()
        assert widened.is_proven.all()
        assert widened.full_chance == pytest.approx(whole.full_chance)
        assert (narrow.full_chance <= whole.full_chance * (1 + 1e-9)).all()
        is_best = narrow.full_chance >= whole.full_chance * (1 - 1e-6)
        assert not (narrow.is_proven[:, 1] & ~is_best).any()
        wrong += int((~is_best).sum())
    assert wrong > 0, "the narrow search never erred: this test shows nothing"


def test_a_world_that_says_nothing_in_motion_gives_equal_decisions_with_and_without_it() -> None:
    world = sample_world(WORLDS["motion tells nothing"])
    graph = graph_of(world)
    evidence = evidence_of(world, graph, world.takes)
    look = np.array([[True, False, False, False, True]])
    without = decide(graph, evidence, VisibleSteps(np.arange(5)[None], look, look & False, (0, 1, 2, 3, 4)))
    with_motion = decide(graph, evidence, VisibleSteps(np.arange(5)[None], look, look | True, (0, 1, 2, 3, 4)))
    for one, other in zip(without, with_motion, strict=True):
        assert np.array_equal(one, other)


def test_the_likelihoods_know_the_labels_of_a_world_without_noise() -> None:
    world = sample_world(SMALL.replace(motion_noise=0.0, appearance_noise=0.0, place_fidelity=1.0, segments=8))
    take = world.takes[0]
    labels = [segment.label for segment in take.segments]
    assert look_likelihood(world, take).argmax(axis=1).tolist() == labels
    best = motion_likelihood(world, take)[:, :, take.intent]
    assert best[np.arange(len(labels)), labels] == pytest.approx(0.0, abs=1e-6)


def test_the_ceiling_does_not_depend_on_the_numbers_of_alternatives() -> None:
    world = sample_world(SMALL)
    swapped = replace(
        world,
        preferred=1 - world.preferred,
        labels=tuple(world.labels[i ^ 1] for i in range(len(world.labels))),
        motion_labels=world.motion_labels[np.arange(len(world.labels)) ^ 1],
        look_means=world.look_means[np.arange(len(world.labels)) ^ 1],
    )
    seen = VisibleSteps(np.arange(5)[None], *(np.random.default_rng(0).random((2, 1, 5)) < 0.5), (0, 1, 2, 3, 4))
    one, other = (decide(graph_of(w), evidence_of(w, graph_of(w), [world.takes[0]]), seen) for w in (world, swapped))
    assert np.array_equal(one.ranking, other.ranking ^ 1)
    assert np.array_equal(one.full, other.full ^ 1)
    assert np.array_equal(one.mid, other.mid ^ 1)
    assert one.full_chance == pytest.approx(other.full_chance)
