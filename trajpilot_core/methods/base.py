"""The record of a row of the tables: how it answers, what it may see, its upper bound, and how it is printed.

Imports no torch: pages and plans are made from these records. Axes: B windows of one horizon H, R ranked answers.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from trajpilot_core.errors import MethodError

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.methods.batch import WindowBatch
    from trajpilot_core.simworld.inference.visible import InputKind

Role = Literal["main", "control", "ablation", "floor", "anticipation"]
"""main: the paper's rows; control: what must not help, or helps without training; ablation: a row with a part removed
or changed; floor: untrained; anticipation: no goal is given, in separate tables."""
Sight = Literal["start", "start_motion", "motion_to_goal", "ends", "end_motion", "all_motion", "truth"]
"""What a row sees of a window besides training data: the pixels of Start; its head motion too; the head motion of every
step before the Goal too; the pixels of Start and Goal; their head motion too; the head motion of every step too; or its
true labels."""
WindowStep = Literal["start", "mids", "goal"]
STEPS: tuple[WindowStep, ...] = ("start", "mids", "goal")


class Seen(NamedTuple):
    """Steps of which a row sees the pixels, and those of which it sees the head motion."""

    pixels: frozenset[WindowStep]
    motion: frozenset[WindowStep]


SEEN: Mapping[Sight, Seen] = {
    "start": Seen(frozenset({"start"}), frozenset()),
    "start_motion": Seen(frozenset({"start"}), frozenset({"start"})),
    "motion_to_goal": Seen(frozenset({"start"}), frozenset({"start", "mids"})),
    "ends": Seen(frozenset({"start", "goal"}), frozenset()),
    "end_motion": Seen(frozenset({"start", "goal"}), frozenset({"start", "goal"})),
    "all_motion": Seen(frozenset({"start", "goal"}), frozenset(STEPS)),
}
"""Every sight but `truth`, which hides nothing."""
SHOWS: "Mapping[InputKind, Sight]" = {
    "no_traj": "ends",
    "endpoint_traj": "end_motion",
    "oracle": "all_motion",
    "start": "start",
    "start_motion": "start_motion",
    "motion_to_goal": "motion_to_goal",
}
"""Exact ceiling -> what its best decision has seen."""
REFERENCE = "no_traj"
"""The row that every other one is compared with, and the fallback of rows with a gate."""
RANKED = 5
"""Answers that are kept per step."""
SCORER_MODELS = ("traj", "no_traj", "scorer", "folds/traj", "folds/no_traj")
"""Models behind the Scorer: its training queries come from the chains of the folds, where there are any."""


def covers(bound: Sight, sees: Sight) -> bool:
    """Return whether `bound` sees at least what `sees` does."""
    if bound == "truth" or sees == "truth":
        return bound == "truth"
    return all(one >= other for one, other in zip(SEEN[bound], SEEN[sees], strict=True))


@dataclass(frozen=True)
class Answers:
    """Answers of one row of the tables for B windows of one horizon."""

    ids: "Tensor"
    """(B, H, R) long, best labels per position, descending, ties by smaller index."""
    scores: "Tensor"
    """(B, H, R) float32."""
    gate: "Tensor | None" = None
    """(B,) float32."""
    opened: "Tensor | None" = None
    """(B,) bool."""
    threshold: float | None = None
    """The gate opens from here on."""
    window: "Tensor | None" = None
    """(B,) long, row of the retrieved window that was used, -1 for the fallback."""
    decoded: "Tensor | None" = None
    """(B, H) long, the predicted sequence; None: the best labels."""
    kind: Literal["cosine", "probability"] = "cosine"
    """Kind of the scores."""


@dataclass(frozen=True)
class Gate:
    """Decision of a row, window by window, to answer with more than a fallback; texts are for people."""

    open_means: str
    """What answers where it is open; `fallback` answers where it is closed."""
    fallback: str = REFERENCE
    """The row that answers where it is closed."""


@dataclass(frozen=True)
class RowStyle:
    """How a row is drawn."""

    mark: str = "circle"
    """circle, square, triangle, diamond, plus, cross or none."""
    light: str = "#5b6470"
    """Colour on white."""
    dark: str = "#a9b2be"
    """Colour on black."""
    dash: str = ""
    """As SVG's stroke-dasharray; empty: a full line."""
    width: float = 1.9


@dataclass(frozen=True)
class Method:
    """One row of the tables.

    A row that a model here answers has `answer`; one that is trained elsewhere has `predictions`, the entry of a stage
    with columns of `schemas.results.Prediction`. The sight that it declares is checked by changing the rest
    (`methods.sight`), and its ceiling must have seen at least as much.

    Raises:
        MethodError: the declaration contradicts itself.
    """

    id: str
    name: str
    """As printed."""
    knows: str
    """Its inputs beyond the Start and Goal clips, for people."""
    sees: Sight
    role: Role
    models: tuple[str, ...]
    """Models that must be trained for the row to mean anything, as `evaluation.trained_rows.model_of` names them."""
    ceiling: "InputKind | None" = None
    """Exact ceiling of the simulated world that bounds it, by default the one that has seen what the row sees; None
    only for a row that is given the truth."""
    answer: "Callable[[WindowBatch], Answers | None] | None" = None
    """Answer a batch; returns None where the run has not trained what it needs: the row is absent then."""
    predictions: str | None = None
    """Entry with its predictions, where no model here answers."""
    metrics: tuple[str, ...] | None = None
    """Metrics that it can be scored on; None: all."""
    against: Mapping[str, str] = field(default_factory=dict)
    """Row -> meaning of the paired difference to it, empty where it needs no words. Every row is also compared with
    `REFERENCE`."""
    part_of: str | None = None
    """For an ablation: the row of which it removes or changes a part."""
    gate: Gate | None = None
    """Where it is closed the row answers with the gate's fallback."""
    follows: str | None = None
    """Name of the window whose motion it follows; None: it follows no single window."""
    has_model_per_horizon: bool = False
    """It is absent at a horizon without a model, and then has no means over the horizons."""
    in_gallery: bool = False
    """Its answers are kept window by window, for the gallery: main rows, and others shown next to them."""
    plans: int | None = None
    """Its place among the rows that answer a user's video, where the smallest decides; None: it does not answer one."""
    style: RowStyle = RowStyle()

    def __post_init__(self) -> None:
        if (self.answer is None) == (self.predictions is None):
            raise MethodError(f"method {self.id} has both or neither; give either `answer` or `predictions`")
        if self.ceiling is None:
            object.__setattr__(self, "ceiling", next((kind for kind, sees in SHOWS.items() if sees == self.sees), None))
        if self.ceiling is not None and not covers(SHOWS[self.ceiling], self.sees):
            raise MethodError(
                f"method {self.id} sees {self.sees}, more than its ceiling {self.ceiling} ({SHOWS[self.ceiling]}); a "
                "row is bounded by one that has seen at least as much"
            )

    @property
    def uses_the_truth(self) -> bool:
        """Return whether it sees the window's own middle motion or its true labels: never bold, never deployed."""
        return self.sees == "truth" or "mids" in SEEN[self.sees].motion

    @property
    def anticipates(self) -> bool:
        """Return whether it is given no goal."""
        return self.role == "anticipation"
