"""Tables of the evaluation, and the stage that writes them."""

import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from right_predictions import predictions_of
from synthetic_results import Kept, Tables, choices, curves, fitted, headroom, rejects

from schemas.arrow import rows_of, table_of
from schemas.config import CompletedEvaluation
from schemas.rejects import RejectCode, reject
from schemas.results import CurvePoint, GateRow, Headroom, Judgement, Metric, Outcome, Prediction, ScorerChoice
from schemas.training import PredictorConfig
from trajpilot_core.data.cross_fitting import FITTED
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.evaluation import predictions as rows_module
from trajpilot_core.evaluation.prediction_arrays import EvaluationError, PredictionCollector, Predictions
from trajpilot_core.evaluation.tables import gate_rows, metric_rows, outcome_table
from trajpilot_core.stages import evaluation as stage

CFG = CompletedEvaluation(bootstrap=300)


def get(metrics: list[Metric], **wanted: object) -> Metric:
    (found,) = [m for m in metrics if all(getattr(m, name) == value for name, value in wanted.items())]
    return found


def assert_same(one: Predictions, other: Predictions) -> None:
    assert (one.window_ids, one.take_ids, one.label_ids) == (other.window_ids, other.take_ids, other.label_ids)
    for mine, theirs in zip(one.blocks, other.blocks, strict=True):
        for name, value in vars(mine).items():
            np.testing.assert_array_equal(value, getattr(theirs, name))


def test_blocks_depend_neither_on_the_order_of_the_rows_nor_on_the_chunks_of_the_table(
    table: pa.Table, blocks: Predictions
) -> None:
    """Every chunk has its own dictionary."""
    order = pa.array(np.random.default_rng(0).permutation(table.num_rows))
    chunks = pa.concat_tables([table.slice(at, 997) for at in range(0, table.num_rows, 997)])
    for other in (table.take(order), chunks):
        assert_same(predictions_of(other), blocks)


def test_tables_are_collected_one_by_one_and_only_integers_are_kept(table: pa.Table, blocks: Predictions) -> None:
    """The memory of Arrow is measured before each table; a list of all tables is the planted fault."""

    def parts(n: int, held: list[int]) -> Iterator[pa.Table]:
        for at in range(0, table.num_rows, n):
            yield pa.Table.from_pylist(table.slice(at, n).to_pylist(), schema=table.schema)
            held.append(pa.total_allocated_bytes() - before)

    before, held, whole = pa.total_allocated_bytes(), [], []
    collected = PredictionCollector()
    for part in collected.passing(parts(300, held)):
        assert part.num_rows <= 300
    assert_same(collected.predictions(), blocks)
    list(collected.passing(list(parts(300, whole))))
    assert max(held) < 3 * held[0]
    assert max(whole) > 10 * held[0]


def test_candidates_are_those_of_all_rows(table: pa.Table) -> None:
    collected = PredictionCollector()
    collected.add(table)
    assert collected.candidates() == sorted(set(table["candidate"].to_pylist()) - {None})
    collected.predictions()
    assert len(collected.candidates()) > 1, "they stay when the blocks are handed over"
    with pytest.raises(EvaluationError, match="no prediction to score"):
        PredictionCollector().predictions()


def test_blocks_contain_the_rows_of_the_table(table: pa.Table, blocks: Predictions) -> None:
    block = next(b for b in blocks.of("scorer") if b.horizon == 5)
    window = blocks.window_ids[block.windows[3]]
    held = (pc.field("window_id") == window) & (pc.field("variant") == "scorer") & (pc.field("seed") == 0)
    rows = rows_of(Prediction, table.filter(held).sort_by("position"))
    assert [blocks.label_ids[c] for c in block.labels[3]] == [r.label_id for r in rows]
    assert [tuple(blocks.label_ids[c] for c in ranked) for ranked in block.rankings[3]] == [r.top_ids for r in rows]
    assert (block.opened[3] == 1) == rows[0].opened


def test_a_missing_position_is_refused_and_a_short_ranking_never_hits_its_padding(table: pa.Table) -> None:
    with pytest.raises(EvaluationError, match="exactly once"):
        predictions_of(table.slice(1))
    with pytest.raises(EvaluationError, match="no prediction"):
        predictions_of(table.slice(0, 0))
    few = pa.array([row[:2] for row in table["top_ids"].to_pylist()], pa.list_(pa.string()))
    short = table.set_column(table.schema.get_field_index("top_ids"), table.schema.field("top_ids"), few)
    block = predictions_of(short).blocks[0]
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


def test_pooled_rows_and_seeds_are_means(metrics: list[Metric]) -> None:
    rows = [m for m in metrics if m.variant == "scorer" and m.reference is None and m.metric == "F@1" and m.seed == 0]
    single = {m.horizon: m for m in rows if m.horizon}
    plain = next(m for m in rows if m.pooling == "plain")
    sample = next(m for m in rows if m.pooling == "sample")
    values, weights = ([getattr(m, name) for m in single.values()] for name in ("value", "n_windows"))
    assert plain.value == pytest.approx(np.mean(values))
    assert sample.value == pytest.approx(np.average(values, weights=weights))
    both = [get(metrics, variant="scorer", reference=None, horizon=4, metric="F@1", seed=s).value for s in (0, 1, None)]
    assert both[2] == pytest.approx((both[0] + both[1]) / 2)


def test_a_difference_is_the_difference_of_the_values(metrics: list[Metric]) -> None:
    for metric in ("M@1", "ED"):
        gain = get(metrics, variant="oracle", reference="no_traj", horizon=3, metric=metric)
        own = {"reference": None, "horizon": 3, "metric": metric, "seed": None}
        ends = [get(metrics, variant=row, **own).value for row in ("oracle", "no_traj")]
        assert gain.value == pytest.approx(ends[0] - ends[1])


def test_rows_or_seeds_with_different_windows_are_neither_compared_nor_averaged(table: pa.Table) -> None:
    first = pc.field("window_id") == table["window_id"][0].as_py()
    blocks = predictions_of(table.filter(~(first & (pc.field("variant") == "oracle"))))
    rows = metric_rows(blocks, "x", CFG)
    assert not [m for m in rows if m.variant == "oracle" and m.reference is not None]
    assert [m for m in rows if m.variant == "scorer" and m.reference == "no_traj"]
    blocks = predictions_of(table.filter(~(first & (pc.field("seed") == 1))))
    assert not [m for m in metric_rows(blocks, "x", CFG) if m.seed is None]


def test_gate_rows_obey_the_identity(blocks: Predictions) -> None:
    rows = gate_rows(blocks)
    assert len(rows) == 2 * 7
    for row in rows:
        assert row.gain_overall == pytest.approx(row.open_rate / 100 * row.gain_opened, abs=1e-6)
        assert row.n_opened == round(row.open_rate / 100 * row.n_windows)


def test_outcomes_contain_the_answers_of_the_first_seed(blocks: Predictions) -> None:
    table = outcome_table(blocks)
    n = sum(len(b.windows) for b in blocks.of("scorer") if b.seed == 0)
    kept = {"no_traj", "endpoint_traj", "scorer", "oracle", "top1"}
    assert set(table["variant"].to_pylist()) == kept, "main rows of these predictions, and the nearest candidate"
    assert table.num_rows == len(kept) * n
    for row in rows_of(Outcome, table.slice(0, 50)):
        assert row.mid_right == sum(a == b for a, b in zip(row.label_ids[1:-1], row.decoded_ids[1:-1], strict=True))
        assert all(0 <= rank <= 5 for rank in row.ranks)
        assert len(row.label_ids) == row.horizon


def test_the_stage_writes_every_table_that_it_declares(
    small_world: dict[str, pa.Table], table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = reject("evaluation", RejectCode.WINDOW_INCOMPLETE, "egoexo4d:take00009", "no feature")
    parts = (table.slice(at, 1000) for at in range(0, table.num_rows, 1000))
    made = rows_module.RowsResult(parts, rows_module.RowFigures(rows_of(Headroom, headroom())), [lost], 11, 10)
    monkeypatch.setattr(rows_module, "predict_all", lambda *_: made)
    told = {
        name: {f"{FITTED}{chain}": json.dumps(takes) for chain, takes in fitted(small_world).items()}
        for name in stage.FITTED
    }
    told["predictors"]["config"] = PredictorConfig().model_dump_json()
    kept, inputs = Kept(), Tables({**small_world, **curves(), **rejects()}, about=told)
    stage.run(Work(inputs, CFG, (), kept, Runtime("", "cpu", 1, None)))  # type: ignore[arg-type]
    assert set(kept.tables) == set(stage.STAGE.writes)
    assert set(inputs.asked) <= set(stage.STAGE.reads)
    assert (kept.counts, kept.rejects) == ((11, 10), [lost])
    assert kept.tables["predictions"].equals(table)
    assert kept.tables["headroom"].equals(headroom())
    assert rows_of(GateRow, kept.tables["gate"])
    judged = rows_of(Judgement, kept.tables["judgements"])
    found = {row.check: row.verdict for row in judged}
    assert {"trained: final/no_traj, seed 0", "trained: final/scorer, seed 0"} <= set(found)
    assert len(found) == len(judged)
    assert found["leak: only training takes are fitted"] == "holds"


def test_a_scorer_is_judged_by_its_decisions_and_an_unfitted_one_is_undertrained() -> None:
    tables, place = curves(), {"seed": 0, "epoch": 0, "split": "dev", "quantity": "M@1"}
    values = {"majority": 0.1, "previous": 0.2}
    floors = [CurvePoint.model_validate({**place, "model": f"final/{row}", "value": v}) for row, v in values.items()]
    tables["predictor_curves"] = pa.concat_tables([tables["predictor_curves"], table_of(CurvePoint, floors)])

    def verdicts(**changed: pa.Table) -> dict[str, str]:
        return {j.check: j.verdict for j in stage.trained(Tables({**tables, **changed}), CFG)}

    assert verdicts()["trained: final/scorer, seed 0"] == "holds"
    at_chance = table_of(ScorerChoice, choices(skill=0.0))
    none = tables["scorer_choices"].slice(0, 0)
    rising = curves(undertrained=True)["scorer_curves"]
    for changed in ({"scorer_choices": at_chance}, {"scorer_choices": none}, {"scorer_curves": rising}):
        weak = verdicts(**changed)
        assert weak["trained: final/scorer, seed 0"] == "undertrained"
        assert weak["trained: final/traj, seed 0"] == "holds"
