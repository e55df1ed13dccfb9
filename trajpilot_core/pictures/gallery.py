"""Which pictures a stage has, and drawing them so that none can end a run."""

import logging
from collections.abc import Callable, Mapping
from typing import NamedTuple

from trajpilot_core.errors import TrajPilotError
from trajpilot_core.pictures.accuracy import accuracy
from trajpilot_core.pictures.clips import clips
from trajpilot_core.pictures.corpus import corpus
from trajpilot_core.pictures.curves import alignment_curves, predictor_curves, scorer_curves
from trajpilot_core.pictures.head_paths import head_paths
from trajpilot_core.pictures.look import Look
from trajpilot_core.pictures.picture import Drawn, NotDrawn, Picture, fitted

LOG = logging.getLogger("trajpilot")


class Subject(NamedTuple):
    """What a picture shows."""

    name: str
    title: str
    draw: Callable[[Look], Drawn]


SUBJECTS: Mapping[str, tuple[Subject, ...]] = {
    "ingest": (Subject("corpus", "What the corpus holds", corpus),),
    "trajectories": (Subject("head-paths", "Head paths of some takes, seen from above", head_paths),),
    "features": (Subject("clips", "Sample clips: the frames that the encoder sees", clips),),
    "alignment": (Subject("curves", "Training of the trajectory encoder", alignment_curves),),
    "predictor": (Subject("curves", "Training of the predictors", predictor_curves),),
    "scorer": (Subject("curves", "Training of the scorers", scorer_curves),),
    "evaluation": (Subject("accuracy", "Accuracy over the horizon", accuracy),),
}
"""Stage -> its pictures."""


def subjects(stage: str) -> tuple[Subject, ...]:
    """Return the pictures that a stage has."""
    return SUBJECTS.get(stage, ())


def draw(stage: str, subject: Subject, look: Look) -> Picture | NotDrawn:
    """Draw a picture of a stage that has committed; one that cannot be drawn is named and logged with its reason."""
    made: Picture | NotDrawn
    try:
        made = fitted(subject.name, subject.title, subject.draw(look))
    except (TrajPilotError, OSError, ValueError) as error:  # nothing to show, damage, a disk, numbers without a scale
        made = NotDrawn(subject.name, subject.title, str(error) or type(error).__name__)
    if isinstance(made, NotDrawn):
        LOG.info("%-12s no picture %r: %s", stage, made.title, made.reason)
    return made
