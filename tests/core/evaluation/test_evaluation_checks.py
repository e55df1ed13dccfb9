"""The checks of the evaluation on itself; each detects its planted fault."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from right_predictions import predictions_of
from synthetic_corpus import predictions
from synthetic_results import evidence, judged

from schemas.config import EvaluationConfig
from schemas.results import Judgement, Metric
from trajpilot_core.evaluation.checks import DEMO, CheckInputs, judge
from trajpilot_core.evaluation.prediction_arrays import PredictionBlock, Predictions
from trajpilot_core.evaluation.tables import metric_rows

CFG = EvaluationConfig(bootstrap=300)


@pytest.fixture(scope="module")
def sound(small_world: dict[str, pa.Table], blocks: Predictions, metrics: list[Metric]) -> CheckInputs:
    return evidence(small_world, blocks, metrics)


def verdicts(evidence: CheckInputs) -> dict[str, str]:
    return {row.check: row.verdict for row in judge(evidence)}


def demo(evidence: CheckInputs) -> Judgement:
    (row,) = (row for row in judge(evidence) if row.check == DEMO)
    return row


def test_sound_results_pass_every_identity_and_leak_check(sound: CheckInputs) -> None:
    found = verdicts(sound)
    assert {v for check, v in found.items() if check.startswith(("identity: ", "leak: "))} == {"holds"}
    assert found["demo: Oracle is above No-Traj at every H"] == "holds"


def spoiled(sound: CheckInputs, variant: str, change: dict[str, object], horizon: int = 5) -> CheckInputs:
    """Change arrays of one block (seed 0)."""

    def one(block: PredictionBlock) -> PredictionBlock:
        if (block.variant, block.seed, block.horizon) != (variant, 0, horizon):
            return block
        return replace(block, **{name: made(getattr(block, name)) for name, made in change.items()})  # type: ignore[operator]

    return replace(sound, predictions=replace(sound.predictions, blocks=tuple(map(one, sound.predictions.blocks))))


SAME = "identity: all rows are scored on the same windows"
GATE = "identity: overall gain = open rate x gain on the opened windows"
TESTED = "leak: only test takes are scored"
BANK = "leak: the bank holds training takes only"
FIT = "leak: only training takes are fitted"
ARRAYS = ("windows", "takes", "labels", "decoded", "rankings", "gate", "opened", "candidates")


def planted(sound: CheckInputs) -> dict[str, tuple[str, CheckInputs]]:
    """Fault -> the check that must detect it, and its inputs."""
    scored, block = sound.predictions.take_ids[0], next(sound.predictions.of("top1"))
    used = sound.predictions.window_ids[block.candidates[0]]
    own = sound.window_take[used]
    short = tuple(b for b in sound.predictions.blocks if (b.variant, b.horizon) != ("top1", 8))
    in_bank = replace(sound, window_take={**sound.window_take, used: scored})
    called_training = replace(
        in_bank, take_split={**sound.take_split, scored: "train"}, folds={**sound.folds, scored: -1}
    )

    def split(take: str, name: str) -> CheckInputs:
        return replace(sound, take_split={**sound.take_split, take: name})

    def fold(take: str, number: int) -> CheckInputs:
        return replace(sound, folds={**sound.folds, take: number})

    def fitted_on(entry: str, kind: str) -> CheckInputs:
        """Fitted takes with a held-out one of this kind among them."""
        take = next(t for t, f in sorted(sound.folds.items()) if f == 0)
        chains = {"final": [*sound.fitted[entry]["final"], take]}  # type: ignore[index]
        leaked = replace(sound, fitted={**sound.fitted, entry: chains})
        if kind == "held out":
            return leaked
        folds = {t: f for t, f in sound.folds.items() if t != take}
        return replace(leaked, take_split={**sound.take_split, take: kind}, folds=folds)

    return {
        "a row without one window": (SAME, spoiled(sound, "oracle", dict.fromkeys(ARRAYS, lambda a: a[1:]))),
        "a row without one horizon": (SAME, replace(sound, predictions=replace(sound.predictions, blocks=short))),
        "another truth in one row": (SAME, spoiled(sound, "top1", {"labels": lambda a: (a + 1) % 9})),
        "another answer behind a closed gate": (GATE, spoiled(sound, "scorer", {"rankings": lambda a: a[..., ::-1]})),
        "a window without a gate": (GATE, spoiled(sound, "scorer", {"opened": lambda a: np.full_like(a, -1)})),
        "a training take is scored": (TESTED, split(scored, "train")),
        "a test take in the bank": (BANK, split(own, "test")),
        "a dev take in the bank": (BANK, split(own, "dev")),
        "a scored take in the bank": (BANK, in_bank),
        "a scored take in the bank that is called a training take": (BANK, called_training),
        "a held-out take in the bank of the cheap mode": (BANK, fold(own, 0)),
        "a candidate of an unknown window": (BANK, replace(sound, window_take={})),
        "a test take among the folds": (FIT, fold(scored, 1)),
    } | {
        f"a {kind} take fitted by {entry}": (FIT, fitted_on(entry, kind))
        for kind in ("test", "dev", "held out")
        for entry in ("e_tau", "predictors")
    }


def test_every_planted_fault_turns_its_check_red(sound: CheckInputs) -> None:
    faults = planted(sound)
    assert {fault: verdicts(shown)[check] for fault, (check, shown) in faults.items()} == dict.fromkeys(faults, "fails")
    called_training = faults["a scored take in the bank that is called a training take"][1]
    (row,) = (one for one in judge(called_training) if one.check == BANK)
    assert f"take {sound.predictions.take_ids[0]} is in the bank and in the test" in row.detail
    assert verdicts(replace(sound, fitted={**sound.fitted, "e_tau": None}))[FIT] == "not run"


def renamed(sound: CheckInputs, row: str, other: str) -> CheckInputs:
    """The same predictions, one row under the name of another."""
    blocks = tuple(replace(b, variant=other) if b.variant == row else b for b in sound.predictions.blocks)
    return replace(sound, predictions=replace(sound.predictions, blocks=blocks))


def test_a_planner_without_a_model_for_a_horizon_is_named_and_one_without_a_seed_is_a_fault(sound: CheckInputs) -> None:
    planner = renamed(sound, "top1", "schema")
    without = tuple(b for b in planner.predictions.blocks if (b.variant, b.horizon) != ("schema", 8))
    lacking = replace(planner, predictions=replace(planner.predictions, blocks=without))
    (row,) = (j for j in judge(lacking) if j.check == SAME)
    assert row.verdict == "holds"
    assert row.detail.endswith("no model, so no mean over the horizons: schema at H=8")
    metrics = metric_rows(lacking.predictions, "toy", CFG)
    assert {m.pooling for m in metrics if m.variant == "schema"} == {"none"}
    assert {m.pooling for m in metrics if m.variant == "no_traj"} == {"none", "plain", "sample"}
    kept = tuple(b for b in planner.predictions.blocks if (b.variant, b.horizon, b.seed) != ("schema", 8, 1))
    assert verdicts(replace(planner, predictions=replace(planner.predictions, blocks=kept)))[SAME] == "fails"


def test_a_chain_of_a_fold_may_not_be_fitted_on_that_fold(sound: CheckInputs) -> None:
    folds = {take: i % 2 for i, take in enumerate(sorted(sound.folds))}
    chains = {f"fold{k}": [t for t, f in folds.items() if f != k] for k in range(2)} | {"final": sorted(folds)}
    assert verdicts(replace(sound, folds=folds, fitted=dict.fromkeys(sound.fitted, chains)))[FIT] == "holds"
    leaked = {**chains, "fold1": sorted(folds)}
    assert verdicts(replace(sound, folds=folds, fitted={"e_tau": chains, "predictors": leaked}))[FIT] == "fails"


def test_takes_of_no_fold_among_several_are_not_mistaken_for_the_cheap_mode(sound: CheckInputs) -> None:
    folds = {take: i % 3 - 1 for i, take in enumerate(sorted(sound.folds))}
    chains = {f"fold{k}": [t for t, f in folds.items() if f != k] for k in range(2)} | {"final": sorted(folds)}
    found = verdicts(replace(sound, folds=folds, fitted=dict.fromkeys(sound.fitted, chains)))
    assert (found[BANK], found[FIT]) == ("holds", "holds")


def test_the_demos_check_fails_when_one_interval_contains_zero(sound: CheckInputs) -> None:
    place = ("oracle", "no_traj", 7, "M@1")
    wrong = [
        m.replace(low=-0.1) if (m.variant, m.reference, m.horizon, m.metric) == place else m for m in sound.metrics
    ]
    assert demo(replace(sound, metrics=wrong)).verdict == "fails"


def test_the_demos_check_proves_nothing_with_an_undertrained_predictor_and_a_scorer_or_fold_leaves_it_alone(
    sound: CheckInputs,
) -> None:
    row = demo(replace(sound, trained=judged("undertrained")))
    assert row.verdict == "undertrained"
    assert "UNDERTRAINED: final/traj, seed 0" in row.detail
    for model in ("final/scorer", "fold1/traj", "fold0/no_traj"):
        weak = Judgement(check=f"trained: {model}, seed 0", verdict="undertrained", detail="")
        kept = [j for j in sound.trained if j.check != weak.check]
        assert demo(replace(sound, trained=[*kept, weak])).verdict == "holds", model


def test_too_few_takes_decide_nothing(small_world: dict[str, pa.Table], table: pa.Table) -> None:
    takes = pa.array(sorted(set(table["take_id"].to_pylist()))[:4])
    blocks = predictions_of(table.filter(pc.is_in(table["take_id"], takes)))
    row = demo(evidence(small_world, blocks, metric_rows(blocks, "x", CFG)))
    assert (row.verdict, row.detail) == ("not run", "too few takes (4)")


def test_a_check_without_its_rows_is_not_run(small_world: dict[str, pa.Table]) -> None:
    blocks = predictions_of(predictions(small_world, {"no_traj": 0.3}))
    found = verdicts(evidence(small_world, blocks, metric_rows(blocks, "x", CFG)))
    assert (found[DEMO], found[GATE]) == ("not run", "not run")
