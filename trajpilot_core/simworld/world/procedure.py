"""Layered procedures: which steps a take performs, and the latent motion and look of each."""

import numpy as np
from numpy.typing import NDArray

from schemas.world import WorldConfig
from trajpilot_core.arrays import Array
from trajpilot_core.simworld.world.truth import BASES, CHANNELS, COLOURS, LOOKS, LabelTruth, SegmentTruth, World, stream

LEAD_S = 0.4
"""Video before the first and after the last step, seconds."""


def unit(vectors: Array) -> Array:
    """Scale vectors (..., D) to unit length."""
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True))


def draw_preferences(config: WorldConfig) -> NDArray[np.int64]:
    """Return the alternative that each intent prefers, shape (intents, tasks, positions).

    At every position the intents are spread over the alternatives as evenly as they go.
    """
    rng = stream(config, "preferences")
    table = np.empty((config.intents, config.tasks, config.positions), np.int64)
    for task in range(config.tasks):
        for position in range(config.positions):
            order = rng.permutation(config.alternatives)
            table[:, task, position] = order[rng.permutation(config.intents) % config.alternatives]
    return table


def draw_motion_labels(config: WorldConfig, labels: tuple[LabelTruth, ...]) -> Array:
    """Return (V, CHANNELS * BASES) unit vectors: the shared primitive plus the label's own phase and amplitude."""
    rng = stream(config, "motion")
    primitives = unit(rng.normal(size=(config.primitives, CHANNELS * BASES)))
    own = unit(rng.normal(size=(len(labels), CHANNELS * BASES)))
    return unit(primitives[[label.primitive for label in labels]] + config.label_deviation * own)


def draw_motion_styles(config: WorldConfig) -> Array:
    """Return unit vectors, shape (operators, intents, CHANNELS * BASES)."""
    rng = stream(config, "style")
    intents = unit(rng.normal(size=(1, config.intents, CHANNELS * BASES)))
    persons = unit(rng.normal(size=(config.operators, 1, CHANNELS * BASES)))
    return unit(intents + config.operator_weight * persons)


def draw_look_means(config: WorldConfig, labels: tuple[LabelTruth, ...]) -> Array:
    """Return (V, LOOKS): task (strong, colours only while they suffice) + position (moderate) + label (weak).

    Tasks and positions are spread over the directions, so that no two happen to look alike.
    """
    rng = stream(config, "look")
    width = COLOURS if config.tasks <= 2 * COLOURS else LOOKS
    tasks = np.zeros((config.tasks, LOOKS))
    tasks[:, :width] = spread(rng, config.tasks, width)
    positions = np.stack([spread(rng, config.positions, LOOKS) for _ in range(config.tasks)])
    own = unit(rng.normal(size=(len(labels), LOOKS)))
    task, position = [x.task for x in labels], [x.position for x in labels]
    return np.asarray(
        config.task_appearance * tasks[task]
        + config.position_appearance * positions[task, position]
        + config.label_appearance * own
    )


def spread(rng: np.random.Generator, n: int, width: int) -> Array:
    """Return far apart unit vectors, shape (n, width): turned axes, their opposites, then best of 64 draws."""
    turned = np.linalg.qr(rng.normal(size=(width, width)))[0]
    found = [*turned, *(-turned)][:n]
    while len(found) < n:
        draws = unit(rng.normal(size=(64, width)))
        found.append(draws[np.argmin((draws @ np.array(found).T).max(axis=1))])
    return np.array(found)


def draw_steps(world: World, rng: np.random.Generator, task: int, intent: int, n: int) -> list[int]:
    """Draw `n` labels of one take: position advances by 0 to 3 round the procedure, alternatives follow the intent."""
    config = world.config
    position, steps = int(rng.integers(config.positions)), []
    for _ in range(n):
        free = int(rng.integers(config.alternatives))
        keep = bool(rng.random() < config.rho)
        alternative = int(world.preferred[intent, task, position]) if keep else free
        steps.append((task * config.positions + position) * config.alternatives + alternative)
        position = (position + int(rng.choice(4, p=config.advance))) % config.positions
    return steps


def draw_segments(
    world: World, rng: np.random.Generator, task: int, intent: int, operator: int, n: int
) -> tuple[SegmentTruth, ...]:
    """Draw the steps of one take with their times, motion, look and object places.

    Durations and annotated times do not depend on the label.
    """
    config = world.config
    spread = config.segment_s * config.segment_spread
    edges = LEAD_S + np.concatenate(
        [[0.0], np.cumsum(rng.uniform(config.segment_s - spread, config.segment_s + spread, n))]
    )
    segments = []
    for i, label in enumerate(draw_steps(world, rng, task, intent, n)):
        start, end = float(edges[i]), float(edges[i + 1])
        motion = config.kappa * world.motion_labels[label] + config.style * world.motion_styles[operator, intent]
        motion = motion + config.motion_noise * rng.normal(size=CHANNELS * BASES)
        look = world.look_means[label] + config.appearance_noise * rng.normal(size=LOOKS)
        usual, other = world.labels[label].place, int(rng.integers(config.places))
        reach = 0.4 * (end - start)
        late = float(np.clip(rng.normal(0.0, config.annotation_jitter_s), -reach, reach))
        segments.append(
            SegmentTruth(
                label=label,
                start_s=start,
                end_s=end,
                time_s=round((start + end) / 2 + late, 5),
                motion=motion,
                look=look,
                place=usual if rng.random() < config.place_fidelity else other,
            )
        )
    return tuple(segments)
