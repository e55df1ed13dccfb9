"""Worlds by latents under the leak checks of the claims, and among their jobs."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from leaks_fixture import WORLD, tables_of_world, untrained_of
from numpy.typing import NDArray
from planning_world import Memory, run_stage

from schemas.config import FeatureConfig, PipelineConfig
from schemas.results import LeakCheck
from trajpilot_core.simworld.feature_space import describe_world
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.stages.feature_space import FEATURES
from trajpilot_core.studies.claims.leaks import world as leaks_world
from trajpilot_core.studies.claims.worlds.jobs import make_world
from trajpilot_core.studies.claims.worlds.plan import PlannedWorld
from trajpilot_core.studies.claims.worlds.provenance import recipe_size, world_sizes

LATENTS = WORLD.replace(entry="latents", label_appearance=0.5)
"""Looks name few of the alternatives, so that there is something to give away."""
CONFIG = FeatureConfig(model="tiny", n_frames=4)


@pytest.fixture(scope="module")
def drawn() -> World:
    return sample_world(LATENTS)


@pytest.fixture(scope="module")
def tables(drawn: World, tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """The tables of the world, with the features that its stage makes."""
    folder = tmp_path_factory.mktemp("latents")
    describe_world(LATENTS, folder)
    memory = tables_of_world(drawn)
    run_stage(FEATURES, CONFIG, memory, folder / "scratch", data_root=str(folder))
    return memory


def checks_of(drawn: World, memory: Memory) -> dict[str, LeakCheck]:
    return {check.check: check for check in leaks_world.picture_checks(untrained_of(drawn, memory))}


def test_features_by_latents_name_no_more_than_look_and_place_can(drawn: World, tables: Memory) -> None:
    checks = checks_of(drawn, tables)
    assert [check.verdict for check in checks.values()] == ["holds", "holds"]
    assert all("look and place" in check.detail and "motion" not in check.detail for check in checks.values())


def test_a_map_that_is_given_more_is_found(drawn: World, tables: Memory) -> None:
    """The planted fault: signs of the label, then of the intent, which only motion may show."""
    of_label = {label.label_id: number for number, label in enumerate(drawn.labels)}
    label = np.array([of_label[name] for name in tables.table("segments")["label_id"].to_pylist()])
    intents = {take.uid: take.intent for take in drawn.takes}
    intent = np.array([intents[name.rpartition(":")[2]] for name in tables.table("segments")["take_id"].to_pylist()])
    for told in (label % drawn.config.alternatives, intent):
        checks = checks_of(drawn, with_sign(tables, told))
        assert checks["leak: picture features: nothing beyond the latents"].verdict == "fails"


def with_sign(memory: Memory, told: NDArray[np.int64]) -> Memory:
    """The tables with eight of the 256 numbers of every feature replaced by what is told, with noise."""
    table = memory.table("features")
    assert table["segment_id"].to_pylist() == memory.table("segments")["segment_id"].to_pylist()
    vectors = np.stack(table["vector"].to_numpy(zero_copy_only=False))
    vectors[:, :8] = told[:, None] + 0.5 * np.random.default_rng(0).normal(size=(len(vectors), 8))
    column = pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).ravel()), vectors.shape[1])
    at = table.schema.get_field_index("vector")
    changed = table.set_column(at, table.schema.field(at), column)
    return Memory({**memory.tables, "features": changed})


def test_nothing_else_about_such_a_world_gives_an_answer_away(drawn: World, tables: Memory) -> None:
    checks = leaks_world.world_checks(untrained_of(drawn, tables))
    assert {check.check for check in checks if check.verdict == "fails"} == set()


def test_its_job_writes_a_description_and_no_video(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    assert make_world(PlannedWorld("base", 3, "main", LATENTS), tmp_path / "root", tmp_path / "world") is not None
    assert [path.name for path in (tmp_path / "world").iterdir()] == ["world.json"]


def test_its_size_and_recipe_say_that_nothing_is_encoded() -> None:
    assert [size.entry for size in world_sizes([PlannedWorld("base", 3, "main", LATENTS)])] == ["latents"]
    assert recipe_size(PipelineConfig()).encoder.endswith("by latents none")
