"""Settings of single corpus readers, each a field of IngestConfig, for choices that the paper leaves open.

Reasons: docs/decisions/ingest.md and segment-corpora.md. Ingest's table `counts` shows what a setting does to the
counts.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Record

Relevance = Literal["essential", "optional", "irrelevant", "unsure"]


class AtomicConfig(Record):
    """Ego-Exo4D atomic descriptions: the number of classes of their labels."""

    classes: int = Field(1165, ge=2)
    """Target number of (verb, noun) classes, which `evaluation.vocabulary` may score. Source: paper, 4.1; D 24."""


class KeystepConfig(Record):
    """Ego-Exo4D keysteps: which segments and labels are used.

    The paper counts 13,819 + 4,272 segments, 375 labels, 16 scenarios.
    """

    leaves_only: bool = False
    """Leave out segments whose step is not a leaf of its scenario's taxonomy."""
    essential_only: bool = False
    """Leave out segments that are not marked essential."""
    skip_scenarios: tuple[str, ...] = ()
    """Scenarios to leave out; releases have 17, the paper 16."""
    min_label_train: int = Field(0, ge=0)
    """Keep labels that occur at least this often in training; 0: all. The official benchmark uses 20 (278 labels)."""


class BasketballConfig(Record):
    """Shots mined from Ego-Exo4D atomic descriptions. Source: paper, appendix on basketball."""

    attempts: tuple[str, ...] = Field(("shoot hoop", "shoot jump_shot", "shoot layup", "attempt layup"), min_length=1)
    """A description is a shot when it has the verb and, after it, the object."""
    made: tuple[str, ...] = Field(("into the hoop", "enters the net"), min_length=1)
    """Evidence that the ball went in."""
    missed: tuple[str, ...] = Field(
        ("bounces off the rim", "hits the backboard", "rebound ball", "miss hoop"), min_length=1
    )
    """Evidence that it did not."""
    evidence: tuple[Literal["next", "own"], ...] = Field(("next", "own"), min_length=1)
    """Which descriptions are searched for evidence, in this order, until one has it: the next one, by anyone (but a
    shot by somebody else is no evidence), and the shot's own."""
    both: Literal["made", "missed", "ambiguous"] = "made"
    """Outcome with evidence of both: a ball that hits the backboard and enters the net counts as made."""
    balance: bool = True
    """Keep as many made as missed shots in each split and leave out the others."""
    split: Literal["drawn", "released"] = "drawn"
    """drawn: sample the test takes from all; released: use those of the released test split."""
    test_share: float = Field(0.2, gt=0, lt=1)
    """Share of the shots in sampled test takes; 74 of 368 in the paper."""
    seed: int = 0
    """Seed for sampling test takes and shots to leave out."""


class GoalStepConfig(Record):
    """Which segments of Ego4D GoalStep are kept; a label is the category in the taxonomy."""

    video: Literal["full_scale", "video_540ss"] = "full_scale"
    """Which of the released videos is read."""
    relevance: tuple[Relevance, ...] = Field(("essential", "optional"), min_length=1)
    """Keep segments with one of these relevances to the goal."""
    min_label_train: int = Field(1, ge=0)
    """Keep labels that occur at least this often in training; 0: all. The paper's 310 labels are fewer than the 355 of
    the validation file alone."""


class EgoPerConfig(Record):
    """Which videos and segments of EgoPER are kept."""

    splits: Literal["official", "listed"] = "official"
    """official: <task>/training.txt, validation.txt and test.txt; listed: splits/train.txt, val.txt and test.txt for
    all tasks together."""
    keep_background: bool = False
    """Keep background segments."""
    leave_out: tuple[str, ...] = ()
    """Types of error whose segments are left out, such as Error_Addition."""


class EpicConfig(Record):
    """How an action of EPIC-KITCHENS-100 becomes a segment, labelled with its verb class and noun class."""

    segment: Literal["observed", "action"] = "observed"
    """observed: what may be seen before the action, labelled with the action; action: the action itself."""
    gap_s: float = Field(1.0, ge=0)
    """The interval that may be seen ends this many seconds before the action starts. Source: protocol of the corpus."""
    observed_s: float = Field(1.0, gt=0)
    """Length of that interval, seconds. Source: paper, appendix on EPIC-KITCHENS-100 (2 s to 1 s before the action)."""
    anchor: Literal["start", "vjepa2_stop"] = "start"
    """Reference of the gap: the start of the action, or its end, as in V-JEPA 2's evaluation taken literally; then
    actions longer than a second are partly seen (docs/decisions/epic-probe.md)."""
    context: Literal["seconds", "vjepa2_frames"] = "seconds"
    """Length of the interval: observed_s, or what V-JEPA 2's 32 frames cover, one of every int(rate / 8) of the
    video: 3.74 s at 59.94 Hz, 3.20 s at 29.97 Hz."""
