"""The stage diagnostics in a store: computed once, again where a feature changed, read by `trajpilot paper`."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from planning_world import Memory
from stored_world import SETTINGS, options, stages_on, world

from schemas.config import DiagnosticsConfig
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.errors import InputError
from trajpilot_core.stages import STAGES
from trajpilot_core.studies.paper_tables.cells import cells_of, read_run
from trajpilot_core.studies.paper_tables.labels.diagnostics import GEOMETRY, MONOTONICITY, STAGE

CONFIG = SETTINGS.replace(diagnostics=DiagnosticsConfig(bootstrap=100))


def recordings() -> Memory:
    """The small world, its takes called recorded ones."""
    memory = world()
    takes = memory.table("takes")
    memory.tables["takes"] = takes.append_column("corpus", pa.array(["egoexo4d"] * takes.num_rows))
    return memory


def run_until_diagnostics(root: Path, memory: Memory) -> Outcome:
    stages = {**stages_on(memory), STAGE: STAGES[STAGE]}
    for name in ("ingest", "trajectories", "features"):
        execute(stages[name], CONFIG, options(root), stages)
    return execute(stages[STAGE], CONFIG, options(root), stages)


def with_another_feature(memory: Memory) -> Memory:
    """The same tables, the first segment seen otherwise."""
    table = memory.table("features")
    vectors = memory.vectors("features", "vector").copy()
    vectors[0] += np.asarray(1, vectors.dtype)
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    at = table.schema.get_field_index("vector")
    return Memory(tables={**memory.tables, "features": table.set_column(at, table.schema.field(at), column)})


def test_it_is_computed_once_and_again_where_a_feature_changed(tmp_path: Path) -> None:
    memory = world()
    assert [run_until_diagnostics(tmp_path, memory).cached for _ in range(2)] == [False, True]
    assert not run_until_diagnostics(tmp_path, with_another_feature(memory)).cached


def test_a_root_without_an_evaluation_fills_what_its_stages_left(tmp_path: Path) -> None:
    memory = recordings()
    run_until_diagnostics(tmp_path / "root", memory)
    run = read_run(str(tmp_path / "root"))
    assert run.dataset == "egoexo4d_atomic"
    assert {cell.table for cell in cells_of([run])} == {GEOMETRY, MONOTONICITY}
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="has no evaluation"):
        read_run(str(tmp_path / "empty"))


def test_diagnostics_of_other_features_than_those_that_count_are_not_read(tmp_path: Path) -> None:
    memory = recordings()
    run_until_diagnostics(tmp_path, memory)
    other = stages_on(with_another_feature(memory))
    execute(other["features"], CONFIG, options(tmp_path), other)
    with pytest.raises(InputError, match="fills no table of the paper"):
        cells_of([read_run(str(tmp_path))])
