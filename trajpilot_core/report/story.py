"""The question that a run was made for. The rows of the run determine it, so each recipe has its own first screen."""

from collections.abc import Collection
from dataclasses import dataclass

from trajpilot_core.methods import anticipation, charted, examined, in_order, latent, method, planners, with_role
from trajpilot_core.methods.base import REFERENCE

AVERAGE = "pool_mean"
"""The control next to the main rows: what their gain is without choosing. Named by hand: the first chart asks this one
question, and another control answers another."""


@dataclass(frozen=True)
class Story:
    """A comparison: which rows the first screen shows, and which difference answers the question."""

    question: str
    rows: tuple[str, ...]
    """Rows of the first table, in the order of the tables."""
    candidates: tuple[str, ...]
    """Rows that may answer the question: the first one that was compared with the reference does."""
    reference: str = REFERENCE
    picks_best: bool = False
    """The best candidate answers, not the first."""

    @property
    def charted(self) -> list[str]:
        """Rows whose difference to the reference the first chart shows."""
        more = {AVERAGE} if self.reference == REFERENCE else set()
        return in_order({*self.rows, *more} - {self.reference})


def story_of(variants: Collection[str]) -> Story:
    """Return the question of a run that scored these rows."""
    ids = set(variants)
    if latent.CEM.id in ids and latent.NO_TRAJ.id in ids:
        rows = tuple(one.id for one in latent.ROWS)
        searches = tuple(row for row in rows if not method(row).uses_the_truth and row != latent.NO_TRAJ.id)
        question = "Planning in the encoder’s latent space: does searching for a head motion help?"
        return Story(question, rows, searches, latent.NO_TRAJ.id)
    if anticipation.NO_TRAJ.id in ids:
        rows = tuple(with_role("anticipation"))
        question = "Anticipation: only the first clip is given, no goal. Does a retrieved head motion help?"
        return Story(question, rows, (anticipation.SCORER.id, anticipation.ENDPOINT_TRAJ.id), anticipation.NO_TRAJ.id)
    rows = tuple(charted())
    nets = tuple(one.id for one in planners.PLANNERS if one.id in ids)
    if nets:
        question = (
            "The steps between two clips: how do planners of other papers compare with rows that use head motion?"
        )
        return Story(question, rows, nets, picks_best=True)
    main = [row for row in with_role("main") if not method(row).uses_the_truth]
    question = "The steps between two clips: does a retrieved head motion help to predict them?"
    return Story(question, rows, tuple(dict.fromkeys((examined().id, *main))))
