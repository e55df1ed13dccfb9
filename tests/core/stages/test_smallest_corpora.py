"""The smallest corpora: a stage that needs two takes says so by name, and what is just enough goes through."""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from egoexo_fixture import SMALL, healthy, ingest
from planning_fixture import ALIGNMENT, PREDICTOR, SCORER, TRAIN
from planning_world import Memory, WorldSize, planning_world, run_stage

from schemas.arrow import rows_of
from schemas.config import CompletedEvaluation
from schemas.results import Metric
from trajpilot_core.errors import InputError, TrajPilotError
from trajpilot_core.stages import alignment, evaluation, predictor, scorer

SHORT = TRAIN.replace(epochs=1)
STAGES = {
    alignment.STAGE: ALIGNMENT.replace(train=SHORT),
    predictor.STAGE: PREDICTOR.replace(train=SHORT),
    scorer.STAGE: SCORER.replace(train=SHORT),
    evaluation.STAGE: CompletedEvaluation(bootstrap=100, shuffles=2),
}


def world(train: int, dev: int, test: int) -> Memory:
    size = WorldSize(tasks=1, steps=4, alternatives=2, train=train, dev=dev, test=test, segments=6, max_horizon=5)
    memory = planning_world(size)
    takes = memory.tables["takes"]
    memory.tables["takes"] = takes.append_column("corpus", pa.array(["toy"] * takes.num_rows))
    return memory


def run_all(memory: Memory, scratch: Path, folds: int = 1, evaluated: CompletedEvaluation | None = None) -> None:
    """Run the stages up to the first that refuses, whose name the error then carries."""
    for stage, config in (STAGES | ({evaluation.STAGE: evaluated} if evaluated else {})).items():
        settings = config.replace(folds=folds) if stage is alignment.STAGE else config
        try:
            run_stage(stage, settings, memory, scratch / stage.name)
        except TrajPilotError as error:
            error.add_note(stage.name)
            raise


def without(memory: Memory, split: str, *horizons: int) -> Memory:
    windows = memory.tables["windows"]
    gone = pc.and_(pc.equal(windows["split"], split), pc.is_in(windows["horizon"], pa.array(horizons)))
    memory.tables["windows"] = windows.filter(pc.invert(gone))
    return memory


def test_ingest_refuses_a_single_training_take_and_names_the_setting_where_all_went_to_dev(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"train is empty: .* \(1\) went to dev.*two are needed"):
        ingest(healthy(tmp_path / "one", n_train=1).write(), SMALL.replace(dev_min=3))
    two = healthy(tmp_path / "two", n_train=2).write()
    with pytest.raises(InputError, match=r"\(2\) went to dev, which needs at least 2; .* --set ingest\.dev_min"):
        ingest(two, SMALL.replace(dev_min=2))
    assert {row["split"] for row in ingest(two).rows("takes")} == {"train", "dev", "test"}


def test_a_stage_refuses_too_few_takes_or_takes_without_windows_by_name(tmp_path: Path) -> None:
    for number, (memory, folds, refusing, message) in enumerate(
        (
            (world(0, 0, 1), 1, "alignment", "0 training takes cannot be divided into 2 parts"),
            (world(2, 1, 1), 3, "alignment", "2 training takes cannot be divided into 3 parts"),
            (world(2, 0, 1), 1, "alignment", "6 segments with a trajectory to fit on and 0 in dev, but both need"),
            (without(world(3, 1, 1), "dev", 3, 4, 5), 1, "predictor", "of 3 horizons to fit on and of 0 in dev"),
            (without(world(3, 1, 1), "train", 3, 4, 5), 1, "predictor", "of 0 horizons to fit on"),
            (world(2, 1, 0), 1, "evaluation", "no prediction to score"),
        )
    ):
        with pytest.raises(TrajPilotError, match=message) as refused:
            run_all(memory, tmp_path / str(number), folds)
        assert refused.value.__notes__ == [refusing]


def test_two_training_takes_and_one_of_dev_and_test_go_through_in_as_many_folds(tmp_path: Path) -> None:
    """Also where training has no window of the longest horizon. One take allows no interval."""
    memory = without(world(2, 1, 1), "train", 5)
    run_all(memory, tmp_path, folds=2)
    metrics = rows_of(Metric, memory.tables["metrics"])
    assert {row.n_takes for row in metrics} == {1}
    assert {(row.low, row.high) for row in metrics} == {(-float("inf"), float("inf"))}
