"""Every setting of the simulated world, stated once, and the presets.

"World page" is docs/decisions/simworld.md, with the reasons, the date and the measurements. The values were fixed by
reasoning and by what a probe can see in the files, before any planner was trained on them.
"""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.features import HEAD_VIDEO_FPS, ReleasedName

RELEASED_LAYOUTS: Mapping[ReleasedName, tuple[str, ...]] = {
    "omnivore_video": ("egoexo4d", "keystep"),
    "epic_slowfast": ("epic_kitchens",),
}
"""Released features that a simulated world may have -> the layouts whose corpora publish them."""


class ReleaseConfig(Record):
    """The error at the release of a shot, which decides its outcome. Source: docs/decisions/outcome.md.

    All three are in units of the noise of the respective observation; 0: not visible there.
    """

    shown: float = Field(8.0, ge=0)
    """In the head motion of the shot: yaw and pitch."""
    hinted: float = Field(2.0, ge=0)
    """In the head motion of the step before the shot: yaw and pitch."""
    seen: float = Field(0.0, ge=0)
    """In the look of the step before the shot."""


class WorldConfig(Record):
    """Settings of a simulated world: procedures, motion, appearance, annotations, files.

    Defaults are those of the world `base` of docs/evidence.md, except for its takes.
    """

    name: str = Field("base", pattern=r"^[a-z0-9_]{1,32}$")
    """Name of the preset."""
    seed: int = Field(20261121, ge=0)
    """Seed of all randomness."""

    tasks: int = Field(5, ge=1, le=20)
    """Procedures (scenarios)."""
    positions: int = Field(12, ge=2, le=20)
    """Positions of a procedure; it starts again after the last."""
    alternatives: int = Field(4, ge=1, le=6)
    """Interchangeable labels at one position. Source: world page."""
    intents: int = Field(8, ge=1)
    """Plan intents, one per take; each prefers one alternative at every position. Source: world page."""
    rho: float = Field(0.9, ge=0, le=1)
    """Probability that a step is the alternative that the intent prefers; else it is uniform. Source: world page."""
    advance: tuple[float, float, float, float] = (0.08, 0.66, 0.20, 0.06)
    """Probabilities to advance by 0 (repeat), 1, 2, 3 positions. Source: world page."""
    operators: int = Field(24, ge=2)
    """People who wear the glasses."""

    primitives: int = Field(16, ge=2, le=24)
    """Motion primitives; several labels share one."""
    kappa: float = Field(1.5, ge=0)
    """Label information in the head motion: length of the primitive against unit noise."""
    style: float = Field(2.0, ge=0)
    """Intent (and operator) information in the head motion, same unit."""
    operator_weight: float = Field(0.5, ge=0)
    """Share of the operator in the style vector against the intent's 1."""
    label_deviation: float = Field(0.3, ge=0)
    """Distance of a label's motion from its shared primitive (phase, amplitude)."""
    motion_noise: float = Field(1.0, ge=0)
    """Standard deviation per motion coefficient; the unit of kappa and style."""
    unit_rotation_deg: float = Field(5.0, gt=0)
    """Peak rotation of one motion unit, degrees."""
    unit_translation_m: float = Field(0.04, gt=0)
    """Peak translation of one motion unit, metres."""
    wander: float = Field(1.0, ge=0)
    """Scale of slow drift, gait and breathing; independent of labels. 0: none."""

    scene: float = Field(1.0, ge=0)
    """Scale of take-specific colours, textures and light."""
    task_appearance: float = Field(10.0, ge=0)
    """Task information in the look of the station, against unit noise (strong)."""
    position_appearance: float = Field(6.0, ge=0)
    """Position information there (moderate)."""
    label_appearance: float = Field(1.6, ge=0)
    """Label information there (weak)."""
    appearance_noise: float = Field(1.0, ge=0)
    """Standard deviation per coefficient of the station's look, per segment."""
    places: int = Field(6, ge=1, le=8)
    """Places on the table for the object that is acted on."""
    place_fidelity: float = Field(0.5, ge=0, le=1)
    """Probability that this object is at its label's place; otherwise its place is uniform."""

    train_takes: int = Field(400, ge=1)
    """Unbroken takes of the split train."""
    test_takes: int = Field(120, ge=1)
    """Unbroken takes of the split val, used for testing."""
    takes_per_capture: int = Field(2, ge=1)
    """Takes that share a capture (one operator, one room, one clock)."""
    segments: int = Field(16, ge=3)
    """Steps of a take; one more or less at random."""
    segment_s: float = Field(2.0, gt=0.3)
    """Mean duration of a step, seconds."""
    segment_spread: float = Field(0.2, ge=0, lt=0.5)
    """Step durations are uniform within this share of the mean, whatever the label."""

    layout: str = Field("egoexo4d", pattern=r"^[a-z0-9_]{1,32}$")
    """Corpus layout of the files: a module of trajpilot_core/simworld/layouts. egoexo4d: atomic descriptions;
    keystep and basketball: the same tree, other annotations; goalstep, egoper, epic_kitchens: video and segments, no
    poses."""
    release: ReleaseConfig | None = None
    """Layout basketball only: an error at the release decides the outcome of a shot; None: the step after it does."""
    released: ReleasedName | None = None
    """Released features written next to the videos in the format of the layout's corpus; None: none."""
    videos: bool = True
    """Write videos; without them there are only released features, as on a disk too small for both."""
    fps: int = Field(30, ge=5, le=60)
    """Video frames per second."""
    size_px: int = Field(256, ge=64, le=1408, multiple_of=16)
    """Side of the square video, pixels."""
    crf: int = Field(28, ge=0, le=51)
    """Constant rate factor of the H.264 encoder."""
    view_deg: float = Field(90.0, gt=30, lt=150)
    """Field of view of the pinhole head camera, degrees."""
    dense_takes: int = Field(6, ge=0)
    """Unbroken takes whose trajectory is written near 1 kHz with an uneven clock."""
    trajectory_hz: int = Field(100, ge=50, le=1000)
    """Rate of the other trajectories (a 1 kHz row is 293 bytes)."""

    paraphrases: int = Field(3, ge=1, le=4)
    """Texts per label."""
    typo_share: float = Field(0.01, ge=0, le=1)
    """Descriptions with one wrong letter."""
    unsure_share: float = Field(0.01, ge=0, le=1)
    """Descriptions marked unsure."""
    invisible_share: float = Field(0.01, ge=0, le=1)
    """Descriptions marked as not visible to the head camera."""
    other_share: float = Field(0.04, ge=0, le=1)
    """Additional descriptions about another person, per step."""
    duplicate_share: float = Field(0.01, ge=0, le=1)
    """Descriptions that occur twice."""
    unsorted_share: float = Field(0.1, ge=0, le=1)
    """Annotations whose descriptions are not in chronological order."""
    second_annotator_share: float = Field(0.25, ge=0, le=1)
    """Takes that a second, lazier annotator described."""
    rejected_share: float = Field(0.05, ge=0, le=1)
    """Takes with an additional annotation that was rejected."""
    text_flags_share: float = Field(0.3, ge=0, le=1)
    """Annotators whose flags are the strings 0 and 1 and who use the older field names."""
    annotation_jitter_s: float = Field(0.15, ge=0)
    """Standard deviation of the annotated time point around the middle of the step, seconds."""

    broken: Literal["none", "each"] = "each"
    """each: one broken take (or file) of every kind possible in the layout, in addition to the good takes."""
    broken_segments: int = Field(4, ge=3)
    """Steps of a broken take, one more or less at random (few, to keep the world small)."""

    @model_validator(mode="after")
    def _has_what_the_layout_can_have(self) -> Self:
        layouts = (self.layout,) if self.released is None else RELEASED_LAYOUTS.get(self.released, ())
        if self.layout not in layouts:
            known = ", ".join(layouts) or "none that is simulated"
            raise ValueError(f"released={self.released} is of the layouts {known}; layout is {self.layout!r}")
        counted = self.released == "omnivore_video" and self.fps != HEAD_VIDEO_FPS
        if not self.videos and (self.released is None or counted):
            raise ValueError(
                f"without videos a world has released features, and metadata of Ego-Exo4D count {HEAD_VIDEO_FPS} "
                f"frames a second; released is {self.released}, fps is {self.fps}: set both, or leave videos alone"
            )
        if self.release is not None and self.layout != "basketball":
            raise ValueError(f"release is of shots, and the layout {self.layout!r} has none; set layout to basketball")
        return self

    def n_labels(self) -> int:
        """Return the number of labels, V."""
        return self.tasks * self.positions * self.alternatives


def demo_world() -> WorldConfig:
    """The world of the demo: small enough for two cores, and learnable at that size (reasons: world page)."""
    return WorldConfig(
        name="demo",
        tasks=2,
        positions=4,
        alternatives=2,
        intents=2,
        rho=0.95,
        advance=(0.03, 0.90, 0.05, 0.02),
        operators=12,
        primitives=6,
        kappa=5.0,
        style=1.0,
        unit_rotation_deg=0.6,
        unit_translation_m=0.005,
        wander=0.15,
        scene=0.3,
        position_appearance=8.0,
        label_appearance=0.7,
        train_takes=600,
        test_takes=200,
        segments=10,
        segment_s=1.0,
        fps=5,
        size_px=64,
        dense_takes=2,
        trajectory_hz=60,
        typo_share=0.0,
    )


def tiny_world() -> WorldConfig:
    """A world for tests, written in seconds: eight good takes and one of every fault."""
    return WorldConfig(
        name="tiny",
        tasks=2,
        positions=4,
        alternatives=2,
        intents=2,
        operators=4,
        primitives=4,
        kappa=3.0,
        train_takes=6,
        test_takes=2,
        takes_per_capture=1,
        segments=10,
        segment_s=1.2,
        fps=15,
        size_px=128,
        dense_takes=1,
    )


def laptop_world() -> WorldConfig:
    """The tiny world with released features and without any video."""
    return tiny_world().replace(name="tiny_laptop", released="omnivore_video", videos=False, fps=HEAD_VIDEO_FPS)


def soak_world() -> WorldConfig:
    """A world for the tests of crashes and of the whole stack: twelve good takes, none broken."""
    return tiny_world().replace(
        name="soak",
        train_takes=9,
        test_takes=3,
        segments=8,
        segment_s=1.0,
        fps=10,
        size_px=96,
        broken="none",
    )


def court_world() -> WorldConfig:
    """A world of basketball whose shots are decided at the release (docs/decisions/outcome.md)."""
    return tiny_world().replace(
        name="court",
        layout="basketball",
        release=ReleaseConfig(),
        operators=12,
        train_takes=200,
        test_takes=60,
        segments=12,
        segment_s=1.0,
        fps=10,
        size_px=64,
        dense_takes=0,
        advance=(0.02, 0.9, 0.06, 0.02),
        typo_share=0.0,
        unsure_share=0.0,
        invisible_share=0.0,
        other_share=0.0,
        duplicate_share=0.0,
        broken="none",
    )
