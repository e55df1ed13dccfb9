"""What the segment layouts call a step: the verb, the thing and the place of a label, and its name as an instruction.

Every task has one step that all tasks share, as real corpora do: the first label of each task has the same name.
"""

from trajpilot_core.simworld.world.truth import LabelTruth
from trajpilot_core.simworld.world.vocabulary import PLACES, VERBS

SHARED_NAME = "Get the tools ready"
KEEP_E = ("ties",)
"""Words that lose their s and nothing else, against the rule for words in -ies."""


def base_form(verb: str) -> str:
    """Return the base form of a verb in the third person: `cuts` gives cut, `picks up` pick up, `empties` empty."""
    word, _, rest = verb.partition(" ")
    if word.endswith("ies") and word not in KEEP_E:
        word = word[:-3] + "y"
    else:
        word = word.removesuffix("es") if word.endswith(("sses", "shes", "ches", "xes")) else word.removesuffix("s")
    return f"{word} {rest}".strip()


def verbs_of(primitive: int) -> tuple[str, str]:
    """Return the two verbs of a motion primitive in base form."""
    first, second = VERBS[primitive]
    return base_form(first), base_form(second)


def thing_of(label: LabelTruth) -> str:
    """Return the thing that the label handles."""
    start = f"{VERBS[label.primitive][0]} the "
    return label.texts[0].removeprefix(start).removesuffix(f" at the {PLACES[label.place]}")


def is_shared(label: LabelTruth) -> bool:
    """Whether the label is the one that every task has under one name."""
    return label.position == 0 and label.alternative == 0


def step_name(label: LabelTruth) -> str:
    """Return the name of a step; equal for different labels only where they are the shared one."""
    if is_shared(label):
        return SHARED_NAME
    words = f"{verbs_of(label.primitive)[0]} the {thing_of(label)} at the {PLACES[label.place]}"
    return words[0].upper() + words[1:]


def step_description(label: LabelTruth) -> str:
    """Return a longer description of a step."""
    return label.texts[0][0].upper() + label.texts[0][1:] + "."
