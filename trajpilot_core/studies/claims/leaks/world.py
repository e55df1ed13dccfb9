"""Leak checks of the world itself: what motion, pictures, names and numbers reveal of the labels.

Bounds and reasons: docs/decisions/claims-checks.md. Axes: N segments that count, D numbers of one, V labels, T takes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from schemas.results import LeakCheck
from trajpilot_core.arrays import Array, Codes, Mask
from trajpilot_core.data.chains import alignment_config, chains_of, load_e_tau, trajectory_latents
from trajpilot_core.evaluation.bootstrap import MIN_CLUSTERS
from trajpilot_core.simworld.world.appearance import take_appearance
from trajpilot_core.studies.claims.leaks.context import LeakContext, at_least, at_most, none_of, not_run
from trajpilot_core.studies.claims.leaks.label_posterior import Shown, joint_beliefs
from trajpilot_core.studies.claims.leaks.probes import (
    NOTHING,
    ClusterMean,
    association_p,
    cluster_mean,
    grouped_p,
    one_hot,
    probe,
    weighted_sum,
)

TRAIN, DEV = 0, 1
NAMES = ("take_id", "name", "capture", "participant", "video", "trajectory", "timesync", "calibration", "camera")
"""Text columns of the takes table that are no label: `scenario` is the task's name, and no model reads it."""
NUMBERS = ("duration_s", "n_frames", "timesync_start", "timesync_end")
MOTION_COLUMNS = ("segment_id", "coverage", "quality", "max_gap_s")
SEGMENT_NUMBERS = (
    "duration",
    "time point within the segment",
    "start",
    "first frame",
    "last frame",
    "number of frames",
    "coverage",
    "quality",
    "longest gap",
)


class Target(NamedTuple):
    """Something that inputs may reveal of a segment, and what exact inference states of it. C classes."""

    name: str
    truth: Codes
    """(N,)."""
    log: Array
    """(N, C) log probabilities; zero for test segments and for those that the added probe is fitted on."""


class Known(NamedTuple):
    """What exact inference says from some latents."""

    senses: str
    label: Target
    coarse: tuple[Target, ...]
    """Task, primitive and intent: too few of their signs are seen in single labels."""


class Halves(NamedTuple):
    """Masks (N,): every other training take, the other training takes, dev takes."""

    early: Mask
    late: Mask
    dev: Mask


def world_checks(material: LeakContext) -> list[LeakCheck]:
    """Run the checks of motion, pictures, names and numbers."""
    return [
        *motion_checks(material),
        *picture_checks(material),
        palette_check(material),
        *name_checks(material),
        *number_checks(material),
    ]


def halves(material: LeakContext) -> Halves:
    """Divide the segments that count; probes that are added to exact inference are fitted on the first."""
    steps = material.steps
    fit = steps.split == TRAIN
    early = fit & np.isin(steps.take, np.unique(steps.take[fit])[::2])
    return Halves(early, fit & ~early, steps.split == DEV)


def motion_checks(material: LeakContext) -> list[LeakCheck]:
    """Probe the head motion with a linear probe and with the trained encoder, and count labels per primitive."""
    steps, world = material.steps, material.world
    motion = material.data.motions[steps.row].flatten(1).double().numpy()
    possible = known_of(material, "head motion", Shown(None, steps.motion))
    checks = [*probe_checks(material, "head motion", motion, possible), encoder_check(material, possible)]
    alone = known_of(material, "head motion", Shown(None, np.stack([steps.at, steps.at], axis=1)))
    own = alone.label.log[steps.split == DEV]
    best = 100 * float(np.exp(own).max(axis=1).mean()) if len(own) else 0.0
    named = [check.value for check in (checks[0], checks[2]) if check.bound is not None]
    shown = ", ".join(f"{value:.1f}" for value in named) or "not run"
    detail = f"percent of dev labels; exact, from a step's own latent motion, {best:.1f}; probes {shown}"
    bound = material.config.named_by_motion
    checks.append(at_most("head motion does not name the label", max(best, *named, 0.0), bound, detail))
    count = np.bincount([label.primitive for label in world.labels])
    single = [f"primitive {i} belongs to one label only" for i in np.flatnonzero(count == 1)]
    holds = f"{np.count_nonzero(count)} primitives of {count[count > 0].min()} labels or more"
    return [*checks, none_of("every motion primitive is shared by several labels", single, holds)]


def picture_checks(material: LeakContext) -> list[LeakCheck]:
    """Probe the picture features; a video shows the head motion too, a still head does not."""
    steps, still = material.steps, material.world.config.enters_by_features()
    features = material.data.features[steps.row].float().mean(1).double().numpy()
    senses = "look and place" if still else "look, place and head motion"
    known = known_of(material, senses, Shown(steps.appearance, None if still else steps.motion))
    return probe_checks(material, "picture features", features, known)


def known_of(material: LeakContext, senses: str, shown: Shown) -> Known:
    """Infer label, task, primitive and intent from the latents that segments show, where a check needs it."""
    steps, sound, parts, labels = material.steps, material.sound(), halves(material), material.world.labels
    truths = [truth for take in sound if (truth := material.truths[take]) is not None]
    rows = np.flatnonzero(parts.late | parts.dev)
    truth_of = np.searchsorted(sound, steps.take)
    spans = Shown(*(None if span is None else span[rows] for span in shown))
    joint = joint_beliefs(material.world, truths, truth_of[rows], steps.at[rows], spans)

    def target(name: str, truth: Codes, mass: Array) -> Target:
        """Spread (n, C) probabilities of the rows looked at over all segments; shape (N, C)."""
        log = np.zeros((len(truth), mass.shape[1]))
        log[rows] = np.log(mass + NOTHING)
        return Target(name, truth, log)

    mass_NV, coarse = joint.sum(axis=2), []
    for name, of_label in (("task", [x.task for x in labels]), ("primitive", [x.primitive for x in labels])):
        classes = np.array(of_label, np.int64)
        coarse.append(target(name, classes[steps.label], mass_NV @ one_hot(classes, int(classes.max()) + 1)))
    intent = np.array([truth.intent for truth in truths], np.int64)[truth_of]
    coarse.append(target("intent", intent, joint.sum(axis=1)))
    return Known(senses, target("label", steps.label, mass_NV), tuple(coarse))


def probe_checks(material: LeakContext, what: str, inputs_ND: Array, known: Known) -> list[LeakCheck]:
    """Check that a linear probe names no more dev labels than exact inference, and adds nothing to it."""
    steps = material.steps
    fit, dev = np.flatnonzero(steps.split == TRAIN), np.flatnonzero(steps.split == DEV)
    n_takes = [len(np.unique(steps.take[rows])) for rows in (fit, dev)]
    names = (f"{what}: a linear probe names no more labels than the latents can", f"{what}: nothing beyond the latents")
    if min(n_takes) < MIN_CLUSTERS:
        why = f"{n_takes[0]} training and {n_takes[1]} dev takes; {MIN_CLUSTERS} of each are needed"
        return [not_run(name, why) for name in names]
    answers = probe(inputs_ND[fit], steps.label[fit], inputs_ND[dev], len(material.world.labels), material.config)
    right = 1.0 * (answers.argmax(axis=1) == steps.label[dev])
    return [possible_check(material, names[0], right, known), added_check(material, names[1], inputs_ND, known)]


def possible_check(material: LeakContext, check: str, right: Array, known: Known) -> LeakCheck:
    """Check that answers to the dev segments are right no more often than exact inference expects to be.

    Args:
        material: the run.
        check: name of the check.
        right: shape (M,), 1 where the answer to a dev segment is right.
        known: exact inference on all segments that count.
    """
    dev = material.steps.split == DEV
    possible = 100 * np.exp(known.label.log[dev]).max(axis=1)
    gap = cluster_mean(100 * right - possible, material.steps.take[dev])
    detail = (
        f"percent of {len(right)} dev segments of {gap.n_takes} takes; exact inference from {known.senses} "
        f"{possible.mean():.2f}, standard error of the difference {gap.standard_error:.2f}"
    )
    bound = min(100.0, float(possible.mean()) + material.config.errors * gap.standard_error)
    return at_most(check, 100 * float(right.mean()), bound, detail)


def added_check(material: LeakContext, check: str, inputs_ND: Array, known: Known) -> LeakCheck:
    """Check that exact inference gets no better when a probe of the inputs is added to it.

    The probe is fitted on every other training take, the two weights on the rest, the gain is measured on dev takes.
    What depends on the latents alone can add nothing, however much of them it shows. Gains are in standard errors.
    """
    worst, gains = 0.0, []
    for target in (known.label, *known.coarse):
        gain, exact = gain_of(material, inputs_ND, target)
        if gain.mean > 0:
            worst = max(worst, gain.mean / gain.standard_error if gain.standard_error > 0 else float("inf"))
        gains.append(f"{target.name} {gain.mean:+.2f} ({gain.standard_error:.2f}) on {exact:.1f} percent")
    detail = f"standard errors; points that a probe gains on exact inference from {known.senses}: {', '.join(gains)}"
    return at_most(check, worst, material.config.errors, detail)


def gain_of(material: LeakContext, inputs_ND: Array, target: Target) -> tuple[ClusterMean, float]:
    """Return the points that exact inference gains on dev by a probe of the inputs, and its own percent right."""
    early, late, dev = halves(material)
    take, config, n_classes = material.steps.take, material.config, target.log.shape[1]
    answers = np.zeros_like(target.log)
    answers[late | dev] = probe(inputs_ND[early], target.truth[early], inputs_ND[late | dev], n_classes, config)
    weights = weighted_sum(target.log[late], answers[late], target.truth[late], config)
    both = weights[0] * target.log[dev] + weights[1] * answers[dev]
    right, alone = (100.0 * (table.argmax(axis=1) == target.truth[dev]) for table in (both, target.log[dev]))
    return cluster_mean(right - alone, take[dev]), float(alone.mean())


def encoder_check(material: LeakContext, known: Known) -> LeakCheck:
    """Check that the trained motion encoder names no more dev labels than exact inference."""
    check = "head motion: the trained encoder names no more labels than the latents can"
    steps, data = material.steps, material.data
    dev = np.flatnonzero(steps.split == DEV)
    if len(np.unique(steps.take[dev])) < MIN_CLUSTERS or not material.has("e_tau"):
        return not_run(check, f"no encoder, or fewer than {MIN_CLUSTERS} dev takes")
    encoders = material.inputs.models("e_tau")
    found = []
    for seed in alignment_config(encoders).seeds:
        encoder = load_e_tau(encoders, chains_of(data)[0], seed, "cpu")
        nearest = (trajectory_latents(encoder, data.motions[steps.row[dev]]) @ data.bank.T).argmax(1)
        right = 1.0 * (nearest == data.labels[steps.row[dev]]).numpy()
        found.append(possible_check(material, check, right, known))
    return max(found, key=lambda row: row.value - (row.bound or 0.0))


def palette_check(material: LeakContext) -> LeakCheck:
    """Check that the colours of the objects differ from take to take and go neither with its task nor its labels."""
    check = "object colours belong to the take, not to labels"
    world, sound, config = material.world, material.sound(), material.config
    sound = sound[:: max(1, -(-len(sound) // config.most_palettes))]
    truths = [truth for take in sound if (truth := material.truths[take]) is not None]
    colours = np.stack([take_appearance(world, truth).objects.reshape(-1) for truth in truths]).astype(np.float64)
    twice = len(colours) - len(np.unique(colours, axis=0)) if world.config.scene > 0 else 0
    p = 0.0 if twice else association_p(colours, take_targets(material, sound), config)
    detail = f"p-value over {len(sound)} takes; {twice} palettes occur twice (a fault, unless scene is 0)"
    return at_least(check, p, config.smallest_p, detail)


def task_targets(material: LeakContext, takes: Codes) -> Array:
    """Return (T, tasks) indicators of the true task of some sound takes."""
    tasks = [truth.task for take in takes if (truth := material.truths[take]) is not None]
    return one_hot(np.array(tasks, np.int64), material.world.config.tasks)


def label_shares(material: LeakContext, takes: Codes) -> Array:
    """Return (T, V): how often each label occurs among the segments of some takes, as shares."""
    counts = np.zeros((len(material.takes), len(material.world.labels)))
    np.add.at(counts, (material.steps.take, material.steps.label), 1.0)
    return np.asarray(counts[takes] / np.maximum(counts[takes].sum(axis=1, keepdims=True), 1.0))


def take_targets(material: LeakContext, takes: Codes) -> Array:
    """Return tasks and label shares, shape (T, tasks + V)."""
    return np.hstack([task_targets(material, takes), label_shares(material, takes)])


def name_checks(material: LeakContext) -> list[LeakCheck]:
    """Check that names, ids and the order of the takes show neither task nor labels, label ids no position."""
    world, sound, config = material.world, material.sound(), material.config
    order = {take: i for i, take in enumerate(material.inputs.table("takes", ["take_id"])["take_id"].to_pylist())}
    order_in_table = np.array([[order[material.data.take_ids[take]]] for take in sound], np.float64)
    texts = [[str(material.takes[take][name] or "") for take in sound] for name in NAMES]
    inputs = np.hstack([order_in_table, *(characters(column) for column in texts)])
    detail = f"p-value over {len(sound)} takes; characters of {', '.join(NAMES)}, and the order of the table"
    checks = []
    for what, targets in (("task", task_targets(material, sound)), ("labels", label_shares(material, sound))):
        check = f"names, ids and order of the takes do not tell the {what}"
        checks.append(at_least(check, association_p(inputs, targets, config), config.smallest_p, detail))
    numbers = np.array([(x.task, x.task * world.config.positions + x.position, x.alternative) for x in world.labels])
    targets = np.hstack([one_hot(column, int(column.max()) + 1) for column in numbers.T])
    p = association_p(characters([label.label_id for label in world.labels]), targets, config)
    detail = f"p-value over {len(world.labels)} labels"
    return [*checks, at_least("label ids do not tell a label's place", p, config.smallest_p, detail)]


def characters(texts: Sequence[str]) -> Array:
    """Return shape (T, L + 2): codes of the characters, -1 past the end, the length, the rank in the alphabet."""
    longest = max(map(len, texts), default=0)
    rank = np.unique(texts, return_inverse=True)[1].tolist()
    rows = [
        [*map(ord, text), *[-1] * (longest - len(text)), len(text), at] for text, at in zip(texts, rank, strict=True)
    ]
    return np.array(rows, np.float64).reshape(len(texts), longest + 2)


def number_checks(material: LeakContext) -> list[LeakCheck]:
    """Check that durations and indices of frames tell neither the labels of segments nor those of whole takes."""
    steps, sound, config = material.steps, material.sound(), material.config
    values = segment_numbers(material)
    p_segment = grouped_p(values, steps.label, steps.take, config)
    numbers = np.array([[float(material.takes[take][name] or 0.0) for name in NUMBERS] for take in sound])
    p_take = association_p(numbers, take_targets(material, sound), config)
    of_segments = f"p-value over {len(values)} segments; {', '.join(SEGMENT_NUMBERS)}"
    of_takes = f"p-value over {len(sound)} takes; {', '.join(NUMBERS)}"
    least = config.smallest_p
    return [
        at_least("durations and frames of segments do not tell their labels", p_segment, least, of_segments),
        at_least("durations and frames of takes tell neither task nor labels", p_take, least, of_takes),
    ]


def segment_numbers(material: LeakContext) -> Array:
    """Return (N, 9): what accompanies a segment and is neither motion nor picture, as SEGMENT_NUMBERS names it."""
    motions = {row["segment_id"]: row for row in material.inputs.table("motions", MOTION_COLUMNS).to_pylist()}
    encoded = material.inputs.table("features", ["segment_id", "frame_times_s"])
    times = dict(zip(encoded["segment_id"].to_pylist(), encoded["frame_times_s"].to_pylist(), strict=True))
    rows = []
    for row in material.steps.row:
        segment = material.segments[row]
        motion, frames = motions[segment["segment_id"]], times[segment["segment_id"]]
        start_s, length_s = segment["start_s"], segment["end_s"] - segment["start_s"]
        within = (segment["anchor_s"] - start_s) / length_s
        shown = (frames[0] - start_s, frames[-1] - segment["end_s"], len(frames))
        rows.append((length_s, within, start_s, *shown, *(motion[name] for name in MOTION_COLUMNS[1:])))
    return np.array(rows, np.float64).reshape(-1, len(SEGMENT_NUMBERS))
