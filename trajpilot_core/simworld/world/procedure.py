"""Layered procedures: which steps a take performs, the words of their labels, and the latent motion and look of each.

A verb group shares one motion primitive, as in life: moving the head shows the verb, the picture shows the thing.
"""

import numpy as np
from numpy.typing import NDArray

from schemas.world import WorldConfig
from trajpilot_core.arrays import Array
from trajpilot_core.errors import WorldError
from trajpilot_core.simworld.world.truth import BASES, CHANNELS, COLOURS, LOOKS, LabelTruth, SegmentTruth, World, stream

LEAD_S = 0.4
"""Video before the first and after the last step, seconds."""
PLACES = ("left edge", "near corner", "middle", "far side", "right edge", "back row", "upper rack", "lower rack")
PATTERNS = (
    "{0} the {thing} at the {place}",
    "{1} the {thing} at the {place}",
    "{0} a {thing} near the {place}",
    "{1} one {thing} by the {place}",
)


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


def draw_motions(config: WorldConfig, labels: tuple[LabelTruth, ...]) -> tuple[Array, Array]:
    """Return unit vectors of labels and of styles, shapes (V, CHANNELS * BASES) and (operators, intents, ...).

    That of a label is the shared primitive plus the label's own phase and amplitude.
    """
    rng, of_styles, size = stream(config, "motion"), stream(config, "style"), CHANNELS * BASES
    primitives = unit(rng.normal(size=(config.primitives, size)))
    directions = unit(rng.normal(size=(len(labels), size)))
    intents = unit(of_styles.normal(size=(1, config.intents, size)))
    persons = unit(of_styles.normal(size=(config.operators, 1, size)))
    of_labels = primitives[[label.primitive for label in labels]] + config.label_deviation * directions
    return unit(of_labels), unit(intents + config.operator_weight * persons)


def draw_look_means(config: WorldConfig, labels: tuple[LabelTruth, ...]) -> Array:
    """Return (V, LOOKS): task (strong, colours only while they suffice) + position (moderate) + label (weak).

    Tasks and positions are spread over the directions, so that no two happen to look alike.
    """
    rng = stream(config, "look")
    width = COLOURS if config.tasks <= 2 * COLOURS else LOOKS
    tasks = np.zeros((config.tasks, LOOKS))
    tasks[:, :width] = spread(rng, config.tasks, width)
    positions = np.stack([spread(rng, config.positions, LOOKS) for _ in range(config.tasks)])
    looks = unit(rng.normal(size=(len(labels), LOOKS)))
    task, position = [x.task for x in labels], [x.position for x in labels]
    return np.asarray(
        config.task_appearance * tasks[task]
        + config.position_appearance * positions[task, position]
        + config.label_appearance * looks
    )


def spread(rng: np.random.Generator, n: int, width: int) -> Array:
    """Return far apart unit vectors, shape (n, width): turned axes, their opposites, then best of 64 draws."""
    turned = np.linalg.qr(rng.normal(size=(width, width)))[0]
    vectors = [*turned, *(-turned)][:n]
    while len(vectors) < n:
        draws = unit(rng.normal(size=(64, width)))
        vectors.append(draws[np.argmin((draws @ np.array(vectors).T).max(axis=1))])
    return np.array(vectors)


def draw_segments(
    world: World, rng: np.random.Generator, task: int, intent: int, operator: int, n: int
) -> tuple[SegmentTruth, ...]:
    """Draw the `n` steps of one take with their times, motion, look and object places.

    The position advances by 0 to 3 round the procedure, alternatives follow the intent. Durations and annotated times
    do not depend on the label.
    """
    config = world.config
    spread = config.segment_s * config.segment_spread
    lengths_s = rng.uniform(config.segment_s - spread, config.segment_s + spread, n)
    edges = LEAD_S + np.concatenate([[0.0], np.cumsum(lengths_s)])
    position, steps = int(rng.integers(config.positions)), []
    for _ in range(n):
        free = int(rng.integers(config.alternatives))
        keep = bool(rng.random() < config.rho)
        alternative = int(world.preferred[intent, task, position]) if keep else free
        steps.append((task * config.positions + position) * config.alternatives + alternative)
        position = (position + int(rng.choice(4, p=config.advance))) % config.positions
    segments = []
    for i, label in enumerate(steps):
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


_VERB_GROUPS = (
    "cuts/slices, wipes/cleans, lifts/picks up, turns/rotates, presses/pushes, shakes/swings, opens/unseals, "
    "stirs/mixes, inspects/examines, pours/empties, peels/strips, folds/bends, places/puts down, measures/gauges, "
    "hammers/knocks, ties/fastens, rolls/spins, scrapes/scratches, sprays/moistens, pulls/drags, labels/marks, "
    "sorts/arranges, squeezes/clamps, shifts/moves"
)
VERBS = tuple((usual, other) for usual, other in (group.split("/") for group in _VERB_GROUPS.split(", ")))
"""Usual and other verb of each motion primitive."""
_TASK_NAMES = (
    "Cook Noodles, Remove a Wheel, Make Coffee, Test Kit, Plant Herbs, Fix a Lamp, Bake Bread, Pack a Parcel, Brew "
    "Tea, Build a Shelf, Dress a Wound, Make Salad, Tune a Guitar, Clean a Chain, Set a Table, Print a Poster, Sew a "
    "Bag, Paint a Frame, Repair a Pump, Mix Concrete"
)
TASKS = tuple(_TASK_NAMES.split(", "))
_THING_NAMES = (
    "carrot bowl kettle filter swab bottle wheel chain screw lamp cable shelf bracket tray dough pot soil leaf parcel "
    "tape bandage lid onion sponge string peg frame brush valve hose bucket sack needle cloth button plate spoon "
    "napkin paper roller towel jar pepper cup tube box rim nut fork pedal socket switch board hinge tin whisk seed "
    "rake stamp rope"
)
THINGS = tuple(_THING_NAMES.split())


def draw_labels(config: WorldConfig) -> tuple[LabelTruth, ...]:
    """Draw the labels, ordered by task, position and alternative.

    A position has one thing at one place, its own over all tasks; its alternatives are different verbs, so different
    primitives wherever there are enough of them. Ids are random and independent of the label.

    Raises WorldError: there are more positions than things at places, so two labels would have one text.
    """
    if config.tasks * config.positions > len(THINGS) * config.places:
        raise WorldError(
            f"{config.tasks} tasks of {config.positions} positions need more than the {len(THINGS)} things at "
            f"{config.places} places that there are; lower `tasks` or `positions` of the world"
        )
    rng = stream(config, "vocabulary")
    ids = rng.choice(16**6, config.n_labels(), replace=False)
    labels: list[LabelTruth] = []
    patterns = PATTERNS[: config.paraphrases]
    things, first_place = rng.permutation(len(THINGS)), rng.integers(config.places, size=len(THINGS))
    for task in range(config.tasks):
        for position in range(config.positions):
            turn, which = divmod(task * config.positions + position, len(THINGS))
            place = int(first_place[which] + turn) % config.places
            words = {"thing": THINGS[things[which]], "place": PLACES[place]}
            verbs = rng.permutation(config.primitives)
            for alternative in range(config.alternatives):
                primitive = int(verbs[alternative % config.primitives])
                labels.append(
                    LabelTruth(
                        label_id=f"g{ids[len(labels)]:06x}",
                        task=task,
                        position=position,
                        alternative=alternative,
                        primitive=primitive,
                        place=place,
                        texts=tuple(pattern.format(*VERBS[primitive], **words) for pattern in patterns),
                    )
                )
    return tuple(labels)


def with_typo(text: str, rng: np.random.Generator) -> str:
    """Return `text` with two neighbouring letters of its first word swapped (or one doubled where they are equal)."""
    word = text.split(" ")[0]
    at = int(rng.integers(len(word) - 1))
    first, second = text[at], text[at + 1]
    wrong = second + first if first != second else first + second + second
    return text[:at] + wrong + text[at + 2 :]
