"""The checks of every evaluation on itself; each returns judgements, none raises.

Check names begin with their group: `identity` (true by definition), `leak` (training sees nothing of the test),
`trained`, `demo` (must hold in the simulated demo). Only a failed `identity`, `leak` or `demo` is a fault. Source:
docs/decisions/metrics.md.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from schemas.results import Judgement, Metric
from trajpilot_core.evaluation.prediction_arrays import Predictions
from trajpilot_core.evaluation.trained_rows import ROW, TRAINED, model_of
from trajpilot_core.methods import METHODS, method
from trajpilot_core.methods.base import REFERENCE
from trajpilot_core.methods.predictors import ORACLE

DEMO = "demo: Oracle is above No-Traj at every H"


@dataclass(frozen=True)
class CheckInputs:
    """Inputs of the checks."""

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
    fitted: Mapping[str, Mapping[str, Sequence[str]] | None] = field(default_factory=dict)
    """Model entry -> chain -> takes that it was fitted on, by its metadata; None where they name none."""


def judge(evidence: CheckInputs) -> list[Judgement]:
    """Run every check."""
    return [
        same_windows_check(evidence.predictions),
        gate_check(evidence.predictions),
        scored_takes_check(evidence),
        bank_check(evidence),
        folds_check(evidence),
        *evidence.trained,
        demo_check(evidence),
    ]


def demo_check(evidence: CheckInputs) -> Judgement:
    """Check that the interval of Oracle's paired lead over No-Traj is above zero at every horizon, with trained models.

    Untrained models or too few takes make it void.
    """
    place = (ORACLE.id, REFERENCE, "M@1")
    leads = [m for m in evidence.metrics if (m.variant, m.reference, m.metric) == place and m.horizon]
    if not leads:
        return Judgement(check=DEMO, verdict="not run", detail="no difference of Oracle to No-Traj")
    if not all(math.isfinite(lead.low) and math.isfinite(lead.high) for lead in leads):
        return Judgement(check=DEMO, verdict="not run", detail=f"too few takes ({min(lead.n_takes for lead in leads)})")
    leads.sort(key=lambda lead: lead.horizon or 0)
    ends = ", ".join(f"H={m.horizon}: {m.value:+.1f} [{m.low:+.1f}, {m.high:+.1f}]" for m in leads)
    detail, rows = f"M@1 in points: {ends}", (ORACLE, method(REFERENCE))
    names, models = {f"{ROW}{row.id}" for row in rows}, {model for row in rows for model in row.models}
    weak = [
        judged.check.removeprefix(TRAINED)
        for judged in evidence.trained
        if judged.verdict != "holds" and (judged.check in names or model_of(judged.check) in models)
    ]
    if weak:
        return Judgement(check=DEMO, verdict="undertrained", detail=f"UNDERTRAINED: {', '.join(weak)}; {detail}")
    return Judgement(check=DEMO, verdict="holds" if all(lead.low > 0 for lead in leads) else "fails", detail=detail)


def _verdict(check: str, faults: Sequence[str], detail: str) -> Judgement:
    """Return `fails` with the first three faults, else `holds`."""
    if not faults:
        return Judgement(check=check, verdict="holds", detail=detail)
    more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
    return Judgement(check=check, verdict="fails", detail="; ".join(faults[:3]) + more)


def same_windows_check(predictions: Predictions) -> Judgement:
    """Check that all rows were scored on the identical windows with the identical truth.

    A row with a model per horizon may lack one for every seed: the detail names it, and it is no fault.
    """
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
    present = {(block.variant, block.horizon) for block in predictions.blocks}
    lacking = [(v, h) for v in predictions.variants() for h in predictions.horizons() if (v, h) not in present]
    expected = {(v, s, h) for v, h in present for s in predictions.seeds(v)}
    absent = expected - {(block.variant, block.seed, block.horizon) for block in predictions.blocks}
    faults += [f"{variant}, seed {seed}: no window of H={horizon}" for variant, seed, horizon in sorted(absent)]
    without = [f"{v} at H={h}" for v, h in lacking if method(v).has_model_per_horizon]
    faults += [f"{v}: no window of H={h}" for v, h in lacking if not method(v).has_model_per_horizon]
    detail = f"{len(predictions.variants())} rows on {n} windows each"
    if without:
        detail += f"; no model, so no mean over the horizons: {', '.join(without)}"
    return _verdict("identity: all rows are scored on the same windows", faults, detail)


def gate_check(predictions: Predictions) -> Judgement:
    """Check that a closed gate answers with the fallback, so that overall gain = open rate x gain on opened windows."""
    check = "identity: overall gain = open rate x gain on the opened windows"
    faults, rates = [], []
    gates = {row.id: row.gate.fallback for row in METHODS if row.gate and row.id in predictions.variants()}
    for variant, fallback in gates.items():
        others = {(block.seed, block.horizon): block for block in predictions.of(fallback)}
        n_open, n = 0, 0
        for block in predictions.of(variant):
            name = f"{block.variant}, H={block.horizon}, seed {block.seed}"
            other = others.get((block.seed, block.horizon))
            if other is None or not np.array_equal(other.windows, block.windows):
                faults.append(f"{name}: no {fallback} row on the same windows")
                continue
            opened = block.opened == 1
            changed = (block.decoded != other.decoded).any(axis=1) | (block.rankings != other.rankings).any(axis=(1, 2))
            if (block.opened < 0).any():
                faults.append(f"{name}: {int((block.opened < 0).sum())} windows without a gate")
            if (~opened & changed).any():
                n_wrong = int((~opened & changed).sum())
                faults.append(f"{name}: {n_wrong} windows with a closed gate differ from {other.variant}")
            n_open, n = n_open + int(opened.sum()), n + len(block.windows)
        rates.append(f"{method(variant).name} on {n_open} of {n} windows")
    if not rates:
        return Judgement(check=check, verdict="not run", detail="no row has a gate")
    repeated = ", ".join(dict.fromkeys(method(row).name for row in gates.values()))
    return _verdict(check, faults, f"gates opened: {', '.join(rates)}; other windows repeat {repeated}")


def scored_takes_check(evidence: CheckInputs) -> Judgement:
    """Check that every take that was predicted is a test take."""
    takes = evidence.predictions.take_ids
    splits = [evidence.take_split.get(take, "unknown") for take in takes]
    faults = [f"{take} is {split}" for take, split in zip(takes, splits, strict=True) if split != "test"]
    return _verdict("leak: only test takes are scored", faults, f"{len(takes)} takes, all of the test split")


def bank_check(evidence: CheckInputs) -> Judgement:
    """Check that every used candidate is from a training take, and in the cheap mode from a fitted one."""
    used: set[int] = set()
    for block in evidence.predictions.blocks:
        used.update(np.unique(block.candidates[block.candidates >= 0]).tolist())
    faults, takes = [], set()
    fitted_only = is_cheap(evidence)
    for index in sorted(used):
        window = evidence.predictions.window_ids[index]
        take = evidence.window_take.get(window, "unknown")
        takes.add(take)
        split = evidence.take_split.get(take, "unknown")
        if split != "train":
            faults.append(f"candidate {window} belongs to a take of the split {split}")
        elif fitted_only and evidence.folds.get(take) != -1:
            faults.append(f"candidate {window} belongs to a take held out from the fit")
    both = takes & set(evidence.predictions.take_ids)
    faults += [f"take {take} is in the bank and in the test" for take in sorted(both)]
    check = "leak: the bank holds training takes only"
    if not used:
        return Judgement(check=check, verdict="not run", detail="no row names a candidate")
    return _verdict(check, faults, f"{len(used)} candidates of {len(takes)} training takes, none of them scored")


def is_cheap(evidence: CheckInputs) -> bool:
    """Return whether there is one chain, with fold 0 held out (D 28); with more folds -1 marks takes of no fold."""
    return max(evidence.folds.values(), default=-1) == 0


def folds_check(evidence: CheckInputs) -> Judgement:
    """Check that folds and fits contain training takes only, and that no chain was fitted on takes that it leaves out.

    `foldK` leaves out fold K; `final` leaves out nothing, or fold 0 in the cheap mode. Where a model's metadata name no
    takes, its fits are unknown: `not run`, unless there is a fault elsewhere.
    """
    check = "leak: only training takes are fitted"
    splits = evidence.take_split
    faults = [f"{t} is {splits.get(t, 'unknown')}" for t in sorted(evidence.folds) if splits.get(t) != "train"]
    silent = [name for name, fitted in evidence.fitted.items() if fitted is None]
    recorded = {name: fitted for name, fitted in evidence.fitted.items() if fitted is not None}
    for name, fitted in recorded.items():
        for chain, takes in fitted.items():
            named = re.fullmatch(r"fold(\d+)", chain)
            if named is None and chain != "final":
                faults.append(f"{name}, {chain}: no such chain")
                continue
            left_out = int(named[1]) if named else (0 if is_cheap(evidence) else None)
            for take in takes:
                if splits.get(take) != "train":
                    faults.append(f"{name}, {chain}: {take} is {splits.get(take, 'unknown')}")
                elif left_out is not None and evidence.folds.get(take) == left_out:
                    faults.append(f"{name}, {chain}: {take} is held out from this fit")
    if not faults and (silent or not recorded):
        names = ", ".join(silent) or "the models"
        return Judgement(check=check, verdict="not run", detail=f"{names}: no record of the takes that were fitted")
    n_chains = sum(map(len, recorded.values()))
    return _verdict(check, faults, f"{len(evidence.folds)} takes in the folds, {n_chains} fits checked")
