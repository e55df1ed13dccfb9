"""Exact inference on the world's own generative model: the evidence of latent looks and motions about the labels.

A take has one task and one intent (both uniform; neither is known), an operator (known), and a position that starts
anywhere and advances round the procedure. So every pair of task and intent is a chain of positions of its own, whose
alternatives are independent given the position: forward and backward messages over positions are exact.

Axes: N steps, T tasks, P positions, A alternatives, G intents, W windows, S steps of a window's chain, H positions of
the window. Source: docs/decisions/ceiling.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.simworld.world.truth import TakeTruth, World

NOISE_FLOOR = 1e-6
"""A world without noise is read as one with this little: the limit, without dividing by zero."""
BEST = 5
"""Labels of a ranking."""
DIGITS = 12
"""Probabilities are ranked by this many."""


class Move(NamedTuple):
    """Advance by `by` positions, between two steps of the chain."""

    by: int
    weight: Array
    """Broadcasts against (W, T, P, G): the probability, times the evidence of steps in between. P is the position
    before the move."""


@dataclass(frozen=True)
class Graph:
    """What is known of any take before anything is seen."""

    prior: Array
    """(T, P, A, G) probability of the alternative at a position, given the intent."""
    moves: tuple[Move, ...]
    """From one step to the next."""


@dataclass(frozen=True)
class StepEvidence:
    """The evidence of the steps of some takes, by what is seen of them: nothing, look, motion, both (first axis).

    Weights are likelihood times prior of the alternative, scaled so that the largest of a step is 1. The last of the
    N + 1 steps is one of which nothing can be seen.
    """

    weight: Array
    """(4, N + 1, T, P, A, G)."""
    total: Array
    """(4, N + 1, T, P, G): summed over alternatives."""


@dataclass(frozen=True)
class VisibleSteps:
    """Which steps windows of one shape cover, and what is seen of each."""

    steps: Codes
    """(W, S) rows of the evidence, consecutive steps of a take; -1 where the take has none."""
    look: Mask
    """(W, S): the step's look and the place of its object are seen."""
    motion: Mask
    """(W, S): its head motion is seen."""
    targets: tuple[int, ...]
    """H columns of S, rising (a column may occur twice): the steps of the window itself."""

    @property
    def kind(self) -> Codes:
        """Return the first axis of the evidence for every step, shape (W, S)."""
        return self.look + 2 * self.motion.astype(np.int64)


@dataclass(frozen=True)
class Messages:
    """Forward and backward messages of windows, each scaled to sum 1 over its last three axes."""

    forward: tuple[Array, ...]
    """S arrays (W, T, P, G): the evidence of earlier steps about a step's position."""
    backward: tuple[Array, ...]
    """S arrays (W, T, P, G): the evidence of later steps."""


def graph_of(world: World) -> Graph:
    """Return the procedure graph of a world."""
    config = world.config
    alternatives = np.arange(config.alternatives)
    preferred = np.moveaxis(world.preferred, 0, -1)[:, :, None, :] == alternatives[None, None, :, None]
    prior = config.rho * preferred + (1 - config.rho) / config.alternatives
    advance: dict[int, float] = {}
    for by, probability in enumerate(config.advance):
        advance[by % config.positions] = advance.get(by % config.positions, 0.0) + probability
    moves = tuple(Move(by, np.full((1, 1, 1, 1), p / sum(config.advance))) for by, p in advance.items() if p > 0)
    return Graph(prior, moves)


def evidence_of(world: World, graph: Graph, takes: Sequence[TakeTruth]) -> StepEvidence:
    """Weigh every label for every step of `takes`, one take after the other."""
    shape = (-1, *graph.prior.shape)
    look = _at_most_one(np.concatenate([look_likelihood(world, take) for take in takes]).reshape(*shape[:-1], 1))
    motion = _at_most_one(np.concatenate([motion_likelihood(world, take) for take in takes]).reshape(shape))
    nothing = np.zeros((1, *graph.prior.shape))
    with np.errstate(divide="ignore"):
        prior = np.log(graph.prior)
    kinds = [np.broadcast_to(prior, motion.shape), prior + look, prior + motion, prior + look + motion]
    weight = np.stack([np.concatenate([kind, nothing + prior]) for kind in kinds])
    weight = np.exp(weight - weight.max(axis=(2, 3, 4, 5), keepdims=True))
    return StepEvidence(weight, weight.sum(axis=4))


def _at_most_one(likelihood: Array) -> Array:
    """Shift (N, T, P, A, G) log-likelihoods to at most 0 per step: what is uninformative then changes no digit."""
    return np.asarray(likelihood - likelihood.max(axis=(1, 2, 3, 4), keepdims=True))


def look_likelihood(world: World, take: TakeTruth) -> Array:
    """Return (N, V) log-likelihoods of the latent look and object place of every step, up to a constant per step."""
    config = world.config
    looks = np.stack([segment.look for segment in take.segments])
    far = ((looks[:, None] - world.look_means) ** 2).sum(axis=-1)
    noise = max(config.appearance_noise, NOISE_FLOOR)
    usual = np.array([label.place for label in world.labels])
    stands = np.array([segment.place for segment in take.segments])[:, None] == usual
    by_chance = (1 - config.place_fidelity) / config.places
    with np.errstate(divide="ignore"):
        return np.asarray(-0.5 * far / noise**2 + np.log(config.place_fidelity * stands + by_chance))


def motion_likelihood(world: World, take: TakeTruth) -> Array:
    """Return (N, V, G) log-likelihoods of the latent head motion of every step, up to a constant per step."""
    config = world.config
    styles = config.style * world.motion_styles[world.captures[take.capture].operator]
    means = config.kappa * world.motion_labels[:, None] + styles
    motions = np.stack([segment.motion for segment in take.segments])
    far = ((motions[:, None, None] - means) ** 2).sum(axis=-1)
    return np.asarray(-0.5 * far / max(config.motion_noise, NOISE_FLOOR) ** 2)


def leave(message: Array, moves: Sequence[Move]) -> Array:
    """Carry a forward message (W, T, P, G) to the next step."""
    return np.asarray(sum(np.roll(message * move.weight, move.by, axis=2) for move in moves))


def arrive(message: Array, moves: Sequence[Move]) -> Array:
    """Carry a backward message (W, T, P, G) to the step before."""
    return np.asarray(sum(move.weight * np.roll(message, -move.by, axis=2) for move in moves))


def scaled(message: Array) -> Array:
    """Scale (W, T, P, G) messages to sum 1."""
    return np.asarray(message / message.sum(axis=(1, 2, 3), keepdims=True))


def messages_of(graph: Graph, evidence: StepEvidence, seen: VisibleSteps) -> Messages:
    """Run the chain of every window forward and backward."""
    tasks, positions, _, intents = graph.prior.shape
    flat = np.full((len(seen.steps), tasks, positions, intents), 1.0 / (tasks * positions * intents))
    forward, backward, n = [flat], [flat], seen.steps.shape[1]
    for step in range(n - 1):
        said = evidence.total[seen.kind[:, step], seen.steps[:, step]]
        forward.append(scaled(leave(forward[-1] * said, graph.moves)))
    for step in range(n - 1, 0, -1):
        said = evidence.total[seen.kind[:, step], seen.steps[:, step]]
        backward.append(scaled(arrive(backward[-1] * said, graph.moves)))
    return Messages(tuple(forward), tuple(reversed(backward)))


def marginal(evidence: StepEvidence, seen: VisibleSteps, messages: Messages, step: int) -> Array:
    """Return (W, V): the probability of every label at column `step` of the windows, given all that is seen."""
    around = messages.forward[step] * messages.backward[step]
    weight = evidence.weight[seen.kind[:, step], seen.steps[:, step]]
    labels = np.einsum("wtpg,wtpag->wtpa", around, weight).reshape(len(weight), -1)
    return np.asarray(labels / labels.sum(axis=1, keepdims=True))


def sums_by_class(value: Array, classes: Codes) -> Array:
    """Return (W, C): the (W, V) values summed within the classes (V,) of the labels, numbered from 0 without a gap."""
    order = np.argsort(classes, kind="stable")
    first = np.searchsorted(classes[order], np.arange(int(classes.max()) + 1))
    return np.asarray(np.add.reduceat(value[:, order], first, axis=1))


def ranked(probability: Array) -> Codes:
    """Return (W, 5) best labels of (W, V), ties to the smaller number; -1 where there are fewer labels.

    Probabilities that differ by rounding only, such as those of two orders of the same moves, are ties.
    """
    width = min(BEST, probability.shape[1])
    order = np.argsort(-probability.round(DIGITS), axis=1, kind="stable")[:, :width]
    return np.pad(order, ((0, 0), (0, BEST - width)), constant_values=-1)


def moves_between(graph: Graph, evidence: StepEvidence, seen: VisibleSteps, first: int, last: int) -> tuple[Move, ...]:
    """Return the moves from column `first` to column `last`; what is between is summed out, with its evidence."""
    moves = graph.moves
    for step in range(first + 1, last):
        said = evidence.total[seen.kind[:, step], seen.steps[:, step]]
        joined: dict[int, Array] = {}
        for first_move in moves:
            passed = first_move.weight * np.roll(said, -first_move.by, axis=2)
            for other in graph.moves:
                by = (first_move.by + other.by) % said.shape[2]
                joined[by] = joined.get(by, 0.0) + passed * other.weight
        moves = tuple(Move(by, weight) for by, weight in joined.items())
    return moves
