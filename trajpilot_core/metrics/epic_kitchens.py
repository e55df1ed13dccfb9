"""Metrics of action anticipation on EPIC-KITCHENS-100: one action a clip, ranked as a verb, a noun and a pair of both.

They form a separate list: a mean over classes is not a mean over windows.
Shapes: N clips, C classes of a head, K ranked classes. Definitions: docs/decisions/epic-probe.md; paper, appendix on
EPIC-KITCHENS-100.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trajpilot_core.arrays import Codes, Mask

ActionPart = Literal["verb", "noun", "action"]
PARTS: tuple[ActionPart, ...] = ("verb", "noun", "action")
Subset = Literal["overall", "unseen", "tail"]
SUBSETS: tuple[Subset, ...] = ("overall", "unseen", "tail")
"""Sets of the challenge; EPIC-KITCHENS-100 has no many-shot set."""
LabelSpace = Literal["challenge", "trained_pairs"]
SPACES: tuple[LabelSpace, ...] = ("challenge", "trained_pairs")
"""challenge: every clip counts; trained_pairs: clips whose pair is not in training are dropped, as in V-JEPA 2."""
TOP = 5
"""Ranked classes that count. Source: protocol of the corpus."""
PAIRS = 1_000_000
"""A pair's code is verb x PAIRS + noun; a class id has at most six digits (corpora/epic_kitchens/files.py)."""


@dataclass(frozen=True)
class ActionMetric:
    """One column of the table: the predicted class, and how its hits are averaged."""

    id: str
    """As printed."""
    description: str
    part: ActionPart
    k: int = TOP
    over: Literal["classes", "clips"] = "classes"
    """classes: recall of each class that occurs, then their unweighted mean; clips: share of the clips."""


VERB = ActionMetric("Verb", "class-mean recall of the verb among five", "verb")
NOUN = ActionMetric("Noun", "class-mean recall of the noun among five", "noun")
ACTION = ActionMetric("Action", "class-mean recall of the pair of verb and noun among five", "action")
ACTION_ACC = ActionMetric("Action Acc.", "clips with their pair among five", "action", over="clips")
ACTION_TOP1 = ActionMetric("Action top-1", "clips with their pair first", "action", k=1, over="clips")
EPIC_METRICS = {spec.id: spec for spec in (VERB, NOUN, ACTION, ACTION_ACC, ACTION_TOP1)}
"""The first four are the paper's columns, whose Action Acc. is top-5 of clips."""


class ActionClips(NamedTuple):
    """Ground truth of the scored clips; every array is (N,)."""

    verbs: Codes
    nouns: Codes
    is_unseen: Mask
    """The participant is in no training video."""
    is_tail_verb: Mask
    is_tail_noun: Mask
    has_trained_pair: Mask
    """The pair of verb and noun is in training."""

    def of(self, rows: Codes) -> "ActionClips":
        """Return the clips of some rows (M,), every array of which is (M,)."""
        unseen, tail_verb, tail_noun, known = (column[rows] for column in self[2:])
        return ActionClips(self.verbs[rows], self.nouns[rows], unseen, tail_verb, tail_noun, known)

    def classes(self, part: ActionPart) -> Codes:
        """Return (N,) the true classes of a part."""
        return {"verb": self.verbs, "noun": self.nouns, "action": pair_codes(self.verbs, self.nouns)}[part]

    def kept(self, subset: Subset, space: LabelSpace, part: ActionPart) -> Mask:
        """Return (N,): true for the clips of a set under a label space; the tail differs for each part."""
        tail = {"verb": self.is_tail_verb, "noun": self.is_tail_noun, "action": self.is_tail_verb | self.is_tail_noun}
        everything = np.ones(len(self.verbs), dtype=bool)
        of_subset = {"overall": everything, "unseen": self.is_unseen, "tail": tail[part]}[subset]
        kept: Mask = of_subset & (everything if space == "challenge" else self.has_trained_pair)
        return kept


def pair_codes(verbs: Codes, nouns: Codes) -> Codes:
    """Return one code for each pair of verb and noun; both have any one shape."""
    codes: Codes = np.asarray(verbs, np.int64) * PAIRS + np.asarray(nouns, np.int64)
    return codes


def ranked(logits_NC: NDArray[np.floating], classes_C: Codes, k: int = TOP) -> Codes:
    """Return (N, K): the classes of the highest logits, best first, ties to the earlier column; -1 fills a small head.

    Logits are ranked directly: a float32 sigmoid is 1.0 from about 17 on, which would tie them.
    """
    order = np.argsort(-np.asarray(logits_NC, np.float64), axis=1, kind="stable")[:, :k]
    classes = np.asarray(classes_C, np.int64)[order]
    return np.pad(classes, ((0, 0), (0, k - classes.shape[1])), constant_values=-1)


def hits_of(classes_N: Codes, ranking_NK: Codes, k: int) -> Mask:
    """Return (N,): true where the class is among the first k ranked ones."""
    hits: Mask = (ranking_NK[:, :k] == classes_N[:, None]).any(axis=1)
    return hits


def class_mean(classes_N: Codes, hits_N: Mask) -> float:
    """Return the mean over the present classes of the share of their clips that hit, percent; NaN without a clip."""
    if not len(classes_N):
        return float("nan")
    present, class_of = np.unique(classes_N, return_inverse=True)
    counts = np.bincount(class_of, minlength=len(present))
    return float(100.0 * (np.bincount(class_of, hits_N, minlength=len(present)) / counts).mean())


def clip_mean(hits_N: Mask) -> float:
    """Return the share of the clips that hit, percent; NaN without a clip."""
    return float(100.0 * hits_N.mean()) if len(hits_N) else float("nan")


class Score(NamedTuple):
    """The value of one metric on one set."""

    value: float
    """Percent; NaN where the set has no clip."""
    n_clips: int
    n_classes: int
    """Classes in the set."""


def score(
    metric: ActionMetric,
    clips: ActionClips,
    rankings: Mapping[ActionPart, Codes],
    subset: Subset = "overall",
    space: LabelSpace = "challenge",
) -> Score:
    """Score ranked answers; `rankings`: part -> (N, K) ranked classes, of actions by `pair_codes`."""
    kept = clips.kept(subset, space, metric.part)
    classes = clips.classes(metric.part)[kept]
    hits = hits_of(classes, rankings[metric.part][kept], metric.k)
    value = class_mean(classes, hits) if metric.over == "classes" else clip_mean(hits)
    return Score(value, len(classes), len(np.unique(classes)))
