"""Basketball in the tree of an Ego-Exo4D download: atomic descriptions of drills with shot attempts and outcomes.

The steps of the world keep their motion, look and times; only what is said of them differs. By its position a step is
a move, a preparation, a shot or what becomes of the shot; by its alternative an outcome is made (even) or missed (odd).
So the wearer's intent, which the motion before the shot shows in part, decides how most shots end. A shot that no
outcome follows (positions are skipped and repeated) has none, or states it itself.
With `WorldConfig.release` the outcome is decided by an error of yaw and pitch at the release instead, which shows in
the motion of the shot, and as far as the settings have it in the motion or the look of the step before it.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from schemas.world import WorldConfig
from trajpilot_core.arrays import Array
from trajpilot_core.simworld.faults import TAKE_FAULTS, Json
from trajpilot_core.simworld.layouts.base import Layout, NamedFiles
from trajpilot_core.simworld.layouts.metadata import release_files, take_files
from trajpilot_core.simworld.world.truth import BASES, CHANNELS, LOOKS, SegmentTruth, TakeTruth, World, stream

ShotOutcome = Literal["made", "missed", "ambiguous", "none"]
MOVE, PREPARE, SHOT, RESULT = range(4)
"""Role of a step, by its position modulo 4."""
YAW = 3
"""Channel of the yaw; that of the pitch follows."""
DRILLS = ((6001, "Mikan Layup"), (6002, "Reverse Layup"), (6003, "Mid-Range Jump Shooting"))
AMBIGUOUS_SHARE, OWN_SHARE, OTHER_SHARE = 0.12, 0.2, 0.3
"""Outcomes that name both kinds of evidence; shots without a next outcome that state it themselves; misses that another
player rebounds."""
SHOTS = ("C shoots the hoop with the basketball.", "C shoots a jump shot.", "C shoots a layup.", "C attempts a layup.")
MADE = ("The basketball goes into the hoop.", "The basketball enters the net.")
MISSED = (
    "The basketball bounces off the rim.",
    "The basketball hits the backboard.",
    "C rebounds the ball.",
    "C misses the hoop.",
)
OTHER = "The man B rebounds the ball."
BOTH = "The basketball hits the backboard and enters the net."
OWN = "C shoots a jump shot into the hoop."
BEFORE = {
    MOVE: ("C walks to the line.", "C looks at the court."),
    PREPARE: ("C dribbles the basketball.", "C holds the basketball with both hands."),
}


@dataclass(frozen=True)
class ShotAttempt:
    """One shot attempt, as it happened."""

    step: int
    """Place in the take's steps."""
    outcome: ShotOutcome
    """ambiguous: the caption holds evidence of both kinds (the ball went in)."""
    evidence: Literal["next", "own"] | None
    """Which caption states the outcome."""
    subject: str
    """Subject of the caption after it: O where another player rebounds."""


def role_of(world: World, label: int) -> int:
    """Return the role of a step of this label."""
    return world.labels[label].position % 4


def shots_of(world: World, take: TakeTruth) -> dict[int, ShotAttempt]:
    """Return the shots of a take by the place of their step."""
    rng = stream(world.config, "basketball", take.index)
    draws = rng.random((len(take.segments), 3))
    errors = release_errors(world.config, take.index, len(take.segments))
    shots = {}
    for i, segment in enumerate(take.segments):
        if role_of(world, segment.label) != SHOT:
            continue
        own, ambiguous, other = draws[i] < (OWN_SHARE, AMBIGUOUS_SHARE, OTHER_SHARE)
        goes_in = None if world.config.release is None else is_made(errors[i])
        after = take.segments[i + 1].label if i + 1 < len(take.segments) else None
        if after is None or role_of(world, after) != RESULT:
            is_said = own and goes_in is not False
            shots[i] = ShotAttempt(i, "made", "own", "C") if is_said else ShotAttempt(i, "none", None, "C")
        elif ambiguous and goes_in is not False:
            shots[i] = ShotAttempt(i, "ambiguous", "next", "C")
        elif world.labels[after].alternative % 2 == 0 if goes_in is None else goes_in:
            shots[i] = ShotAttempt(i, "made", "next", "C")
        else:
            shots[i] = ShotAttempt(i, "missed", "next", "O" if other else "C")
    return shots


def release_errors(config: WorldConfig, index: int, n_steps: int) -> Array:
    """Return standard normal errors of yaw and pitch at the release, shape (n_steps, 2); only those of shots matter."""
    return np.asarray(stream(config, "release", index).normal(size=(n_steps, 2)))


def is_made(error: Array) -> bool:
    """Return whether a shot with this error, of shape (2,), goes in: half of all do."""
    return float(error.sum()) > 0


def released(world: World, index: int, segments: tuple[SegmentTruth, ...]) -> tuple[SegmentTruth, ...]:
    """Return the steps of a take with the errors of its shots in motion and look, as far as the world shows them."""
    shows = world.config.release
    if shows is None:
        return segments
    errors, steps = release_errors(world.config, index, len(segments)), list(segments)
    for i, step in enumerate(segments):
        if role_of(world, step.label) != SHOT:
            continue
        motion, look = np.zeros(BASES * CHANNELS), np.zeros(LOOKS)
        motion[YAW : YAW + 2], look[:2] = errors[i], shows.seen * errors[i]  # out and back; two colours
        steps[i] = replace(steps[i], motion=steps[i].motion + shows.shown * motion)
        if i:
            before = steps[i - 1]
            hinted = before.motion + shows.hinted * motion
            steps[i - 1] = replace(before, motion=hinted, look=before.look + look)
    return tuple(steps)


def caption(world: World, rng: np.random.Generator, take: TakeTruth, i: int) -> tuple[str, str]:
    """Return an annotator's sentence about step number i, and its subject."""
    shots, role = shots_of(world, take), role_of(world, take.segments[i].label)
    pick = int(rng.integers(4))
    if i in shots:
        return (OWN if shots[i].evidence == "own" else SHOTS[pick]), "C"
    shot = shots.get(i - 1)
    if role == RESULT and shot is not None:
        missed = OTHER if shot.subject == "O" else MISSED[pick]
        return {"ambiguous": BOTH, "made": MADE[pick % len(MADE)]}.get(shot.outcome, missed), shot.subject
    texts = BEFORE[MOVE if role == RESULT else role]
    return texts[pick % len(texts)], "C"


def rest(world: World) -> NamedFiles:
    """Yield captures, metadata and the descriptions of the drills; of the labels of the world nothing is said here."""

    def facts(take: TakeTruth) -> Json:
        number, name = DRILLS[take.task % len(DRILLS)]
        return {"task_id": number, "task_name": name, "parent_task_id": 6000, "parent_task_name": "Basketball"}

    return release_files(world, caption, facts)


OF_USED_DESCRIPTIONS = ("time_beyond", "time_at_end", "times_equal", "text_empty")
"""Kinds that harm a description only where it becomes a segment; most at a basketball court do not."""
KEPT_HABITS = ("unsorted_share", "text_flags_share", "second_annotator_share", "rejected_share")
"""Habits of annotators that keep the order of captions, so that shots keep their outcomes."""
PLAIN = {name: 0.0 for name in WorldConfig.model_fields if name.endswith("_share") and name not in KEPT_HABITS}
STEADY = (0.02, 0.9, 0.06, 0.02)
"""How far a step advances, with few detours, so that most shots are followed by their outcome."""
LAYOUT = Layout(
    take_files,
    rest,
    {kind: codes for kind, codes in TAKE_FAULTS.items() if kind not in OF_USED_DESCRIPTIONS},
    "shots are mined from sentences, and a shot is no step of a procedure",
    tiny={
        "train_takes": 12,  # enough shots to balance
        "test_takes": 4,
        "segments": 12,
        "segment_s": 1.0,
        "fps": 10,
        "dense_takes": 0,
        "advance": STEADY,
        **PLAIN,
    },
    has_poses=True,
    performed=released,
)
