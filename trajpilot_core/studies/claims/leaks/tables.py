"""Leak checks of the tables: who is in which split, what was fitted on whom, and whose statistics normalise.

Rules and reasons: docs/decisions/claims-checks.md. Axes: S segments, T takes.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from schemas.results import LeakCheck
from trajpilot_core.data.chains import chains_of, fitting_takes, predictor_config
from trajpilot_core.data.cross_fitting import Chain, noted_fitted, trained_variants
from trajpilot_core.data.planning import SPLITS, load_motion_data, rows_of_takes
from trajpilot_core.models.alignment import channel_scale
from trajpilot_core.models.predictor import feature_scales
from trajpilot_core.store.tensors import Models
from trajpilot_core.studies.claims.leaks.context import LeakContext, at_most, none_of, not_run

RELEASED = {"train": ("train", "dev"), "val": ("test",)}
"""Split of the world -> splits that its takes may have in the tables."""


def table_checks(material: LeakContext) -> list[LeakCheck]:
    """Run the checks of splits, fits and statistics."""
    return [
        world_takes_check(material),
        splits_check(material),
        content_check(material),
        windows_check(material),
        fits_check(material),
        candidates_check(material),
        *normalisation_checks(material),
    ]


def world_takes_check(material: LeakContext) -> LeakCheck:
    """Check that every take of the tables is one of the world, in the split that the world gave it."""
    faults = []
    for row, truth in zip(material.takes, material.truths, strict=True):
        if truth is None:
            faults.append(f"{row['take_id']} is no take of this world")
        elif row["split"] not in RELEASED[truth.split]:
            faults.append(f"{row['take_id']} was released as {truth.split} and is used as {row['split']}")
    check = "no take that the world released for testing is used for training or dev"
    return none_of(check, faults, f"{len(material.takes)} takes looked at")


def splits_check(material: LeakContext) -> LeakCheck:
    """Check that every take stands in the table once, and that a capture, its segments and windows share its split."""
    split = {row["take_id"]: row["split"] for row in material.takes}
    names = material.inputs.table("takes", ["take_id"])["take_id"].to_pylist()
    faults = [f"take {name} stands in the table twice" for name, n in sorted(Counter(names).items()) if n > 1]
    captures: dict[str, set[str]] = defaultdict(set)
    for row in material.takes:
        captures[row["capture"]].add(row["split"])
    faults += [f"capture {name} is in {', '.join(sorted(s))}" for name, s in captures.items() if len(s) > 1]
    for table in ("segments", "windows"):
        rows = material.inputs.table(table, ["take_id", "split"]).group_by(["take_id", "split"]).aggregate([])
        for take, part in zip(rows["take_id"].to_pylist(), rows["split"].to_pylist(), strict=True):
            if split.get(take) != part:
                faults.append(f"{table} of take {take} are {part}, the take is {split.get(take, 'unknown')}")
    count = ", ".join(f"{list(split.values()).count(name)} {name}" for name in SPLITS)
    return none_of("no take or capture is in two splits", faults, f"{count} takes in {len(captures)} captures")


def content_check(material: LeakContext) -> LeakCheck:
    """Check that no segment's motion or feature occurs, number for number, in another take."""
    data = material.data
    take = data.segment_take.numpy()
    faults = []
    for what, values in (("head motion", data.motions), ("feature", data.features)):
        for first, second in shared_rows(values.flatten(1).numpy(), take):
            faults.append(f"{what} of {data.segment_ids[first]} is that of {data.segment_ids[second]}")
    check = "no segment of one take is a copy of another take's"
    return none_of(check, faults, f"{len(take)} segments, motion and features compared number for number")


def shared_rows(values: NDArray[np.generic], take: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return pairs of rows with equal bytes whose takes differ.

    Args:
        values: (S, D).
        take: (S,).
    """
    first: dict[bytes, int] = {}
    pairs = []
    for row, content in enumerate(map(bytes, np.ascontiguousarray(values))):
        other = first.setdefault(content, row)
        if take[other] != take[row]:
            pairs.append((other, row))
    return pairs


def windows_check(material: LeakContext) -> LeakCheck:
    """Check that a window holds consecutive segments of one run of its own take."""
    columns = material.inputs.table("segments", ["segment_id", "take_id", "run", "position"]).to_pylist()
    at = {row["segment_id"]: (row["take_id"], row["run"], row["position"]) for row in columns}
    windows = material.inputs.table("windows", ["window_id", "take_id", "segment_ids"]).to_pylist()
    faults = []
    for row in windows:
        found = [at.get(segment, ("", -1, -1)) for segment in row["segment_ids"]]
        _, run, first = found[0]
        if found != [(row["take_id"], run, first + i) for i in range(len(found))]:
            faults.append(f"window {row['window_id']} leaves its take, run or order")
    return none_of("no window leaves its take", faults, f"{len(windows)} windows")


def fits_check(material: LeakContext) -> LeakCheck:
    """Check that the takes that models were fitted on, as their entries name them, are those that they may see."""
    check = "models are fitted on training takes outside their fold only"
    entries = [name for name in ("e_tau", "predictors") if material.has(name)]
    noted = {name: noted_fitted(material.inputs.models(name).about) for name in entries}
    silent, n = [name for name in entries if not noted[name]], sum(map(len, noted.values()))
    allowed = {chain.name: allowed_takes(material, chain) for chain in chains_of(material.data)}
    faults = [
        f"{name}, {chain}: {take} ({split_of(material, take)})"
        for name in entries
        for chain, takes in noted[name].items()
        for take in sorted(set(takes) - allowed.get(chain, set()))
    ]
    if not faults and (silent or not entries):
        return not_run(check, f"no record of the takes that were fitted: {', '.join(silent) or 'no model'}")
    return none_of(check, faults, f"{n} fits of {', '.join(entries)}")


def allowed_takes(material: LeakContext, chain: Chain) -> set[str]:
    """Return the ids of the takes that a chain may be fitted on."""
    data = material.data
    return {data.take_ids[i] for i in fitting_takes(data.take_split, data.fold, chain).tolist()}


def split_of(material: LeakContext, take: str) -> str:
    """Return the split of a take, with its fold where it is a training take."""
    if take not in material.data.take_ids:
        return "unknown"
    at = material.data.take_ids.index(take)
    split = SPLITS[int(material.data.take_split[at])]
    return f"train, fold {int(material.data.fold[at])}" if split == "train" else split


def candidates_check(material: LeakContext) -> LeakCheck:
    """Check that only test takes are scored, with candidates from takes that the final chain was fitted on."""
    check = "only test takes are scored, with candidates from fitted training takes"
    if not material.has("predictions"):
        return not_run(check, "this run has no predictions")
    predictions = material.inputs.table("predictions", ["take_id", "window_id", "candidate"])
    split = {row["take_id"]: row["split"] for row in material.takes}
    scored = predictions["take_id"].unique().to_pylist()
    faults = [f"{take} is scored and {split.get(take, 'unknown')}" for take in scored if split.get(take) != "test"]
    windows = material.inputs.table("windows", ["window_id", "take_id"])
    take_of = dict(zip(windows["window_id"].to_pylist(), windows["take_id"].to_pylist(), strict=True))
    allowed = allowed_takes(material, chains_of(material.data)[0])
    used = [name for name in predictions["candidate"].unique().to_pylist() if name is not None]
    takes = {name: take_of.get(name, "") for name in used}
    faults += [f"candidate {n} is of {t} ({split_of(material, t)})" for n, t in takes.items() if t not in allowed]
    faults += [f"window {name} retrieved its own take" for name in own_candidates(predictions, take_of)]
    return none_of(check, faults, f"{len(scored)} takes scored, {len(used)} windows retrieved")


def own_candidates(predictions: pa.Table, take_of: Mapping[str, str]) -> list[str]:
    """Return the windows whose candidate is a window of their own take."""
    pairs = predictions.group_by(["take_id", "window_id", "candidate"]).aggregate([]).to_pylist()
    return [row["window_id"] for row in pairs if row["candidate"] and take_of.get(row["candidate"]) == row["take_id"]]


def normalisation_checks(material: LeakContext) -> list[LeakCheck]:
    """Check that means and scales are those of the fitted takes, and not those of all takes."""
    predictors, e_tau = "features are normalised by fitted takes alone", "head motion is scaled by fitted takes alone"
    return [
        statistics_check(material, predictors, feature_statistics(material))
        if material.has("predictors")
        else not_run(predictors, "this run has no predictors"),
        statistics_check(material, e_tau, motion_statistics(material))
        if material.has("e_tau")
        else not_run(e_tau, "this run has no motion encoder"),
    ]


class Statistics(NamedTuple):
    """Stored means or scales of one model next to those that it should have; shapes (n,)."""

    model: str
    stored: Tensor
    own: Tensor
    """Of the takes that the model may see."""
    everybody: Tensor
    """Of all takes."""
    unit: Tensor


def feature_statistics(material: LeakContext) -> list[Statistics]:
    """Return every predictor's `feature_mean` and `feature_scale`, and those of the takes that its chain may see."""
    data, models = material.data, material.inputs.models("predictors")
    everybody = torch.cat(feature_scales(data.features))
    found = []
    for chain in chains_of(data):
        rows = rows_of_takes(data.segment_take, fitting_takes(data.take_split, data.fold, chain))
        mean, scale = feature_scales(data.features[rows])
        for key in model_keys(models, chain, trained_variants(chain, predictor_config(models))):
            stored = torch.cat(stored_buffers(models, key, ("feature_mean", "feature_scale")))
            found.append(Statistics(key, stored, torch.cat([mean, scale]), everybody, scale.repeat(2)))
    return found


def motion_statistics(material: LeakContext) -> list[Statistics]:
    """Return every motion encoder's `scale`, and that of the takes that its chain may see."""
    data, models = load_motion_data(material.inputs), material.inputs.models("e_tau")
    everybody = channel_scale(data.motions)
    found = []
    for chain in chains_of(material.data):
        takes = fitting_takes(material.data.take_split, material.data.fold, chain)
        scale = channel_scale(data.motions[rows_of_takes(data.segment_take, takes)])
        for key in model_keys(models, chain, ("e_tau",)):
            (stored,) = stored_buffers(models, key, ("scale",))
            found.append(Statistics(key, stored, scale, everybody, scale))
    return found


def statistics_check(material: LeakContext, check: str, found: Sequence[Statistics]) -> LeakCheck:
    """Check that stored statistics are the fitted takes' and distinguish them from those of all takes."""
    if not found:
        return not_run(check, "the entry holds no such model")
    off = {one.model: float(((one.stored - one.own) / one.unit).abs().max()) for one in found}
    apart = min(float(((one.own - one.everybody) / one.unit).abs().max()) for one in found)
    bound = material.config.scale_tolerance
    if apart <= 2 * bound:
        return not_run(check, f"fitted and all takes differ by {apart:.1e} only; nothing could be told")
    worst = max(off, key=lambda key: off[key])
    detail = f"largest relative difference, {worst} of {len(off)} models; all takes would differ by {apart:.1e} or more"
    return at_most(check, off[worst], bound, detail)


def model_keys(models: Models, chain: Chain, variants: Sequence[str]) -> list[str]:
    """Return the keys `<chain>/s<seed>/<variant>` of a chain's models, of any seed."""
    wanted = rf"{chain.name}/s\d+/({'|'.join(variants)})"
    return [key for key in models.keys if re.fullmatch(wanted, key)]


def stored_buffers(models: Models, key: str, names: Sequence[str]) -> list[Tensor]:
    """Return buffers of one model, shapes (n,), and keep nothing else of it."""
    weights = models.read(key)
    return [torch.tensor(weights[name]) for name in names]
