"""Atomic descriptions of a take as several annotators would leave them, and what the segment layouts call a step.

Every task has one step that all tasks share, as real corpora do: the first label of each task has the same name.
"""

from collections.abc import Callable

import numpy as np

from trajpilot_core.simworld.faults import Json
from trajpilot_core.simworld.world.procedure import PLACES, VERBS, with_typo
from trajpilot_core.simworld.world.truth import LabelTruth, TakeTruth, World, random_uid, stream

TEXT_WEIGHTS = (0.55, 0.2, 0.15, 0.1)
"""How often an annotator uses the usual text of a label, its second, third and fourth."""
OTHER_TEXTS = (
    "The woman A talks to C.",
    "The man B walks to the door.",
    "The woman A points at the table.",
    "The man B waits.",
)
REASONS = ("descriptions do not match the video", "too few descriptions")

Captions = Callable[[World, np.random.Generator, TakeTruth, int], tuple[str, str]]
"""An annotator's sentence about step number i of a take, and its subject (C: the wearer)."""
SHARED_NAME = "Get the tools ready"


def annotations_of(world: World, take: TakeTruth, captions: Captions) -> list[Json]:
    """Return the released annotation objects of one take: one annotator, perhaps a second, perhaps a rejected one."""
    config = world.config
    rng = stream(config, "annotators", take.index)
    pool = [f"{int(x):04d}" for x in stream(config, "annotator names").integers(1000, 9999, 12)]
    first, second, third = (pool[i] for i in rng.permutation(len(pool))[:3])
    annotations = [annotation(world, take, rng, first, captions)]
    if rng.random() < config.second_annotator_share:
        annotations.append(annotation(world, take, rng, second, captions, skips=0.4))
    if rng.random() < config.rejected_share:
        bad = annotation(world, take, rng, third, captions, skips=0.8)
        annotations.append(bad | {"rejected": True, "reject_reason": REASONS[int(rng.integers(len(REASONS)))]})
    return [annotations[i] for i in rng.permutation(len(annotations))]


def annotation(
    world: World, take: TakeTruth, rng: np.random.Generator, annotator: str, captions: Captions, skips: float = 0.0
) -> Json:
    """Return one annotator's object; `skips` > 0 is a second annotator, who omits steps and places others again."""
    config = world.config
    descriptions: list[Json] = []
    for i, segment in enumerate(take.segments):
        if rng.random() < skips:
            continue
        late = rng.normal(0.0, config.annotation_jitter_s) if skips else 0.0
        time_s = round(max(0.0, segment.time_s + float(late)), 5)
        text, subject = captions(world, rng, take, i)
        record = description(text, time_s, subject)
        record["unsure"] = bool(rng.random() < config.unsure_share)
        record["ego_visible"] = bool(rng.random() >= config.invisible_share)
        descriptions += [dict(record) for _ in range(2 if rng.random() < config.duplicate_share else 1)]
        if rng.random() < config.other_share:
            text = OTHER_TEXTS[int(rng.integers(len(OTHER_TEXTS)))]
            descriptions.append(description(text, round(time_s + float(rng.uniform(0.1, 0.6)), 5), "O"))
    if rng.random() < config.unsorted_share and len(descriptions) > 1:
        descriptions = [descriptions[i] for i in rng.permutation(len(descriptions))]
    if rng.random() < config.text_flags_share:  # the older form: flags as texts, another name of the subject
        descriptions = [
            {
                "text": d["text"],
                "timestamp": d["timestamp"],
                "narration_subject": d["subject"],
                "ego_visible": "1" if d["ego_visible"] else "0",
                "best_exo": None,
                "unsure": "1" if d["unsure"] else "0",
            }
            for d in descriptions
        ]
    return {
        "annotation_uid": random_uid(rng),
        "annotator_id": annotator,
        "rejected": False,
        "reject_reason": None,
        "descriptions": descriptions,
    }


def label_caption(world: World, rng: np.random.Generator, take: TakeTruth, i: int) -> tuple[str, str]:
    """Return a sentence on step number i, by the wearer: a paraphrase of its label, now and then with a typo."""
    texts = world.labels[take.segments[i].label].texts
    weights = np.array(TEXT_WEIGHTS[: len(texts)])
    text = texts[int(rng.choice(len(texts), p=weights / weights.sum()))]
    if rng.random() < world.config.typo_share:
        text = with_typo(text, rng)
    return f"C {text}.", "C"


def description(text: str, time_s: float, subject: str) -> Json:
    """Return one description with the flags of an ordinary one."""
    return {
        "text": text,
        "timestamp": time_s,
        "subject": subject,
        "ego_visible": True,
        "best_exo": {"raw_cam_id": "1", "cam_id": "cam01"},
        "unsure": False,
    }


def paraphrase_csv(world: World) -> str:
    """Return the table text,label_id that groups paraphrases: every normalised text of every label."""
    rows = sorted((text, label.label_id) for label in world.labels for text in label.texts)
    return "text,label_id\n" + "".join(f"{text},{label_id}\n" for text, label_id in rows)


def base_form(verb: str) -> str:
    """Return the base form of a verb in the third person: `cuts` gives cut, `picks up` pick up, `empties` empty."""
    word, _, rest = verb.partition(" ")
    if word.endswith("ies") and word != "ties":  # which loses its s and nothing else
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
