"""Tables of the evaluation and the checks that it makes of itself; every check sees its planted fault."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from synthetic_results import (
    SKILL,
    Kept,
    Tables,
    corpus,
    curves,
    evidence,
    fitted,
    headroom,
    judged,
    predictions,
    rejects,
)

from schemas.arrow import rows_of, table_of
from schemas.config import EvaluationConfig
from schemas.rejects import RejectCode, reject
from schemas.results import CurvePoint, GateRow, Judgement, Metric, Outcome, Prediction
from trajpilot_core.evaluation import rows as rows_module
from trajpilot_core.evaluation.blocks import Block, EvaluationError, Predictions, predictions_of
from trajpilot_core.evaluation.checks import judge
from trajpilot_core.evaluation.evidence import Evidence
from trajpilot_core.evaluation.tables import (
    averaged,
    capture_clusters,
    difference,
    gate_rows,
    metric_rows,
    outcome_table,
    sums_of,
    take_clusters,
)
from trajpilot_core.stages import evaluation as stage
from trajpilot_core.stages.stage import Runtime, Work

CFG = EvaluationConfig(bootstrap=300)


@pytest.fixture(scope="module")
def world() -> dict[str, pa.Table]:
    return corpus(n_train=6, n_test=12, n_segments=10)


@pytest.fixture(scope="module")
def table(world: dict[str, pa.Table]) -> pa.Table:
    return predictions(world, seeds=(0, 1))


@pytest.fixture(scope="module")
def blocks(table: pa.Table) -> Predictions:
    return predictions_of(table)


@pytest.fixture(scope="module")
def metrics(blocks: Predictions) -> list[Metric]:
    return metric_rows(blocks, "egoexo4d", take_clusters(blocks), CFG)


@pytest.fixture(scope="module")
def sound(world: dict[str, pa.Table], blocks: Predictions, metrics: list[Metric]) -> Evidence:
    return evidence(world, blocks, metrics)


def get(metrics: list[Metric], **wanted: object) -> Metric:
    (found,) = [m for m in metrics if all(getattr(m, name) == value for name, value in wanted.items())]
    return found


def test_blocks_do_not_depend_on_the_order_of_the_rows(table: pa.Table, blocks: Predictions) -> None:
    shuffled = table.take(pa.array(np.random.default_rng(0).permutation(table.num_rows)))
    again = predictions_of(shuffled)
    assert again.label_ids == blocks.label_ids
    for one, other in zip(blocks.blocks, again.blocks, strict=True):
        assert (one.variant, one.seed, one.horizon) == (other.variant, other.seed, other.horizon)
        for name in ("windows", "takes", "labels", "decoded", "rankings", "opened", "candidates"):
            assert np.array_equal(getattr(one, name), getattr(other, name))


def test_blocks_do_not_depend_on_the_chunks_of_the_table(table: pa.Table, blocks: Predictions) -> None:
    """Every chunk has its own dictionary."""
    again = predictions_of(pa.concat_tables([table.slice(at, 997) for at in range(0, table.num_rows, 997)]))
    assert (again.window_ids, again.label_ids) == (blocks.window_ids, blocks.label_ids)
    for one, other in zip(blocks.blocks, again.blocks, strict=True):
        for name in ("windows", "takes", "labels", "decoded", "rankings", "opened", "candidates"):
            assert np.array_equal(getattr(one, name), getattr(other, name))


def test_blocks_stand_for_the_rows_of_the_table(table: pa.Table, blocks: Predictions) -> None:
    block = next(b for b in blocks.of("scorer") if b.horizon == 5)
    window = blocks.window_ids[block.windows[3]]
    held = pc.and_(pc.equal(table["window_id"], window), pc.equal(table["variant"], "scorer"))
    rows = sorted(
        rows_of(Prediction, table.filter(held).filter(pc.equal(table.filter(held)["seed"], 0))),
        key=lambda r: r.position,
    )
    assert [blocks.label_ids[c] for c in block.labels[3]] == [r.label_id for r in rows]
    assert [tuple(blocks.label_ids[c] for c in ranked) for ranked in block.rankings[3]] == [r.top_ids for r in rows]
    assert (block.opened[3] == 1) == rows[0].opened


def test_a_missing_position_is_refused(table: pa.Table) -> None:
    with pytest.raises(EvaluationError, match="exactly once"):
        predictions_of(table.slice(1))
    with pytest.raises(EvaluationError, match="no prediction"):
        predictions_of(table.slice(0, 0))


def test_a_short_ranking_never_hits_its_padding(table: pa.Table) -> None:
    few = pa.array([row[:2] for row in table["top_ids"].to_pylist()], pa.list_(pa.string()))
    block = predictions_of(
        table.set_column(table.schema.get_field_index("top_ids"), table.schema.field("top_ids"), few)
    ).blocks[0]
    assert (block.rankings[..., 2:] == -1).all()
    assert (block.rankings[..., :2] >= 0).all()


def test_values_are_means_over_windows(metrics: list[Metric], blocks: Predictions) -> None:
    for seed in (0, 1):
        block = next(b for b in blocks.of("oracle") if b.horizon == 6 and b.seed == seed)
        right = (block.labels == block.rankings[..., 0])[:, 1:-1].mean()
        row = get(metrics, variant="oracle", reference=None, horizon=6, metric="M@1", seed=seed)
        assert row.value == pytest.approx(100 * right)
        assert row.low < row.value < row.high
        assert (row.n_takes, row.n_windows) == (12, len(block.windows))


def test_pooled_rows_and_seeds_are_the_means_that_they_say(metrics: list[Metric]) -> None:
    rows = [m for m in metrics if m.variant == "scorer" and m.reference is None and m.metric == "F@1" and m.seed == 0]
    single = {m.horizon: m for m in rows if m.horizon}
    plain = next(m for m in rows if m.pooling == "plain")
    sample = next(m for m in rows if m.pooling == "sample")
    assert plain.value == pytest.approx(np.mean([m.value for m in single.values()]))
    assert sample.value == pytest.approx(
        np.average([m.value for m in single.values()], weights=[m.n_windows for m in single.values()])
    )
    both = [get(metrics, variant="scorer", reference=None, horizon=4, metric="F@1", seed=s).value for s in (0, 1, None)]
    assert both[2] == pytest.approx((both[0] + both[1]) / 2)


def test_a_difference_is_the_difference_of_the_values(metrics: list[Metric]) -> None:
    for metric in ("M@1", "ED"):
        gain = get(metrics, variant="oracle", reference="no_traj", horizon=3, metric=metric)
        ends = [
            get(metrics, variant=v, reference=None, horizon=3, metric=metric, seed=None).value
            for v in ("oracle", "no_traj")
        ]
        assert gain.value == pytest.approx(ends[0] - ends[1])


def test_no_difference_is_drawn_between_different_windows(table: pa.Table) -> None:
    gone = table["window_id"][0].as_py()
    short = table.filter(pc.invert(pc.and_(pc.equal(table["window_id"], gone), pc.equal(table["variant"], "oracle"))))
    blocks = predictions_of(short)
    clusters = take_clusters(blocks)
    with pytest.raises(EvaluationError, match="different windows"):
        difference(sums_of(blocks, "oracle", 0, clusters), sums_of(blocks, "no_traj", 0, clusters))
    rows = metric_rows(blocks, "x", clusters, CFG)
    assert not [m for m in rows if m.variant == "oracle" and m.reference is not None]
    assert [m for m in rows if m.variant == "scorer" and m.reference == "no_traj"]


def test_seeds_on_different_windows_are_not_averaged(table: pa.Table) -> None:
    gone = pc.and_(pc.equal(table["window_id"], table["window_id"][0].as_py()), pc.equal(table["seed"], 1))
    blocks = predictions_of(table.filter(pc.invert(gone)))
    with pytest.raises(EvaluationError, match="cannot be averaged"):
        averaged([sums_of(blocks, "no_traj", seed, take_clusters(blocks)) for seed in (0, 1)])


def test_captures_of_several_takes_widen_the_intervals(blocks: Predictions) -> None:
    apart = {take: take for take in blocks.take_ids}
    assert capture_clusters(blocks, apart) is None
    clusters = capture_clusters(blocks, {take: f"c{i // 4}" for i, take in enumerate(blocks.take_ids)})
    assert clusters is not None
    rows = metric_rows(blocks, "x", clusters, CFG)
    assert {m.cluster for m in rows} == {"capture"}
    assert {m.n_takes for m in rows} == {3}


def test_equal_inputs_give_equal_rows(blocks: Predictions, metrics: list[Metric]) -> None:
    assert metric_rows(blocks, "egoexo4d", take_clusters(blocks), CFG) == metrics


def test_gate_rows_obey_the_identity(blocks: Predictions) -> None:
    rows = gate_rows(blocks)
    assert len(rows) == 2 * 7
    for row in rows:
        assert row.gain_overall == pytest.approx(row.open_rate / 100 * row.gain_opened, abs=1e-6)
        assert row.n_opened == round(row.open_rate / 100 * row.n_windows)


def test_outcomes_hold_what_the_first_seed_answered(blocks: Predictions) -> None:
    table = outcome_table(blocks)
    n = sum(len(b.windows) for b in blocks.of("scorer") if b.seed == 0)
    assert table.num_rows == 5 * n
    for row in rows_of(Outcome, table.slice(0, 50)):
        assert row.mid_right == sum(a == b for a, b in zip(row.label_ids[1:-1], row.decoded_ids[1:-1], strict=True))
        assert all(0 <= rank <= 5 for rank in row.ranks)
        assert len(row.label_ids) == row.horizon


# The checks. `verdicts` maps the check's name to its verdict.


def verdicts(evidence: Evidence) -> dict[str, str]:
    return {row.check: row.verdict for row in judge(evidence)}


def test_sound_results_pass_every_identity_and_leak_check(sound: Evidence) -> None:
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
    "identity: SR is at most mAcc": ("SR", 4, +99.0),
    "identity: SR is at most mIoU": ("SR", 4, +99.0),
    "identity: ED lies between 0 and H": ("ED", 8, +8.0),
}


@pytest.mark.parametrize("check", FAULTS)
def test_a_wrong_number_in_one_cell_is_seen(sound: Evidence, check: str) -> None:
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


def spoiled(sound: Evidence, variant: str, change: dict[str, object], horizon: int = 5) -> Evidence:
    """Change arrays of one block (seed 0)."""

    def one(block: Block) -> Block:
        if (block.variant, block.seed, block.horizon) != (variant, 0, horizon):
            return block
        return replace(block, **{name: made(getattr(block, name)) for name, made in change.items()})  # type: ignore[operator]

    return replace(sound, predictions=replace(sound.predictions, blocks=tuple(map(one, sound.predictions.blocks))))


SAME = "identity: all rows are scored on the same windows"
GATE = "identity: overall gain = open rate x gain on the opened windows"


def test_a_row_without_one_window_is_seen(sound: Evidence) -> None:
    names = ("windows", "takes", "labels", "decoded", "rankings", "gate", "opened", "candidates")
    assert verdicts(spoiled(sound, "oracle", {n: lambda a: a[1:] for n in names}))[SAME] == "fails"


def test_a_row_without_one_horizon_is_seen(sound: Evidence) -> None:
    kept = tuple(b for b in sound.predictions.blocks if (b.variant, b.horizon) != ("top1", 8))
    assert verdicts(replace(sound, predictions=replace(sound.predictions, blocks=kept)))[SAME] == "fails"


def test_another_truth_in_one_row_is_seen(sound: Evidence) -> None:
    assert verdicts(spoiled(sound, "top1", {"labels": lambda a: (a + 1) % 9}))[SAME] == "fails"


def test_a_closed_gate_that_does_not_repeat_the_fallback_is_seen(sound: Evidence) -> None:
    assert verdicts(spoiled(sound, "scorer", {"rankings": lambda a: a[..., ::-1]}))[GATE] == "fails"


def test_a_window_without_a_gate_is_seen(sound: Evidence) -> None:
    assert verdicts(spoiled(sound, "scorer", {"opened": lambda a: np.full_like(a, -1)}))[GATE] == "fails"


def test_a_training_take_in_the_test_is_seen(sound: Evidence) -> None:
    take = sound.predictions.take_ids[0]
    assert (
        verdicts(replace(sound, take_split={**sound.take_split, take: "train"}))["leak: only test takes are scored"]
        == "fails"
    )


BANK = "leak: the bank holds training takes only"


def used_candidate(sound: Evidence) -> str:
    block = next(sound.predictions.of("top1"))
    return sound.predictions.window_ids[block.candidates[0]]


@pytest.mark.parametrize("split", ["test", "dev"])
def test_a_leaked_take_in_the_bank_is_seen(sound: Evidence, split: str) -> None:
    take = sound.window_take[used_candidate(sound)]
    assert verdicts(replace(sound, take_split={**sound.take_split, take: split}))[BANK] == "fails"


def test_a_scored_take_in_the_bank_is_seen(sound: Evidence) -> None:
    take = sound.predictions.take_ids[0]
    assert verdicts(replace(sound, window_take={**sound.window_take, used_candidate(sound): take}))[BANK] == "fails"


def test_a_held_out_take_in_the_bank_of_the_cheap_mode_is_seen(sound: Evidence) -> None:
    take = sound.window_take[used_candidate(sound)]
    assert verdicts(replace(sound, folds={**sound.folds, take: 0}))[BANK] == "fails"


def test_a_candidate_of_an_unknown_window_is_seen(sound: Evidence) -> None:
    assert verdicts(replace(sound, window_take={}))[BANK] == "fails"


def test_a_test_take_among_the_folds_is_seen(sound: Evidence) -> None:
    folds = {**sound.folds, sound.predictions.take_ids[0]: 1}
    assert verdicts(replace(sound, folds=folds))[FIT] == "fails"


FIT = "leak: only training takes are fitted"


@pytest.mark.parametrize("entry", ["e_tau", "predictors"])
@pytest.mark.parametrize("kind", ["test", "dev", "held out"])
def test_a_leaked_take_among_the_fitted_ones_is_seen(sound: Evidence, entry: str, kind: str) -> None:
    take = next(t for t, f in sorted(sound.folds.items()) if f == 0)
    splits = sound.take_split if kind == "held out" else {**sound.take_split, take: kind}
    chains = {"final": [*sound.fitted[entry]["final"], take]}  # type: ignore[index]
    folds = sound.folds if kind == "held out" else {t: f for t, f in sound.folds.items() if t != take}
    wrong = replace(sound, take_split=splits, folds=folds, fitted={**sound.fitted, entry: chains})
    assert verdicts(wrong)[FIT] == "fails"


def test_a_chain_of_a_fold_may_not_be_fitted_on_that_fold(sound: Evidence) -> None:
    folds = {take: i % 2 for i, take in enumerate(sorted(sound.folds))}
    chains = {f"fold{k}": [t for t, f in folds.items() if f != k] for k in range(2)} | {"final": sorted(folds)}
    assert verdicts(replace(sound, folds=folds, fitted=dict.fromkeys(sound.fitted, chains)))[FIT] == "holds"
    leaked = {**chains, "fold1": sorted(folds)}
    assert verdicts(replace(sound, folds=folds, fitted={"e_tau": chains, "predictors": leaked}))[FIT] == "fails"


def test_fits_without_a_record_are_not_said_to_be_sound(sound: Evidence) -> None:
    assert verdicts(replace(sound, fitted={**sound.fitted, "e_tau": None}))[FIT] == "not run"


DEMO = "demo: Oracle is above No-Traj at every H"


def test_the_demos_claim_fails_when_one_interval_holds_zero(sound: Evidence) -> None:
    wrong = [
        m.replace(low=-0.1) if (m.variant, m.reference, m.horizon, m.metric) == ("oracle", "no_traj", 7, "M@1") else m
        for m in sound.metrics
    ]
    assert verdicts(replace(sound, metrics=wrong))[DEMO] == "fails"


def test_the_demos_claim_proves_nothing_with_an_undertrained_model(sound: Evidence) -> None:
    row = next(j for j in judge(replace(sound, trained=judged("undertrained"))) if j.check == DEMO)
    assert row.verdict == "undertrained"
    assert "UNDERTRAINED: final/traj, seed 0" in row.detail


SCORER = "claim: the Scorer is above No-Traj at every H"
GROWS = "claim: Oracle's lead over No-Traj grows with the horizon"


@pytest.mark.parametrize("model", ["final/scorer", "fold1/traj", "fold0/no_traj"])
def test_an_undertrained_scorer_or_fold_proves_nothing_about_the_scorer(sound: Evidence, model: str) -> None:
    weak = Judgement(check=f"trained: {model}, seed 0", verdict="undertrained", detail="")
    kept = [j for j in sound.trained if j.check != weak.check]
    found = verdicts(replace(sound, trained=[*kept, weak]))
    assert found[SCORER] == "undertrained"
    assert found[DEMO] == "holds"


def with_interval(sound: Evidence, low: float, high: float) -> Evidence:
    """All differences between scorer and no_traj get one interval."""
    ends = {"low": low, "high": high}
    rows = [m.replace(**ends) if (m.variant, m.reference) == ("scorer", "no_traj") else m for m in sound.metrics]
    return replace(sound, metrics=rows)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [(0.1, 2, "holds"), (-1, 2, "undecided"), (-2, -1, "fails"), (-np.inf, np.inf, "not run")],
)
def test_a_claim_fails_only_where_the_interval_says_so(sound: Evidence, low: float, high: float, verdict: str) -> None:
    row = next(j for j in judge(with_interval(sound, low, high)) if j.check == SCORER)
    assert row.verdict == verdict
    if verdict == "not run":
        assert row.detail == "too few takes (12)"


def test_the_growth_of_the_lead_is_judged_by_its_own_interval(sound: Evidence) -> None:
    assert sound.growth is not None
    assert sound.growth.low < sound.growth.value < sound.growth.high
    ends = {h: get(list(sound.metrics), variant="oracle", reference="no_traj", seed=None, horizon=h, metric="M@1",
                   cluster="take") for h in (3, 8)}  # fmt: skip
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


def test_the_stage_writes_every_table_that_it_declares(
    world: dict[str, pa.Table], table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = reject("evaluation", RejectCode.WINDOW_INCOMPLETE, "egoexo4d:take00009", "no feature")
    shuffles = pa.table({"seed": pa.array([], pa.int64())})
    made = rows_module.RowsResult(table, headroom(), shuffles, [lost], 11, 10)
    monkeypatch.setattr(rows_module, "predict_all", lambda *_: made)
    told = {name: {"fitted_takes": json.dumps(fitted(world))} for name in stage.FITTED}
    kept, inputs = Kept(), Tables({**world, **curves(), **rejects()}, metadata=told)
    stage.run(Work(inputs, CFG, (), kept, Runtime("", "cpu", 1, None)))  # type: ignore[arg-type]
    assert set(kept.tables) == set(stage.STAGE.writes)
    assert set(inputs.asked) <= set(stage.STAGE.reads)
    assert (kept.counts, kept.rejects) == ((11, 10), [lost])
    assert rows_of(GateRow, kept.tables["gate"])
    checks = [row.check for row in rows_of(Judgement, kept.tables["judgements"])]
    assert "trained: final/no_traj, seed 0" in checks
    assert "trained: final/scorer, seed 0" in checks
    assert len(checks) == len(set(checks))
    assert {row.check: row.verdict for row in rows_of(Judgement, kept.tables["judgements"])}[FIT] == "holds"


def test_the_scorer_is_held_against_the_floors_and_an_unfitted_one_is_undertrained() -> None:
    floors = [
        CurvePoint(model=f"final/{floor}", seed=0, epoch=0, split="dev", quantity="M@1", value=value)
        for floor, value in (("majority", 0.1), ("previous", 0.2))
    ]
    tables = curves()
    tables["predictor_curves"] = pa.concat_tables([tables["predictor_curves"], table_of(CurvePoint, floors)])
    found = {j.check: j.verdict for j in stage.trained(Tables(tables))}
    assert found["trained: final/scorer, seed 0"] == "holds"
    for curve in (curves(undertrained=True)["scorer_curves"], tables["scorer_curves"].slice(0, 0)):
        weak = {j.check: j.verdict for j in stage.trained(Tables({**tables, "scorer_curves": curve}))}
        assert weak["trained: final/scorer, seed 0"] == "undertrained"
        assert weak["trained: final/traj, seed 0"] == "holds"
