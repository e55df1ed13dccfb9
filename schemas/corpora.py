"""Settings of single corpus readers, a field of IngestConfig each: what the paper leaves open is named here.

Reasons: docs/decisions/ingest.md and segment-corpora.md. What a setting does to the counts stands in ingest's table `counts`.
"""

from typing import Literal

from pydantic import Field

from schemas.base import Record

Relevance = Literal["essential", "optional", "irrelevant", "unsure"]


class AtomicConfig(Record):
    """Ego-Exo4D atomic descriptions: which vocabulary."""

    vocabulary: Literal["open", "closed"] = Field("open", description="open: normalised texts; closed: classes of (verb, noun). Source: paper, 4.1.")
    classes: int = Field(1165, ge=2, description="Closed vocabulary: this many classes are aimed at. Source: paper, 4.1; rule: D 24.")


class KeystepConfig(Record):
    """Ego-Exo4D keysteps: which segments and labels. The paper counts 13,819 + 4,272 segments, 375 labels, 16 scenarios."""

    leaves_only: bool = Field(False, description="Leave out segments whose step is no leaf of its scenario's taxonomy.")
    essential_only: bool = Field(False, description="Leave out segments that are not marked essential.")
    skip_scenarios: tuple[str, ...] = Field((), description="Scenarios that are left out; releases have 17, the paper 16.")
    min_label_train: int = Field(0, ge=0, description="Keep labels that stand at least this often in training; 0: all. The official benchmark takes 20 (278 labels).")
    masks: Literal["observed", "taxonomy"] = Field("observed", description="Labels that a scenario lets through: those of its training segments, or all leaves of its taxonomy.")


class BasketballConfig(Record):
    """Shots mined from Ego-Exo4D atomic descriptions. Source: paper, appendix on basketball."""

    takes: Literal["basketball", "all"] = Field("basketball", description="Takes of the basketball tasks, or all that are annotated.")
    attempts: tuple[str, ...] = Field(("shoot hoop", "shoot jump_shot", "shoot layup", "attempt layup"), min_length=1, description="A description is a shot when it has the verb and, after it, the object.")
    made: tuple[str, ...] = Field(("into the hoop", "enters the net"), min_length=1, description="Evidence that the ball went in.")
    missed: tuple[str, ...] = Field(("bounces off the rim", "hits the backboard", "rebound ball", "miss hoop"), min_length=1, description="Evidence that it did not.")
    evidence: tuple[Literal["next", "own"], ...] = Field(("next", "own"), min_length=1, description="Which descriptions are asked, in this order, until one tells: the next one, the shot's own.")
    both: Literal["made", "missed", "ambiguous"] = Field("made", description="Outcome of a description with evidence of both: a ball that hits the backboard and enters the net is in.")
    outcome_subjects: tuple[str, ...] | None = Field(None, description="Whose next description is asked; None: anyone's, but a shot of somebody else tells nothing.")
    balance: bool = Field(True, description="As many made as missed shots in each split; the others are left out.")
    split: Literal["drawn", "released"] = Field("drawn", description="Draw the test takes among all, or take those of the released test split.")
    test_share: float = Field(0.2, gt=0, lt=1, description="Share of the shots in drawn test takes; 74 of 368 in the paper.")
    seed: int = Field(0, description="Of the draw and of what is left out.")


class GoalStepConfig(Record):
    """Which segments of Ego4D GoalStep are kept, and what their labels are."""

    level: Literal["step", "substep"] = Field("step", description="Level of the annotation that is read.")
    label: Literal["category", "description"] = Field("category", description="What becomes the label: the step's category in the taxonomy, or its free description.")
    video: Literal["full_scale", "video_540ss"] = Field("full_scale", description="Which of the released videos is read.")
    relevance: tuple[Relevance, ...] = Field(("essential", "optional"), min_length=1, description="Keep segments of this relevance to the goal.")
    keep_continued: bool = Field(True, description="Keep segments that continue an interrupted one.")
    procedural_only: bool = Field(False, description="Keep only segments that are marked as procedural, which means divided further.")
    min_segments: int = Field(1, ge=1, description="Keep entries with at least this many segments after all other filters.")
    min_label_train: int = Field(1, ge=0, description="Keep labels that stand at least this often in training; 0: all. The paper's 310 labels are fewer than the 355 of the validation file alone.")


class EgoPerConfig(Record):
    """Which videos and segments of EgoPER are kept."""

    splits: Literal["official", "listed"] = Field("official", description="official: <task>/training.txt, validation.txt and test.txt; listed: splits/train.txt, val.txt and test.txt for all tasks together.")
    keep_background: bool = Field(False, description="Keep background segments.")
    leave_out: tuple[str, ...] = Field((), description="Types of error whose segments are left out, such as Error_Addition.")


class EpicConfig(Record):
    """What an action of EPIC-KITCHENS-100 becomes."""

    segment: Literal["observed", "action"] = Field("observed", description="observed: what may be seen before the action, labelled with the action; action: the action itself.")
    label: Literal["action", "verb", "noun", "narration"] = Field("action", description="What becomes the label; action: the pair of verb class and noun class.")
    gap_s: float = Field(1.0, ge=0, description="What may be seen ends this long before the action starts. Source: protocol of the corpus.")
    observed_s: float = Field(1.0, gt=0, description="How long it is. Source: paper, appendix on EPIC-KITCHENS-100 (2 s to 1 s before the action).")
    min_label_train: int = Field(0, ge=0, description="Keep labels that stand at least this often in training; 0: all, as the official evaluation does.")
