"""The checks that every evaluation makes of itself; each returns judgements, none raises.

Check names begin with their group: `identity` (what must hold by definition), `leak` (nothing of the test is seen in
training), `trained`, `demo` (what the simulated demo must show), `claim` (what the paper says, printed as it falls).
Only a failed `identity`, `leak` or `demo` speaks of a fault. Source: docs/decisions/metrics.md.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from schemas.results import Judgement, Metric
from trajpilot_core.evaluation.blocks import Block, Predictions
from trajpilot_core.evaluation.tables import REFERENCE, Growth, gate_gains

TOLERANCE = 1e-6
"""Percentage points; the tables are rounded to nine places."""
Verdict = Literal["holds", "fails", "undecided", "undertrained", "not run"]


Fitted = Mapping[str, Sequence[str]]
"""Chain -> ids of the takes that it was fitted on."""


@dataclass(frozen=True)
class Evidence:
    """Everything that the checks look at."""

    predictions: Predictions
    metrics: Sequence[Metric]
    take_split: Mapping[str, str]
    """Take id -> train, dev or test."""
    window_take: Mapping[str, str]
    """Window id -> take id, at least of every window that served as a candidate."""
    folds: Mapping[str, int]
    """Training take -> fold; -1 marks the takes fitted in the cheap mode."""
    trained: Sequence[Judgement] = field(default_factory=tuple)
    """One judgement per model, `trained: <chain>/<model>, seed <seed>`."""
    growth: Growth | None = None
    """Oracle's lead over No-Traj, longest horizon against shortest."""
    fitted: Mapping[str, Fitted | None] = field(default_factory=dict)
    """Model entry -> what its metadata say it was fitted on; None where they say nothing."""


class Claim(NamedTuple):
    """A sign that a paired difference must have at every horizon from `first_horizon` on."""

    check: str
    variant: str
    reference: str
    sign: int
    models: tuple[str, ...]
    """Models that must be trained for the claim to mean anything, as `model_of` names them."""
    first_horizon: int = 3
    metric: str = "M@1"


SCORER_MODELS = ("traj", "no_traj", "scorer", "folds/traj", "folds/no_traj")
"""What the Scorer rests on: its own training queries come from the chains of the folds, where there are any."""

CLAIMS: tuple[Claim, ...] = (
    Claim("demo: Oracle is above No-Traj at every H", "oracle", "no_traj", 1, ("traj", "no_traj")),
    Claim("claim: the Scorer is above No-Traj at every H", "scorer", "no_traj", 1, SCORER_MODELS),
    Claim(
        "claim: the Scorer's plans are more often exact than No-Traj's at every H (MSeq)",
        "scorer",
        "no_traj",
        1,
        SCORER_MODELS,
        metric="MSeq",
    ),
    Claim(
        "claim: the Scorer is above Endpoint-Traj at every H",
        "scorer",
        "endpoint_traj",
        1,
        (*SCORER_MODELS, "endpoint_traj"),
    ),
    Claim("claim: the Scorer is above Pool-Mean at every H", "scorer", "pool_mean", 1, SCORER_MODELS),
    Claim(
        "claim: the nearest candidate alone is below No-Traj from H=5 on",
        "top1",
        "no_traj",
        -1,
        ("traj", "no_traj"),
        first_horizon=5,
    ),
    Claim("claim: shuffled trajectories are below Oracle at every H", "shuffled", "oracle", -1, ("traj",)),
)
"""The demo's own, then what the paper says (arXiv 2605.20388, experiments and appendix), with two controls of ours."""


def judge(evidence: Evidence) -> list[Judgement]:
    """Run every check."""
    values = _values(evidence.metrics)
    return [
        *identity_checks(values),
        same_windows_check(evidence.predictions),
        gate_check(evidence.predictions),
        scored_takes_check(evidence),
        bank_check(evidence),
        folds_check(evidence),
        *evidence.trained,
        *(claim_check(claim, evidence) for claim in CLAIMS),
        widening_check(evidence),
    ]


Key = tuple[str, int | None, int | None, str]
Values = dict[Key, dict[str, float]]


def _values(metrics: Iterable[Metric]) -> Values:
    """Group the values that are no differences: (variant, seed, horizon, pooling) -> metric -> value."""
    grouped: Values = {}
    for row in metrics:
        if row.reference is None and row.cluster == "take":
            grouped.setdefault((row.variant, row.seed, row.horizon, row.pooling), {})[row.metric] = row.value
    return grouped


def _verdict(check: str, faults: Sequence[str], holds: str) -> Judgement:
    """Say `fails` with the first three faults, else `holds`."""
    if not faults:
        return Judgement(check=check, verdict="holds", detail=holds)
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return Judgement(check=check, verdict="fails", detail="; ".join(faults[:3]) + more)


def _where(key: Key) -> str:
    """Name one row of the tables."""
    variant, seed, horizon, pooling = key
    place = f"H={horizon}" if horizon is not None else f"{pooling} mean over H"
    return f"{variant}, {place}, {'all seeds' if seed is None else f'seed {seed}'}"


def identity_checks(values: Values) -> list[Judgement]:
    """Check what the definitions of the metrics imply, in every row of the tables."""

    def faults(smaller: str, larger: str, equal: bool = False, horizon: int | None = None) -> list[str]:
        found = []
        for key, row in values.items():
            gap = row[smaller] - row[larger]
            wrong = abs(gap) > TOLERANCE if equal else gap > TOLERANCE
            if wrong and (horizon is None or key[2] == horizon):
                found.append(f"{_where(key)}: {smaller} {row[smaller]:.2f}, {larger} {row[larger]:.2f}")
        return found

    count = f"{len(values)} rows looked at"
    ordered = [
        ("M@1", "M@5"),
        ("F@1", "F@5"),
        ("MSeq", "M@1"),
        ("FSeq", "F@1"),
        ("FSeq", "MSeq"),
        ("SR", "mAcc"),
        ("SR", "mIoU"),
    ]
    return [
        _verdict(
            "identity: with one middle step (H=3) MSeq is M@1", faults("MSeq", "M@1", equal=True, horizon=3), count
        ),
        *(_verdict(f"identity: {a} is at most {b}", faults(a, b), count) for a, b in ordered),
        _verdict("identity: ED lies between 0 and H", _edit_faults(values), count),
    ]


def _edit_faults(values: Values) -> list[str]:
    """Rows whose edit distance is negative or above the horizon (above the longest horizon for pooled rows)."""
    longest = max((horizon for _, _, horizon, _ in values if horizon is not None), default=0)
    return [
        f"{_where(key)}: ED {row['ED']:.2f}"
        for key, row in values.items()
        if not -TOLERANCE <= row["ED"] <= (key[2] if key[2] is not None else longest) + TOLERANCE
    ]


def same_windows_check(predictions: Predictions) -> Judgement:
    """Check that all rows were scored on the identical windows with the identical truth."""
    faults: list[str] = []
    n = 0
    for horizon in predictions.horizons():
        blocks = [block for block in predictions.blocks if block.horizon == horizon]
        first = blocks[0]
        n += len(first.windows)
        for block in blocks[1:]:
            name = f"{block.variant}, seed {block.seed}, H={horizon}"
            if not np.array_equal(block.windows, first.windows):
                faults.append(f"{name}: {len(block.windows)} windows, {first.variant} has {len(first.windows)}")
            elif not np.array_equal(block.labels, first.labels):
                faults.append(f"{name}: the truth differs from {first.variant}'s")
    expected = {(v, s, h) for v in predictions.variants() for s in predictions.seeds(v) for h in predictions.horizons()}
    absent = expected - {(block.variant, block.seed, block.horizon) for block in predictions.blocks}
    faults += [f"{variant}, seed {seed}: no window of H={horizon}" for variant, seed, horizon in sorted(absent)]
    rows = len(predictions.variants())
    return _verdict("identity: all rows are scored on the same windows", faults, f"{rows} rows on {n} windows each")


def gate_check(predictions: Predictions) -> Judgement:
    """Check that a closed gate answers with the fallback, and overall gain = open rate x gain on the opened windows."""
    check = "identity: overall gain = open rate x gain on the opened windows"
    fallback = {(block.seed, block.horizon): block for block in predictions.of(REFERENCE)}
    faults, n_open, n = [], 0, 0
    for block in predictions.of("scorer"):
        other = fallback.get((block.seed, block.horizon))
        if other is None or not np.array_equal(other.windows, block.windows):
            faults.append(f"H={block.horizon}, seed {block.seed}: no {REFERENCE} row on the same windows")
            continue
        faults += _gate_faults(block, other)
        n_open, n = n_open + int((block.opened == 1).sum()), n + len(block.windows)
    if not n and not faults:
        return Judgement(check=check, verdict="not run", detail="there is no row with a gate")
    return _verdict(check, faults, f"the gate opened on {n_open} of {n} windows; the others repeat {REFERENCE}")


def _gate_faults(block: Block, other: Block) -> list[str]:
    """Windows of the scorer that have no gate, or are closed and differ from the fallback; and the arithmetic."""
    name = f"H={block.horizon}, seed {block.seed}"
    closed = block.opened != 1
    changed = (block.decoded != other.decoded).any(axis=1) | (block.rankings != other.rankings).any(axis=(1, 2))
    faults = []
    if (block.opened < 0).any():
        faults.append(f"{name}: {int((block.opened < 0).sum())} windows without a gate")
    if (closed & changed).any():
        faults.append(f"{name}: {int((closed & changed).sum())} windows with a closed gate differ from {REFERENCE}")
    opened, gain = gate_gains(block, other)
    by_parts = opened.mean() * gain[opened].mean() if opened.any() else 0.0
    if abs(gain.mean() - by_parts) > TOLERANCE:
        faults.append(f"{name}: overall {gain.mean():+.3f}, open rate x gain on opened {by_parts:+.3f}")
    return faults


def scored_takes_check(evidence: Evidence) -> Judgement:
    """Check that every take that was predicted is a test take."""
    takes = evidence.predictions.take_ids
    faults = [
        f"{take} is {evidence.take_split.get(take, 'unknown')}"
        for take in takes
        if evidence.take_split.get(take) != "test"
    ]
    return _verdict("leak: only test takes are scored", faults, f"{len(takes)} takes, all of the test split")


def bank_check(evidence: Evidence) -> Judgement:
    """Check that every candidate that was used comes from a training take, and in the cheap mode from a fitted one."""
    used: set[int] = set()
    for block in evidence.predictions.blocks:
        used.update(np.unique(block.candidates[block.candidates >= 0]).tolist())
    faults, takes = [], set()
    fitted_only = -1 in evidence.folds.values()
    for index in sorted(used):
        window = evidence.predictions.window_ids[index]
        take = evidence.window_take.get(window, "unknown")
        takes.add(take)
        if evidence.take_split.get(take) != "train":
            faults.append(
                f"candidate {window} belongs to a take of the split {evidence.take_split.get(take, 'unknown')}"
            )
        elif fitted_only and evidence.folds.get(take) != -1:
            faults.append(f"candidate {window} belongs to a take held out from the fit")
    both = takes & set(evidence.predictions.take_ids)
    faults += [f"take {take} is in the bank and in the test" for take in sorted(both)]
    check = "leak: the bank holds training takes only"
    if not used:
        return Judgement(check=check, verdict="not run", detail="no row names a candidate")
    return _verdict(check, faults, f"{len(used)} candidates of {len(takes)} training takes, none of them scored")


def folds_check(evidence: Evidence) -> Judgement:
    """Check that folds and fits hold training takes only, and that no chain was fitted on takes that it leaves out.

    Where a model's metadata name no takes, nothing is known about its fits: `not run`, unless a fault is seen.
    """
    check = "leak: only training takes are fitted"
    splits = evidence.take_split
    faults = [f"{t} is {splits.get(t, 'unknown')}" for t in sorted(evidence.folds) if splits.get(t) != "train"]
    silent = [name for name, fitted in evidence.fitted.items() if fitted is None]
    told = {name: fitted for name, fitted in evidence.fitted.items() if fitted is not None}
    for name, fitted in told.items():
        for chain, takes in fitted.items():
            faults += [f"{name}, {chain}: {fault}" for fault in _fit_faults(chain, takes, evidence)]
    if not faults and (silent or not told):
        names = ", ".join(silent) or "the models"
        return Judgement(check=check, verdict="not run", detail=f"{names}: no record of the takes that were fitted")
    n_chains = sum(map(len, told.values()))
    return _verdict(check, faults, f"{len(evidence.folds)} takes in the folds, {n_chains} fits looked at")


def _fit_faults(chain: str, takes: Sequence[str], evidence: Evidence) -> list[str]:
    """Takes of a fit that are no training takes, or that the chain leaves out.

    `foldK` leaves out fold K; `final` leaves out nothing, in the cheap mode fold 0.
    """
    named = re.fullmatch(r"fold(\d+)", chain)
    if named is None and chain != "final":
        return ["no such chain"]
    cheap = -1 in evidence.folds.values()
    left_out = int(named[1]) if named else (0 if cheap else None)
    faults = []
    for take in takes:
        split = evidence.take_split.get(take, "unknown")
        if split != "train":
            faults.append(f"{take} is {split}")
        elif left_out is not None and evidence.folds.get(take) == left_out:
            faults.append(f"{take} is held out from this fit")
    return faults


def _differences(metrics: Iterable[Metric], claim: Claim) -> list[Metric]:
    """Return the paired differences of a claim per horizon, rising."""
    found = [
        row
        for row in metrics
        if row.variant == claim.variant
        and row.reference == claim.reference
        and row.metric == claim.metric
        and row.cluster == "take"
        and row.horizon is not None
        and row.horizon >= claim.first_horizon
    ]
    return sorted(found, key=lambda row: row.horizon or 0)


def model_of(check: str) -> str:
    """Name the model of a check `trained: <chain>/<model>, seed <seed>`: its model, or `folds/<model>` of any fold."""
    chain, _, model = check.removeprefix("trained: ").split(",")[0].partition("/")
    return model if chain == "final" else f"folds/{model}"


def _untrained(evidence: Evidence, models: Sequence[str]) -> list[str]:
    """Models among `models`, of any seed, that are not judged trained."""
    return [
        row.check.removeprefix("trained: ")
        for row in evidence.trained
        if row.verdict != "holds" and model_of(row.check) in models
    ]


def claim_check(claim: Claim, evidence: Evidence) -> Judgement:
    """Check that a paired difference excludes zero on the claimed side at every horizon, with trained models.

    A claim fails where an interval excludes zero on the other side, and is undecided otherwise; what the demo must show
    either holds or fails.
    """
    rows = _differences(evidence.metrics, claim)
    if not rows:
        return Judgement(
            check=claim.check, verdict="not run", detail=f"no difference {claim.variant} - {claim.reference}"
        )
    verdict = _sign_verdict(rows, claim.sign)
    if verdict == "undecided" and claim.check.startswith("demo: "):
        verdict = "fails"
    detail = ", ".join(f"H={row.horizon}: {row.value:+.1f} [{row.low:+.1f}, {row.high:+.1f}]" for row in rows)
    return _claimed(claim, evidence, verdict, f"{claim.metric} in points: {detail}", min(r.n_takes for r in rows))


def _claimed(claim: Claim, evidence: Evidence, verdict: Verdict, detail: str, n_takes: int) -> Judgement:
    """Word the verdict of a claim: models that are not trained prove nothing, and neither do too few takes."""
    weak = _untrained(evidence, claim.models)
    if verdict == "not run":
        detail = f"too few takes ({n_takes})"
    elif weak:
        verdict, detail = "undertrained", f"UNDERTRAINED: {', '.join(weak)}; {detail}"
    return Judgement(check=claim.check, verdict=verdict, detail=detail)


def _sign_verdict(rows: Sequence[Metric | Growth], sign: int) -> Verdict:
    """Say whether all intervals lie on the side of `sign`, one lies on the other side, or neither."""
    if not all(math.isfinite(row.low) and math.isfinite(row.high) for row in rows):
        return "not run"
    if all(_excludes_zero(row, sign) for row in rows):
        return "holds"
    return "fails" if any(_excludes_zero(row, -sign) for row in rows) else "undecided"


def _excludes_zero(row: Metric | Growth, sign: int) -> bool:
    """Say whether the whole interval lies on the side of `sign`."""
    return row.low > 0 if sign > 0 else row.high < 0


def widening_check(evidence: Evidence) -> Judgement:
    """Check that Oracle's lead over No-Traj is larger at the longest horizon than at the shortest, paired by take."""
    claim = CLAIMS[0]._replace(check="claim: Oracle's lead over No-Traj grows with the horizon")
    found = evidence.growth
    if found is None:
        return Judgement(check=claim.check, verdict="not run", detail="no such lead at two horizons")
    detail = (
        f"M@1 in points, lead at H={found.last} minus lead at H={found.first}: "
        f"{found.value:+.1f} [{found.low:+.1f}, {found.high:+.1f}]"
    )
    return _claimed(claim, evidence, _sign_verdict([found], 1), detail, found.n_takes)
