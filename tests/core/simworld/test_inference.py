"""Exact inference on the simulated world, over labels and over classes of labels: brute force agrees."""

import itertools
import math
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

from schemas.world import WorldConfig, tiny_world
from trajpilot_core.simworld.inference import map_decoding
from trajpilot_core.simworld.inference.bayes_optimal import Decisions, class_codes, decide
from trajpilot_core.simworld.inference.evidence import (
    Graph,
    StepEvidence,
    VisibleSteps,
    evidence_of,
    graph_of,
    leave,
    marginal,
    messages_of,
)
from trajpilot_core.simworld.inference.map_decoding import DecodingProblem, problem_of
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import TakeTruth, World

SMALL = tiny_world().replace(
    positions=3,
    intents=3,
    places=3,
    segments=6,
    kappa=1.0,
    style=1.0,
    task_appearance=1.0,
    position_appearance=1.0,
    label_appearance=0.7,
    broken="none",
    train_takes=1,
    test_takes=1,
    advance=(0.1, 0.5, 0.25, 0.15),
)
"""Small enough for brute force, and confusing: nothing is told apart for sure. Advancing by 3 of 3 is to stay."""
WORLDS: dict[str, WorldConfig] = {
    "plain": SMALL,
    "always the preferred alternative": SMALL.replace(rho=1.0),
    "motion without labels": SMALL.replace(kappa=0.0),
    "motion without styles": SMALL.replace(style=0.0),
    "motion tells nothing": SMALL.replace(kappa=0.0, style=0.0),
    "no preference": SMALL.replace(rho=0.0),
    "places are sure": SMALL.replace(place_fidelity=1.0),
    "no noise in motion": SMALL.replace(motion_noise=0.0),
}
SHAPES = ((5, (1, 2, 3)), (5, (0, 2, 3, 4)), (4, (0, 1, 2)), (5, (0, 3, 4)), (4, (0, 1, 1, 3)))
"""Steps of the chain, and which are the window's own: steps outside it, steps that the tables lack, one twice."""


def glimpses(config: WorldConfig, n: int = 3) -> Iterator[tuple[World, TakeTruth, VisibleSteps]]:
    """Yield worlds with one take each and a random part of its steps that is seen."""
    for case, (n_steps, targets) in itertools.product(range(n), SHAPES):
        world = sample_world(config.replace(seed=config.seed + case))
        rng = np.random.default_rng([case, n_steps, len(targets)])
        look, motion = rng.random((2, 1, n_steps)) < rng.uniform(0.2, 0.9)
        yield world, world.takes[0], VisibleSteps(np.arange(n_steps)[None], look, motion, targets)


def log_normal(value: np.ndarray, mean: np.ndarray, noise: float) -> float:
    return float(-0.5 * ((value - mean) ** 2).sum() / max(noise, 1e-6) ** 2)


def seen_of_step(world: World, take: TakeTruth, seen: VisibleSteps, step: int, label: int, intent: int) -> float:
    """Log-likelihood of what is seen of one step, straight from the description of the world."""
    config, segment, total = world.config, take.segments[step], 0.0
    if seen.look[0, step]:
        chance = (1 - config.place_fidelity) / config.places
        chance += config.place_fidelity * (segment.place == world.labels[label].place)
        total += log_normal(segment.look, world.look_means[label], config.appearance_noise)
        total += math.log(chance) if chance > 0 else -math.inf
    if seen.motion[0, step]:
        operator = world.captures[take.capture].operator
        mean = config.kappa * world.motion_labels[label] + config.style * world.motion_styles[operator, intent]
        total += log_normal(segment.motion, mean, config.motion_noise)
    return total


def sequences(config: WorldConfig, n_steps: int) -> np.ndarray:
    """Return every sequence of labels that stays in one task, (N, steps)."""
    each = config.positions * config.alternatives
    one = np.array(list(itertools.product(range(each), repeat=n_steps)))
    return np.concatenate([task * each + one for task in range(config.tasks)])


def brute_force(world: World, take: TakeTruth, seen: VisibleSteps) -> tuple[np.ndarray, np.ndarray]:
    """Return every label sequence of all steps, (N, steps), and its posterior, (N,): the sum over intents."""
    config, n_steps = world.config, seen.steps.shape[1]
    advance = np.zeros(config.positions)
    for by, probability in enumerate(config.advance):
        advance[by % config.positions] += probability
    labels = sequences(config, n_steps)
    task, place = np.divmod(labels // config.alternatives, config.positions)
    weight = np.zeros((config.intents, len(labels)))
    for intent in range(config.intents):
        liked = world.preferred[intent, task, place] == labels % config.alternatives
        prior = np.prod(config.rho * liked + (1 - config.rho) / config.alternatives, axis=1)
        prior = prior * np.prod(advance[np.diff(place, axis=1) % config.positions], axis=1)
        said = [
            [seen_of_step(world, take, seen, step, label, intent) for label in range(len(world.labels))]
            for step in range(n_steps)
        ]
        with np.errstate(divide="ignore"):
            weight[intent] = np.log(prior) + sum(np.array(said[step])[labels[:, step]] for step in range(n_steps))
    weight = np.exp(weight - weight.max()).sum(axis=0)
    return labels, weight / weight.sum()


def summed(found: tuple[np.ndarray, np.ndarray], steps: tuple[int, ...]) -> dict[tuple[int, ...], float]:
    """Posterior of the labels at `steps`."""
    labels, probability = found
    shape = (int(labels.max()) + 1,) * len(steps)
    sums = np.bincount(np.ravel_multi_index(tuple(labels[:, steps].T), shape), probability)
    (kept,) = sums.nonzero()
    places = np.stack(np.unravel_index(kept, shape), axis=1)
    return defaultdict(float, zip(map(tuple, places.tolist()), sums[kept].tolist(), strict=True))


LABELS = SMALL.tasks * SMALL.positions * SMALL.alternatives
Exact = dict[tuple[int, ...], float]


def coded(classes: np.ndarray) -> np.ndarray:
    """Return the classes by number, as the tables' names would give them."""
    return class_codes([f"class {one}" for one in classes.tolist()], {})


ALONE = np.arange(LABELS)
"""Each label is a class of its own."""
MAPS = {
    "alternatives of a node": coded(np.arange(LABELS) // SMALL.alternatives),
    "positions of all tasks": coded(np.arange(LABELS) // SMALL.alternatives % SMALL.positions),
    "labels far apart": coded(np.random.default_rng(3).integers(0, 4, LABELS)),
    "one crowded class": coded(np.minimum(np.arange(LABELS), 3)),
    "two nodes alone": coded(np.where(np.arange(LABELS) == 7, 2, np.arange(LABELS))),
}
Case = tuple[Graph, StepEvidence, VisibleSteps, tuple[np.ndarray, np.ndarray]]


def cases(name: str, n: int = 1) -> Iterator[Case]:
    """Yield glimpses of a world with the posterior of all their label sequences."""
    for world, take, seen in glimpses(WORLDS[name], n=n):
        graph = graph_of(world)
        yield graph, evidence_of(world, graph, [take]), seen, brute_force(world, take, seen)


def summed_classes(found: tuple[np.ndarray, np.ndarray], steps: tuple[int, ...], classes: np.ndarray) -> Exact:
    """Posterior of the classes at `steps`."""
    exact: Exact = defaultdict(float)
    for labels, probability in summed(found, steps).items():
        exact[tuple(classes[list(labels)].tolist())] += probability
    return exact


def check(best: Decisions, seen: VisibleSteps, found: tuple[np.ndarray, np.ndarray], classes: np.ndarray) -> None:
    """Hold every decision on one window against the enumerated posterior."""
    parts = (seen.targets[1:-1], seen.targets, seen.targets[1:])
    mid, full, after = (summed_classes(found, steps, classes) for steps in parts)
    whole, rest = (best.full, best.full_chance, full), (best.after, best.after_chance, after)
    for sequence, chance, exact in ((best.mid, best.mid_chance, mid), whole, rest):
        assert chance[0] == pytest.approx(max(exact.values()), rel=1e-6)
        assert exact[tuple(sequence[0].tolist())] == pytest.approx(max(exact.values()), rel=1e-6)
    for h, step in enumerate(seen.targets):
        exact = summed_classes(found, (step,), classes)
        ranked = sorted(exact.values(), reverse=True)[:5]
        assert best.chance[0, h] == pytest.approx([*ranked, 0.0, 0.0, 0.0, 0.0][:5], abs=1e-9)
        for label, chance in zip(best.ranking[0, h].tolist(), best.chance[0, h].tolist(), strict=True):
            assert label < 0 or exact[(label,)] == pytest.approx(chance, abs=1e-9)


def test_classes_are_numbered_by_their_first_label() -> None:
    assert class_codes(["a", "b", "a", "c"], {}).tolist() == [0, 1, 0, 2]
    assert class_codes(["a", "b", "c", "d"], {"c": "a", "a": "a"}).tolist() == [0, 1, 0, 2]
    assert class_codes(["a", "b"], {"a": "b", "b": "a"}).tolist() == [0, 1]


def largest_continuations(problem: DecodingProblem, m: int) -> np.ndarray:
    """Return (T, P, G): the most that one sequence of classes after decoded step `m` has, from every single state."""
    shape = problem.start.shape[1:]
    states = np.eye(math.prod(shape)).reshape(-1, *shape)
    best = np.zeros(len(states))
    later = range(m + 1, len(problem.rest))
    for sequence in itertools.product(range(int(problem.classes.max()) + 1), repeat=len(later)):
        message = states
        for k, chosen in zip(later, sequence, strict=True):
            is_chosen = (problem.classes == chosen)[..., None]
            of_class = (problem.weight(np.array([0]), k)[0] * is_chosen).sum(axis=2)
            message = leave(message, problem.moves[k - 1]) * of_class
        best = np.maximum(best, (message * problem.rest[-1][0]).sum(axis=(1, 2, 3)))
    return best.reshape(shape)


def test_the_bound_holds_from_every_state_and_that_of_single_labels_does_not() -> None:
    """The planted fault: the largest label in place of the largest class leaves better continuations out."""
    broken = 0
    for graph, evidence, seen, _ in itertools.islice(cases("plain"), 2):
        given = graph, evidence, seen, messages_of(graph, evidence, seen), list(seen.targets)
        of_labels = problem_of(*given, ALONE)
        for name in ("alternatives of a node", "labels far apart"):
            problem = problem_of(*given, MAPS[name])
            for m in range(len(seen.targets) - 1):
                exact = largest_continuations(problem, m)
                assert (problem.rest[m][0] >= exact * (1 - 1e-9)).all()
                broken += int((of_labels.rest[m][0] < exact * (1 - 1e-6)).any())
    assert broken > 0


@pytest.mark.parametrize("classes", [ALONE, MAPS["labels far apart"]], ids=["labels", "classes"])
def test_windows_are_decided_side_by_side_and_in_parts_as_one_by_one(
    monkeypatch: pytest.MonkeyPatch, classes: np.ndarray
) -> None:
    world = sample_world(SMALL)
    graph = graph_of(world)
    evidence = evidence_of(world, graph, world.takes)
    rng = np.random.default_rng(2)
    steps = rng.integers(0, 4, (12, 1)) + np.arange(5)
    seen = VisibleSteps(np.where(steps < 6, steps, -1), *(rng.random((2, 12, 5)) < 0.4), (1, 2, 3))
    together = decide(graph, evidence, seen, classes)
    monkeypatch.setattr(map_decoding, "CELLS", 1)
    in_parts = decide(graph, evidence, seen, classes)
    for i in range(12):
        one = VisibleSteps(seen.steps[[i]], seen.look[[i]], seen.motion[[i]], seen.targets)
        alone = decide(graph, evidence, one, classes)
        for other in (together, in_parts):
            assert np.array_equal(alone.full[0], other.full[i])
            assert np.array_equal(alone.mid[0], other.mid[i])
            for name in ("full_chance", "mid_chance", "chance"):
                assert getattr(alone, name)[0] == pytest.approx(getattr(other, name)[i])


def test_marginals_and_both_joint_decisions_equal_brute_force() -> None:
    for world, take, seen in itertools.chain(*(glimpses(config, n=1) for config in WORLDS.values())):
        posterior, graph = brute_force(world, take, seen), graph_of(world)
        evidence = evidence_of(world, graph, [take])
        messages = messages_of(graph, evidence, seen)
        for step in range(seen.steps.shape[1]):
            exact = summed(posterior, (step,))
            found = marginal(evidence, seen, messages, step)[0]
            assert found == pytest.approx([exact[(label,)] for label in range(len(world.labels))], abs=1e-9)
        for classes in (ALONE, *MAPS.values()):
            best = decide(graph, evidence, seen, classes, has_goal=False)
            check(best, seen, posterior, classes)
            assert best.is_proven.all()
            assert best.is_proven.shape == (1, 3)
        assert decide(graph, evidence, seen, ALONE).after is None


def test_a_narrow_search_never_claims_a_proof_where_it_is_wrong_and_a_wide_one_settles_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With one prefix per layer the search is greedy."""
    wrong = {"labels": 0, "classes": 0}
    for world, take, seen in glimpses(SMALL.replace(intents=4), n=4):
        graph = graph_of(world)
        evidence = evidence_of(world, graph, [take])
        for classes in (ALONE, *MAPS.values()):
            whole = decide(graph, evidence, seen, classes)
            monkeypatch.setattr(map_decoding, "WIDTHS", (1,))
            narrow = decide(graph, evidence, seen, classes)
            monkeypatch.setattr(map_decoding, "WIDTHS", (1, 2, 4096))
            widened = decide(graph, evidence, seen, classes)
            monkeypatch.undo()
            assert whole.is_proven.all()
            assert widened.is_proven.all()
            assert widened.full_chance == pytest.approx(whole.full_chance)
            assert (narrow.full_chance <= whole.full_chance * (1 + 1e-9)).all()
            is_best = narrow.full_chance >= whole.full_chance * (1 - 1e-6)
            assert not (narrow.is_proven[:, 1] & ~is_best).any()
            wrong["labels" if classes is ALONE else "classes"] += int((~is_best).sum())
    assert min(wrong.values()) > 0, "the narrow search never erred: this test shows nothing"
