"""The checks that the evaluation makes of itself; every one sees its planted fault."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from synthetic_corpus import SKILL, corpus, predictions
from synthetic_results import evidence, judged

from schemas.config import EvaluationConfig
from schemas.results import Judgement
from trajpilot_core.evaluation.checks import decoded_together, identity_checks, judge
from trajpilot_core.evaluation.paper_claims import OVER_CLASSES, CheckInputs
from trajpilot_core.evaluation.prediction_arrays import PredictionBlock, predictions_of
from trajpilot_core.evaluation.tables import metric_rows, take_clusters

CFG = EvaluationConfig(bootstrap=300)


@pytest.fixture(scope="module")
def world() -> dict[str, pa.Table]:
    return corpus(n_train=6, n_test=12, n_segments=10)


@pytest.fixture(scope="module")
def sound(world: dict[str, pa.Table]) -> CheckInputs:
    blocks = predictions_of(predictions(world, seeds=(0, 1)))
    return evidence(world, blocks, metric_rows(blocks, "egoexo4d", take_clusters(blocks), CFG))


def verdicts(evidence: CheckInputs) -> dict[str, str]:
    return {row.check: row.verdict for row in judge(evidence)}


def test_sound_results_pass_every_identity_and_leak_check(sound: CheckInputs) -> None:
    found = verdicts(sound)
    assert {v for check, v in found.items() if check.startswith(("identity: ", "leak: "))} == {"holds"}
    assert found["demo: Oracle is above No-Traj at every H"] == "holds"


FAULTS = {
    "identity: with one middle step (H=3) MSeq is M@1": ("MSeq", 3, -5.0),
    "identity: M@1 is at most M@5": ("M@5", 5, -90.0),
    "identity: F@1 is at most F@5": ("F@5", 5, -90.0),
    "identity: MSeq is at most M@1": ("MSeq", 7, +99.0),
    "identity: FSeq is at most F@1": ("FSeq", 5, +99.0),
    "identity: FSeq is at most MSeq": ("FSeq", 5, +99.0),
    "identity: SR is at most Mid mAcc": ("SR", 4, +99.0),
    "identity: SR is at most Full mAcc": ("SR", 4, +99.0),
    "identity: SR is at most mIoU": ("SR", 4, +99.0),
    "identity: ED lies between 0 and H": ("ED", 8, +8.0),
}


@pytest.mark.parametrize("check", FAULTS)
def test_a_wrong_number_in_one_cell_is_seen(sound: CheckInputs, check: str) -> None:
    metric, horizon, shift = FAULTS[check]
    wrong = [
        m.replace(value=m.value + shift)
        if (m.variant, m.reference, m.seed, m.horizon, m.metric) == ("top1", None, 1, horizon, metric)
        else m
        for m in sound.metrics
    ]
    row = next(j for j in judge(replace(sound, metrics=wrong)) if j.check == check)
    assert row.verdict == "fails"
    assert f"top1, H={horizon}, seed 1" in row.detail


def spoiled(sound: CheckInputs, variant: str, change: dict[str, object], horizon: int = 5) -> CheckInputs:
    """Change arrays of one block (seed 0)."""

    def one(block: PredictionBlock) -> PredictionBlock:
        if (block.variant, block.seed, block.horizon) != (variant, 0, horizon):
            return block
        return replace(block, **{name: made(getattr(block, name)) for name, made in change.items()})  # type: ignore[operator]

    return replace(sound, predictions=replace(sound.predictions, blocks=tuple(map(one, sound.predictions.blocks))))


SAME = "identity: all rows are scored on the same windows"
GATE = "identity: overall gain = open rate x gain on the opened windows"


def test_a_row_without_one_window_is_seen(sound: CheckInputs) -> None:
    names = ("windows", "takes", "labels", "decoded", "rankings", "gate", "opened", "candidates")
    assert verdicts(spoiled(sound, "oracle", {n: lambda a: a[1:] for n in names}))[SAME] == "fails"


def test_a_row_without_one_horizon_is_seen(sound: CheckInputs) -> None:
    kept = tuple(b for b in sound.predictions.blocks if (b.variant, b.horizon) != ("top1", 8))
    assert verdicts(replace(sound, predictions=replace(sound.predictions, blocks=kept)))[SAME] == "fails"


def renamed(sound: CheckInputs, row: str, other: str) -> CheckInputs:
    """The same predictions, one row under the name of another."""
    blocks = tuple(replace(b, variant=other) if b.variant == row else b for b in sound.predictions.blocks)
    return replace(sound, predictions=replace(sound.predictions, blocks=blocks))


def test_a_planner_without_a_model_for_a_horizon_is_said_and_one_without_a_seed_is_seen(sound: CheckInputs) -> None:
    planner = renamed(sound, "top1", "schema")
    without = tuple(b for b in planner.predictions.blocks if (b.variant, b.horizon) != ("schema", 8))
    lacking = replace(planner, predictions=replace(planner.predictions, blocks=without))
    (row,) = (j for j in judge(lacking) if j.check == SAME)
    assert row.verdict == "holds"
    assert row.detail.endswith("no model, so no mean over the horizons: schema at H=8")
    metrics = metric_rows(lacking.predictions, "toy", take_clusters(lacking.predictions), CFG)
    assert {m.pooling for m in metrics if m.variant == "schema"} == {"none"}
    assert {m.pooling for m in metrics if m.variant == "no_traj"} == {"none", "plain", "sample"}
    kept = tuple(b for b in planner.predictions.blocks if (b.variant, b.horizon, b.seed) != ("schema", 8, 1))
    assert verdicts(replace(planner, predictions=replace(planner.predictions, blocks=kept)))[SAME] == "fails"


def test_a_sequence_above_its_ranking_is_a_fault_only_where_each_step_stands_for_itself(sound: CheckInputs) -> None:
    """Planted: decoded sequences that are all true. Decoded together they may be; as best labels of steps never."""
    check = "identity: MSeq is at most M@1"
    assert "oracle" not in decoded_together(sound.predictions, has_class_heads=True)
    linked = replace(
        sound.predictions,
        blocks=tuple(replace(b, decoded=b.labels) if b.variant == "oracle" else b for b in sound.predictions.blocks),
    )
    heads = decoded_together(linked, has_class_heads=True)
    assert heads == {"oracle"}
    values = {("oracle", 0, 5, "none"): {"MSeq": 100.0, "M@1": 40.0, "M@5": 30.0}}
    found = {j.check: j for j in identity_checks(values, heads)}
    assert found[check].verdict == "holds"
    assert found[check].detail == "0 rows looked at; not oracle: decoded together"
    assert found["identity: M@1 is at most M@5"].verdict == "fails", "both read the ranking"
    open_rows = decoded_together(linked, has_class_heads=False)
    assert open_rows == set(), "by texts a row has no such sequence: a differing one is a fault, and is bound"
    assert {j.check: j.verdict for j in identity_checks(values, open_rows)}[check] == "fails"
    planner = renamed(replace(sound, predictions=linked), "oracle", "schema").predictions
    assert decoded_together(planner, has_class_heads=False) == {"schema"}


def test_another_truth_in_one_row_is_seen(sound: CheckInputs) -> None:
    assert verdicts(spoiled(sound, "top1", {"labels": lambda a: (a + 1) % 9}))[SAME] == "fails"


def test_a_closed_gate_that_does_not_repeat_the_fallback_is_seen(sound: CheckInputs) -> None:
    assert verdicts(spoiled(sound, "scorer", {"rankings": lambda a: a[..., ::-1]}))[GATE] == "fails"


def test_a_window_without_a_gate_is_seen(sound: CheckInputs) -> None:
    assert verdicts(spoiled(sound, "scorer", {"opened": lambda a: np.full_like(a, -1)}))[GATE] == "fails"


def test_a_training_take_in_the_test_is_seen(sound: CheckInputs) -> None:
    take = sound.predictions.take_ids[0]
    assert (
        verdicts(replace(sound, take_split={**sound.take_split, take: "train"}))["leak: only test takes are scored"]
        == "fails"
    )


BANK = "leak: the bank holds training takes only"


def used_candidate(sound: CheckInputs) -> str:
    block = next(sound.predictions.of("top1"))
    return sound.predictions.window_ids[block.candidates[0]]


@pytest.mark.parametrize("split", ["test", "dev"])
def test_a_leaked_take_in_the_bank_is_seen(sound: CheckInputs, split: str) -> None:
    take = sound.window_take[used_candidate(sound)]
    assert verdicts(replace(sound, take_split={**sound.take_split, take: split}))[BANK] == "fails"


def test_a_scored_take_in_the_bank_is_seen(sound: CheckInputs) -> None:
    take = sound.predictions.take_ids[0]
    assert verdicts(replace(sound, window_take={**sound.window_take, used_candidate(sound): take}))[BANK] == "fails"


def test_a_scored_take_in_the_bank_is_seen_though_it_is_called_a_training_take(sound: CheckInputs) -> None:
    take = sound.predictions.take_ids[0]
    both = replace(
        sound,
        window_take={**sound.window_take, used_candidate(sound): take},
        take_split={**sound.take_split, take: "train"},
        folds={**sound.folds, take: -1},
    )
    (row,) = (judgement for judgement in judge(both) if judgement.check == BANK)
    assert (row.verdict, f"take {take} is in the bank and in the test" in row.detail) == ("fails", True)


def test_a_held_out_take_in_the_bank_of_the_cheap_mode_is_seen(sound: CheckInputs) -> None:
    take = sound.window_take[used_candidate(sound)]
    assert verdicts(replace(sound, folds={**sound.folds, take: 0}))[BANK] == "fails"


def test_a_candidate_of_an_unknown_window_is_seen(sound: CheckInputs) -> None:
    assert verdicts(replace(sound, window_take={}))[BANK] == "fails"


def test_a_test_take_among_the_folds_is_seen(sound: CheckInputs) -> None:
    folds = {**sound.folds, sound.predictions.take_ids[0]: 1}
    assert verdicts(replace(sound, folds=folds))[FIT] == "fails"


FIT = "leak: only training takes are fitted"


@pytest.mark.parametrize("entry", ["e_tau", "predictors"])
@pytest.mark.parametrize("kind", ["test", "dev", "held out"])
def test_a_leaked_take_among_the_fitted_ones_is_seen(sound: CheckInputs, entry: str, kind: str) -> None:
    take = next(t for t, f in sorted(sound.folds.items()) if f == 0)
    splits = sound.take_split if kind == "held out" else {**sound.take_split, take: kind}
    chains = {"final": [*sound.fitted[entry]["final"], take]}  # type: ignore[index]
    folds = sound.folds if kind == "held out" else {t: f for t, f in sound.folds.items() if t != take}
    wrong = replace(sound, take_split=splits, folds=folds, fitted={**sound.fitted, entry: chains})
    assert verdicts(wrong)[FIT] == "fails"


def test_a_chain_of_a_fold_may_not_be_fitted_on_that_fold(sound: CheckInputs) -> None:
    folds = {take: i % 2 for i, take in enumerate(sorted(sound.folds))}
    chains = {f"fold{k}": [t for t, f in folds.items() if f != k] for k in range(2)} | {"final": sorted(folds)}
    assert verdicts(replace(sound, folds=folds, fitted=dict.fromkeys(sound.fitted, chains)))[FIT] == "holds"
    leaked = {**chains, "fold1": sorted(folds)}
    assert verdicts(replace(sound, folds=folds, fitted={"e_tau": chains, "predictors": leaked}))[FIT] == "fails"


def test_takes_in_no_fold_of_several_are_not_taken_for_the_cheap_mode(sound: CheckInputs) -> None:
    folds = {take: i % 3 - 1 for i, take in enumerate(sorted(sound.folds))}
    chains = {f"fold{k}": [t for t, f in folds.items() if f != k] for k in range(2)} | {"final": sorted(folds)}
    found = verdicts(replace(sound, folds=folds, fitted=dict.fromkeys(sound.fitted, chains)))
    assert (found[BANK], found[FIT]) == ("holds", "holds")


def test_fits_without_a_record_are_not_said_to_be_sound(sound: CheckInputs) -> None:
    assert verdicts(replace(sound, fitted={**sound.fitted, "e_tau": None}))[FIT] == "not run"


DEMO = "demo: Oracle is above No-Traj at every H"


def test_the_demos_claim_fails_when_one_interval_holds_zero(sound: CheckInputs) -> None:
    wrong = [
        m.replace(low=-0.1) if (m.variant, m.reference, m.horizon, m.metric) == ("oracle", "no_traj", 7, "M@1") else m
        for m in sound.metrics
    ]
    assert verdicts(replace(sound, metrics=wrong))[DEMO] == "fails"


def test_over_classes_the_demos_failed_check_says_why(sound: CheckInputs) -> None:
    wrong = [m.replace(low=-0.1) if (m.variant, m.reference) == ("oracle", "no_traj") else m for m in sound.metrics]
    for over_classes in (True, False):
        checks = judge(replace(sound, metrics=wrong, over_classes=over_classes))
        (row,) = (j for j in checks if j.check == DEMO)
        assert row.verdict == "fails"
        assert (OVER_CLASSES in row.detail) == over_classes
    (well,) = (j for j in judge(replace(sound, over_classes=True)) if j.check == DEMO)
    assert OVER_CLASSES not in well.detail


def test_the_demos_claim_proves_nothing_with_an_undertrained_model(sound: CheckInputs) -> None:
    row = next(j for j in judge(replace(sound, trained=judged("undertrained"))) if j.check == DEMO)
    assert row.verdict == "undertrained"
    assert "UNDERTRAINED: final/traj, seed 0" in row.detail


SCORER = "claim: the Scorer is above No-Traj at every H"
GROWS = "claim: Oracle's lead over No-Traj grows with the horizon"


@pytest.mark.parametrize("model", ["final/scorer", "fold1/traj", "fold0/no_traj"])
def test_an_undertrained_scorer_or_fold_proves_nothing_about_the_scorer(sound: CheckInputs, model: str) -> None:
    weak = Judgement(check=f"trained: {model}, seed 0", verdict="undertrained", detail="")
    kept = [j for j in sound.trained if j.check != weak.check]
    found = verdicts(replace(sound, trained=[*kept, weak]))
    assert found[SCORER] == "undertrained"
    assert found[DEMO] == "holds"


def with_interval(sound: CheckInputs, low: float, high: float) -> CheckInputs:
    """All differences between scorer and no_traj get one interval."""
    ends = {"low": low, "high": high}
    rows = [m.replace(**ends) if (m.variant, m.reference) == ("scorer", "no_traj") else m for m in sound.metrics]
    return replace(sound, metrics=rows)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 2, "holds"), (-1, 2, "undecided"), (-2, -1, "fails"), (-np.inf, np.inf, "not run")],
)
def test_a_claim_fails_only_where_the_interval_says_so(
    sound: CheckInputs, low: float, high: float, verdict: str
) -> None:
    row = next(j for j in judge(with_interval(sound, low, high)) if j.check == SCORER)
    assert row.verdict == verdict
    if verdict == "not run":
        assert row.detail == "too few takes (12)"


def test_the_growth_of_the_lead_is_judged_by_its_own_interval(sound: CheckInputs) -> None:
    assert sound.growth is not None
    assert sound.growth.low < sound.growth.value < sound.growth.high
    lead = ("oracle", "no_traj", None, "M@1")
    ends = {m.horizon: m for m in sound.metrics if (m.variant, m.reference, m.seed, m.metric) == lead}
    assert sound.growth.value == pytest.approx(ends[8].value - ends[3].value)
    for low, high, verdict in ((1.0, 2.0, "holds"), (-1.0, 2.0, "undecided"), (-2.0, -1.0, "fails")):
        changed = replace(sound, growth=replace(sound.growth, low=low, high=high))
        assert verdicts(changed)[GROWS] == verdict


def test_too_few_takes_decide_nothing(world: dict[str, pa.Table]) -> None:
    takes = sorted(set(world["windows"].filter(pc.equal(world["windows"]["split"], "test"))["take_id"].to_pylist()))
    table = predictions(world)
    blocks = predictions_of(table.filter(pc.is_in(table["take_id"], pa.array(takes[:4]))))
    found = judge(evidence(world, blocks, metric_rows(blocks, "x", take_clusters(blocks), CFG)))
    claims = [j for j in found if j.check.startswith(("claim: ", "demo: "))]
    assert {(j.verdict, j.detail) for j in claims} == {("not run", "too few takes (4)")}


def test_a_claim_without_its_rows_is_not_run(world: dict[str, pa.Table]) -> None:
    blocks = predictions_of(predictions(world, {"no_traj": 0.3}))
    found = verdicts(evidence(world, blocks, metric_rows(blocks, "x", take_clusters(blocks), CFG)))
    assert found[DEMO] == "not run"
    assert found[GATE] == "not run"


def test_a_scorer_that_is_no_better_is_not_said_to_be(world: dict[str, pa.Table]) -> None:
    blocks = predictions_of(predictions(world, {**SKILL, "scorer": 0.1}))
    found = verdicts(evidence(world, blocks, metric_rows(blocks, "x", take_clusters(blocks), CFG)))
    assert found["claim: the Scorer is above No-Traj at every H"] == "fails"
