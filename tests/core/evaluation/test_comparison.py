"""compare: settings of two runs, and their metrics, paired over takes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from right_predictions import predictions_of
from synthetic_corpus import corpus, predictions

from schemas.config import EvaluationConfig, FeatureConfig, IngestConfig, PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.stage import AnyStage, Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation import comparison
from trajpilot_core.evaluation.ceiling import row_scores
from trajpilot_core.evaluation.comparison import Pairing, pair
from trajpilot_core.evaluation.tables import metric_rows

CFG = EvaluationConfig(bootstrap=400)
TABLES = corpus(n_train=6, n_test=14, n_segments=9)
PREDICTIONS = predictions(TABLES, {"no_traj": 0.3, "endpoint_traj": 0.4}, seeds=(0, 1))
SCORES = row_scores(predictions_of(PREDICTIONS))


def only(variant: str) -> pa.Table:
    """The scores of one row, called x."""
    kept = SCORES.filter(pc.equal(SCORES["variant"], variant))
    return with_column(kept, "variant", pa.array(["x"] * kept.num_rows))


def with_column(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    return table.set_column(table.column_names.index(name), table.schema.field(name), values)


def figures(found: Pairing) -> dict[str, tuple[float, float, float]]:
    return {row.metric: (row.difference, row.low, row.high) for row in found.metrics}


def expected() -> dict[str, tuple[float, float, float]]:
    """The paired difference of the two rows as the evaluation computes it."""
    blocks = predictions_of(PREDICTIONS)
    rows = metric_rows(blocks, "simulated", CFG)
    kept = [row for row in rows if (row.variant, row.reference, row.pooling) == ("endpoint_traj", "no_traj", "plain")]
    return {row.metric: (row.value, row.low, row.high) for row in kept}


def test_the_difference_of_two_runs_is_the_paired_difference_of_the_evaluation() -> None:
    """The planted fault, takes paired with other takes of the other run, gives another interval."""
    second = only("endpoint_traj")
    found = pair(only("no_traj"), second, CFG)
    assert found.n_takes == 14
    for metric, numbers in figures(found).items():
        np.testing.assert_allclose(numbers, expected()[metric], atol=1e-7)
    takes = sorted(set(second["take_id"].to_pylist()))
    other = dict(zip(takes, takes[1:] + takes[:1], strict=True))
    mixed = with_column(second, "take_id", pa.array([other[take] for take in second["take_id"].to_pylist()]))
    planted, right = figures(pair(only("no_traj"), mixed, CFG))["M@1"], expected()["M@1"]
    assert planted[0] == pytest.approx(right[0])
    assert abs(planted[1] - right[1]) > 0.05


def test_takes_of_one_run_only_or_with_other_windows_are_omitted_and_listed() -> None:
    first, second = only("no_traj"), only("endpoint_traj")
    takes = sorted(set(first["take_id"].to_pylist()))
    second = second.filter(pc.not_equal(second["take_id"], takes[0]))
    fewer = [
        n - (t == takes[1]) for t, n in zip(*(second[c].to_pylist() for c in ("take_id", "n_windows")), strict=True)
    ]
    found = pair(first, with_column(second, "n_windows", pa.array(fewer)), CFG)
    assert found.unpaired == tuple(takes[:2])
    assert found.n_takes == 12
    assert all(row.n_takes == 12 for row in found.metrics)


def test_too_few_common_takes_give_no_interval_and_none_no_metric_and_a_run_is_equal_to_itself() -> None:
    assert {row[:3] for row in figures(pair(SCORES, SCORES, CFG)).values()} == {(0.0, 0.0, 0.0)}
    takes = sorted(set(SCORES["take_id"].to_pylist()))
    few, none = (SCORES.filter(pc.is_in(SCORES["take_id"], value_set=pa.array(takes[:n], pa.string()))) for n in (3, 0))
    assert all(np.isinf(row.low) for row in pair(few, SCORES, CFG).metrics)
    assert pair(none, SCORES, CFG).metrics == ()


# Two whole roots, with the names of the real stages and nothing computed.


def pretend_ingest(tables: dict[str, pa.Table]) -> AnyStage:
    def run(work: Work) -> None:
        for name, table in tables.items():
            work.sink.table(name, table)
        work.sink.count(1, 1)

    facts = {"of": str([table.to_pylist() for table in tables.values()])}
    written = tuple(tables)
    return Stage("ingest", (), written, IngestConfig, run, 1, "", sources=lambda *_: [Source("", facts=facts)])


def pretend_sharded(name: str, entry: str) -> AnyStage:
    def sources(inputs, config, data_root) -> list[Source]:
        return [Source(take) for take in inputs.table("takes")["take_id"].to_pylist()]

    def run(work: Work) -> None:
        for source in work.pending:
            size = getattr(work.config, "batch", 0)
            work.sink.shard(source.shard, pa.table({"of": [f"{source.shard}{size}"]}), [], 1)

    config = type(getattr(PipelineConfig(), name))
    return Stage(name, ("takes", "segments"), (entry,), config, run, 1, "", "take", sources)


def pretend_evaluation(*features: str) -> AnyStage:
    def run(work: Work) -> None:
        work.sink.table("take_scores", SCORES)
        work.sink.count(1, 1)

    reads = ("takes", "segments", *features)
    return Stage("evaluation", reads, ("take_scores",), EvaluationConfig, run, 1, "", sources=lambda *_: [Source("")])


def make(
    root: Path,
    takes: pa.Table = TABLES["takes"],
    segments: pa.Table = TABLES["segments"],
    config: PipelineConfig | None = None,
    windows: pa.Table = TABLES["windows"],
    answers: dict[str, pa.Table] | None = None,
    *,
    has_features: bool = True,
) -> dict[str, AnyStage]:
    sharded = {"trajectories": "motions", "features": "features"} if has_features else {}
    listed = (
        pretend_ingest({"takes": takes, "segments": segments, "windows": windows, **(answers or {})}),
        *(pretend_sharded(name, entry) for name, entry in sharded.items()),
        pretend_evaluation(*sharded.values()),
    )
    stages = {stage.name: stage for stage in listed}
    for stage in listed:
        execute(stage, config or PipelineConfig(), RunOptions(root=str(root), device="cpu"), stages)
    return stages


def test_settings_versions_and_libraries_that_differ_are_listed(tmp_path: Path) -> None:
    stages = make(tmp_path / "a")
    make(tmp_path / "b", config=PipelineConfig(features=FeatureConfig(batch=3)))
    first, second = (comparison.open_side(str(tmp_path / name)) for name in "ab")
    assert comparison.settings(first, second, stages) == {"features: batch": ("8", "3")}
    newer = first.outputs["features"].replace(version=2, libraries={"torch": "9"})
    other = comparison.settings(first, replace(first, outputs={**first.outputs, "features": newer}), stages)
    assert (other["features: code version"], other["library torch"][1]) == (("1", "2"), "9")
    assert {row.difference for row in comparison.metrics(first, second).metrics} == {0.0}


def paired(root: Path, one: dict, other: dict) -> Pairing:
    make(root / "a", **one, has_features=False)
    make(root / "b", **other, has_features=False)
    return comparison.metrics(*(comparison.open_side(str(root / name)) for name in "ab"))


def test_takes_with_as_many_but_other_windows_or_labels_are_not_paired(tmp_path: Path) -> None:
    scored = sorted(set(SCORES["take_id"].to_pylist()))
    shifted, relabelled = scored[2], scored[5]

    def other(table: pa.Table, column: str, take: str, value: object) -> pa.Table:
        values = table[column].to_pylist()
        at = table["take_id"].to_pylist().index(take)
        return with_column(table, column, pa.array([*values[:at], value, *values[at + 1 :]], table[column].type))

    windows = other(TABLES["windows"], "segment_ids", shifted, ["x", "y", "z"])
    segments = other(TABLES["segments"], "label", relabelled, "other")
    found = paired(tmp_path, {}, {"segments": segments, "windows": windows})
    assert (found.unpaired, found.n_takes) == ((shifted, relabelled), 12)


def test_horizons_of_one_run_only_are_omitted_and_listed() -> None:
    short = SCORES.filter(pc.less(SCORES["horizon"], pc.max(SCORES["horizon"])))
    found = pair(SCORES, short, CFG)
    assert found.of_one == (f"H={pc.max(SCORES['horizon']).as_py()}",)
    assert found.n_takes == 14
    assert {row[:3] for row in figures(found).values()} == {(0.0, 0.0, 0.0)}


def test_an_earlier_evaluation_is_opened_by_the_beginning_of_its_key_with_its_inputs(tmp_path: Path) -> None:
    stages = make(tmp_path / "a")
    old = comparison.open_side(str(tmp_path / "a")).outputs["evaluation"].key
    make(tmp_path / "a", config=PipelineConfig(features=FeatureConfig(batch=3)))
    before, now = (comparison.open_side(f"{tmp_path / 'a'}{at}") for at in (f"@{old[:8]}", ""))
    assert comparison.settings(before, now, stages) == {"features: batch": ("8", "3")}
    with pytest.raises(InputError, match=r"exactly one must; known evaluations: [0-9a-f]{8}, [0-9a-f]{8} "):
        comparison.open_side(f"{tmp_path / 'a'}@zz")
    for absent in ("a@", "nowhere"):
        with pytest.raises(InputError, match="is not a folder"):
            comparison.open_side(str(tmp_path / absent))


CLASSES = PipelineConfig(evaluation=EvaluationConfig(vocabulary="classes"))


def answering(*texts: str, same: int = 1) -> dict[str, pa.Table]:
    """The classes of the labels of a run: `same` neighbours each, called by the first of them."""
    ids = [f"id_{text}" for text in texts]
    return {"label_classes": pa.table({"label_id": ids, "class_id": [ids[n - n % same] for n in range(len(ids))]})}


def test_runs_over_other_answers_are_refused(tmp_path: Path) -> None:
    """Labels against classes, with the tables of labels and without; other labels; other classes of the same labels."""
    recorded = with_column(TABLES["takes"], "corpus", pa.array(["egoexo4d"] * TABLES["takes"].num_rows))
    with pytest.raises(InputError, match="different corpora"):
        paired(tmp_path / "simulated", {}, {"takes": recorded})
    four = answering("cut", "slice", "wash", "rinse", same=2)
    ids = four["label_classes"]["label_id"].to_pylist()
    moved = {"label_classes": pa.table({"label_id": ids, "class_id": [ids[0], ids[2], ids[2], ids[2]]})}
    for name, one, other, said in (
        ("classes", {"answers": four}, {"answers": four, "config": CLASSES}, "4 labels of 4 labels, .* 2 classes of 4"),
        ("gone", {}, {"config": CLASSES}, "0 labels of 0 labels, .* 0 classes"),
        ("labels", {"answers": answering("cut", "wash")}, {"answers": answering("cut", "fry")}, "2 labels of 2"),
        ("moved", {"answers": four, "config": CLASSES}, {"answers": moved, "config": CLASSES}, "2 classes of 4 labels"),
    ):
        with pytest.raises(InputError, match=rf"answers with {said}.* these are different tasks"):
            paired(tmp_path / name, one, other)
