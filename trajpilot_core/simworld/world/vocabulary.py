"""Words of the simulated world: verbs by motion primitive, things by task, places; labels and their paraphrases.

A verb group shares one motion primitive, as in life: moving the head shows the verb, the picture shows the thing.
"""

import numpy as np

from schemas.world import WorldConfig
from trajpilot_core.errors import WorldError
from trajpilot_core.simworld.world.truth import LabelTruth, stream

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
PLACES = ("left edge", "near corner", "middle", "far side", "right edge", "back row", "upper rack", "lower rack")
PATTERNS = (
    "{0} the {thing} at the {place}",
    "{1} the {thing} at the {place}",
    "{0} a {thing} near the {place}",
    "{1} one {thing} by the {place}",
)


def draw_labels(config: WorldConfig) -> tuple[LabelTruth, ...]:
    """Draw the labels of every task, position and alternative.

    A position has one thing at one place, its own over all tasks; its alternatives are different verbs, so different
    primitives wherever there are enough of them. Ids are random and say nothing about the label.

    Returns:
        `config.n_labels()` labels, ordered by task, position, alternative.

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
    things, first_place = rng.permutation(len(THINGS)), rng.integers(config.places, size=len(THINGS))
    for task in range(config.tasks):
        for position in range(config.positions):
            turn, which = divmod(task * config.positions + position, len(THINGS))
            place = int(first_place[which] + turn) % config.places
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
                        texts=paraphrases(primitive, THINGS[things[which]], PLACES[place], config.paraphrases),
                    )
                )
    return tuple(labels)


def paraphrases(primitive: int, thing: str, place: str, n: int) -> tuple[str, ...]:
    """Return `n` texts of one label: two verbs of the primitive in a few sentence patterns."""
    verbs = VERBS[primitive]
    return tuple(pattern.format(*verbs, thing=thing, place=place) for pattern in PATTERNS[:n])


def with_typo(text: str, rng: np.random.Generator) -> str:
    """Return `text` with two neighbouring letters of its first word swapped (or one doubled where they are equal)."""
    word = text.split(" ")[0]
    at = int(rng.integers(len(word) - 1))
    first, second = text[at], text[at + 1]
    wrong = second + first if first != second else first + second + second
    return text[:at] + wrong + text[at + 2 :]
