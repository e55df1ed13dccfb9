"""Whether features of a world by latents tell what features of still frames tell: probes and distances on equal takes.

Linear probes are fitted on segments of training takes and scored on those of test takes; a take is recognised among
the test takes, fitted on every other segment of each. Distances are those of the scene geometry, relative to random
pairs. Axes: S segments, D feature width. Source: docs/decisions/latents.md.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from schemas.checks import GeometryConfig, LeakConfig
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.corpora.records.tables import Tables
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.simworld.feature_space import by_take
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.studies.claims.leaks.probes import cluster_mean, probe
from trajpilot_core.studies.claims.worlds.geometry import KINDS, ScoredSegments, codes, distances, pairs_of

SAME_TAKE = "same_take_other_label"
"""Pairs of one take with different labels, however near."""


@dataclass(frozen=True)
class SegmentFacts:
    """What is true of S segments, in the order of the takes' ids and of time."""

    ids: tuple[str, ...]
    take_ids: tuple[str, ...]
    """Of all takes, sorted."""
    take: Codes
    """(S,) index into take_ids."""
    capture: Codes
    run: Codes
    position: Codes
    """(S,) in the take."""
    is_test: Mask
    targets: Mapping[str, Codes]
    """Name -> (S,) what a probe is asked."""


class Reading(NamedTuple):
    """One figure of one set of features."""

    name: str
    value: float
    error: float | None
    """Standard error over takes; None for distances."""
    chance: float | None
    """What guessing gets; None for distances."""


def segment_facts(world: World, tables: Tables) -> SegmentFacts:
    """Collect what is true of every segment of a world without broken takes."""
    rows = {row["segment_id"]: row for row in tables.segments.to_pylist()}
    capture = {row["take_id"]: row["capture"] for row in tables.takes.to_pylist()}
    truth = {take_id(take.uid): take for take in world.takes}
    ids = [name for members, _, _ in by_take(tables.segments).values() for name in members]
    mine = [rows[name] for name in ids]
    take_ids = tuple(sorted(capture))
    steps = [truth[row["take_id"]].segments[row["position"]] for row in mine]
    labels = [world.labels[step.label] for step in steps]
    targets = {
        "task": [label.task for label in labels],
        "task and position": [label.task * world.config.positions + label.position for label in labels],
        "label": [step.label for step in steps],
        "place of the object": [step.place for step in steps],
    }
    return SegmentFacts(
        ids=tuple(ids),
        take_ids=take_ids,
        take=np.searchsorted(take_ids, [row["take_id"] for row in mine]),
        capture=codes([capture[row["take_id"]] for row in mine]),
        run=np.array([row["run"] for row in mine], np.int64),
        position=np.array([row["position"] for row in mine], np.int64),
        is_test=np.array([row["split"] == "test" for row in mine]),
        targets={name: np.array(values, np.int64) for name, values in targets.items()},
    )


def readings(features_SD: Array, facts: SegmentFacts, cfg: LeakConfig, geometry: GeometryConfig) -> list[Reading]:
    """Return what probes and distances say of one set of features, rows as in `facts`; shares are percentages."""
    test = facts.is_test
    asked = [(name, truth, ~test, test) for name, truth in facts.targets.items()]
    is_even = facts.position % 2 == 0
    asked.append(("take", facts.take, test & is_even, test & ~is_even))
    shares = [share_read(name, features_SD, (truth, facts.take), fit, score, cfg) for name, truth, fit, score in asked]
    nearest = share_of_nearest(features_SD, facts)
    return [*shares, nearest, *relative_distances(features_SD, facts, geometry)]


def share_read(
    name: str, features_SD: Array, truth: tuple[Codes, Codes], fit_S: Mask, score_S: Mask, cfg: LeakConfig
) -> Reading:
    """Fit a linear probe on the rows of `fit_S`; return how many rows of `score_S` it reads right, in percent.

    Chance is the share of the class that is most frequent among the fitted rows. `truth` is what is asked, (S,), and
    the take of every row, (S,).
    """
    truth_S, take_S = truth
    classes, code = np.unique(truth_S, return_inverse=True)
    answers = probe(features_SD[fit_S], code[fit_S], features_SD[score_S], len(classes), cfg).argmax(axis=1)
    usual = np.bincount(code[fit_S]).argmax()
    return share_right(name, answers, np.full(len(answers), usual), code[score_S], take_S[score_S])


def share_right(name: str, answers_S: Codes, usual_S: Codes, truth_S: Codes, take_S: Codes) -> Reading:
    """Return the share of right answers with its standard error, and that of the usual answer, in percent."""
    right = cluster_mean((answers_S == truth_S).astype(np.float64), take_S)
    return Reading(name, 100 * right.mean, 100 * right.standard_error, 100 * float((usual_S == truth_S).mean()))


def share_of_nearest(features_SD: Array, facts: SegmentFacts) -> Reading:
    """Return how many test segments have the label of their nearest training segment, in percent."""
    features = standardised_features(features_SD, facts)
    test, label = facts.is_test, facts.targets["label"]
    nearest = distances(features[test], features[~test]).argmin(dim=1).numpy()
    usual = np.bincount(label[~test]).argmax()
    usual_S = np.full(int(test.sum()), usual)
    return share_right("label of the nearest segment", label[~test][nearest], usual_S, label[test], facts.take[test])


def standardised_features(features_SD: Array, facts: SegmentFacts) -> torch.Tensor:
    """Return (S, D) features standardised per component on the training takes."""
    features = torch.from_numpy(features_SD.astype(np.float32))
    mean, scale = feature_scales(features[~facts.is_test][:, None])
    return (features - mean) / scale


def relative_distances(features_SD: Array, facts: SegmentFacts, cfg: GeometryConfig) -> list[Reading]:
    """Return the mean distances between test segments of one kind each, divided by that of random pairs."""
    rows = np.flatnonzero(facts.is_test)
    segments = ScoredSegments(
        ids=tuple(facts.ids[row] for row in rows),
        features=standardised_features(features_SD, facts)[rows],
        take_ids=facts.take_ids,
        take=facts.take[rows],
        capture=facts.capture[rows],
        run=facts.run[rows],
        position=facts.position[rows],
        label=facts.targets["label"][rows],
    )
    every, far = np.arange(len(rows)), distances(segments.features, segments.features).numpy()
    means = {kind: float(far[pairs_of(segments, every, kind, cfg)].mean()) for kind in KINDS}
    same_take = segments.take[:, None] == segments.take
    means[SAME_TAKE] = float(far[same_take & (segments.label[:, None] != segments.label)].mean())
    return [Reading(f"distance: {kind}", value / means["random"], None, None) for kind, value in means.items()]
