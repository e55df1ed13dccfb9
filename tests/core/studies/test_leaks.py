"""The leak checks of the world: a clean one passes all of them, and each planted leak turns its check red."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from leaks_fixture import (
    CHECKS,
    ENTRIES,
    WORLD,
    copy_of,
    provenance,
    tables_of_world,
    untrained_of,
    world,
)
from planning_world import Memory

from schemas.observation import MOTIONS
from schemas.results import LeakCheck
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.appearance import TakeAppearance, take_appearance
from trajpilot_core.simworld.world.truth import TakeTruth, World
from trajpilot_core.studies.claims.leaks import world as leaks_world
from trajpilot_core.studies.claims.leaks.checks import leak_checks
from trajpilot_core.studies.claims.leaks.context import LeakContext


@pytest.fixture(scope="module")
def clean() -> Memory:
    memory = tables_of_world(world())
    untrained_of(world(), memory)
    return memory


def verdicts(checks: list[LeakCheck]) -> dict[str, str]:
    return {check.check.removeprefix("leak: "): check.verdict for check in checks}


def failed(checks: list[LeakCheck]) -> set[str]:
    return {name for name, verdict in verdicts(checks).items() if verdict == "fails"}


def labels_of(memory: Memory) -> np.ndarray:
    """The world's label of every segment, (S,), in the order of the segments table."""
    index = {label.label_id: i for i, label in enumerate(world().labels)}
    return np.array([index[label] for label in memory.table("segments")["label_id"].to_pylist()])


def with_vectors(memory: Memory, name: str, column: str, change: Callable[[np.ndarray], np.ndarray]) -> Memory:
    """Change the vectors (S, D) of a table, rows in the order of the segments table."""
    changed, table = copy_of(memory), memory.table(name)
    assert table["segment_id"].equals(memory.table("segments")["segment_id"])
    kind = table.schema.field(column).type
    flat = table[column].combine_chunks().flatten().to_numpy(zero_copy_only=False).reshape(table.num_rows, -1)
    values = pa.array(change(flat.astype(np.float64)).astype(flat.dtype).ravel(), kind.value_type)
    at = table.schema.get_field_index(column)
    changed.tables[name] = table.set_column(
        at, table.schema.field(column), pa.FixedSizeListArray.from_arrays(values, kind.list_size)
    )
    return changed


def with_column(memory: Memory, name: str, column: str, values: list[object]) -> Memory:
    changed, table = copy_of(memory), memory.table(name)
    at = table.schema.get_field_index(column)
    changed.tables[name] = table.set_column(at, table.schema.field(column), pa.array(values, table[column].type))
    return changed


def truths(memory: Memory) -> list[TakeTruth]:
    known = {f"egoexo4d:{take.uid}": take for take in world().takes}
    return [known[take] for take in memory.table("takes")["take_id"].to_pylist()]


def test_a_clean_world_passes_every_check_of_motion_pictures_names_and_numbers(clean: Memory) -> None:
    checks = leaks_world.world_checks(untrained_of(world(), clean))
    assert failed(checks) == set()
    assert {name for name, verdict in verdicts(checks).items() if verdict == "not run"} == {
        "head motion: the trained encoder names no more labels than the latents can"
    }


def test_a_world_without_information_passes_too() -> None:
    for knobs in ({"kappa": 0.0, "style": 0.0}, {"scene": 0.0}, {"alternatives": 1, "rho": 1.0, "place_fidelity": 1.0}):
        drawn = sample_world(WORLD.replace(**knobs))
        assert failed(leaks_world.world_checks(untrained_of(drawn))) <= {
            "every motion primitive is shared by several labels"
        }


def test_head_motion_that_writes_the_label_is_found(clean: Memory) -> None:
    labels = labels_of(clean)

    def write(motion: np.ndarray) -> np.ndarray:
        motion[np.arange(len(labels)), labels] += 5.0
        return motion

    checks = leaks_world.motion_checks(untrained_of(world(), with_vectors(clean, "motions", "motions", write)))
    assert failed(checks) == {
        "head motion: a linear probe names no more labels than the latents can",
        "head motion: nothing beyond the latents",
        "head motion does not name the label",
    }


def test_primitives_without_noise_are_found_although_the_generator_knows_of_them() -> None:
    drawn = sample_world(WORLD.replace(kappa=1.0, style=0.0, motion_noise=0.0, wander=0.0))
    checks = leaks_world.motion_checks(untrained_of(drawn))
    assert failed(checks) == {"head motion does not name the label"}
    assert next(c for c in checks if "does not name" in c.check).value > 99.0


def test_a_primitive_of_one_label_is_found() -> None:
    drawn = sample_world(WORLD.replace(tasks=1, positions=3, primitives=20))
    assert "every motion primitive is shared by several labels" in failed(
        leaks_world.motion_checks(untrained_of(drawn))
    )


def test_pictures_that_show_the_label_are_found(clean: Memory) -> None:
    labels = labels_of(clean)

    def colour(features: np.ndarray) -> np.ndarray:
        features[:] = 0.1 * features
        features[np.arange(len(labels)), labels % features.shape[1]] += 20.0
        return features

    assert failed(
        leaks_world.picture_checks(untrained_of(world(), with_vectors(clean, "features", "vector", colour)))
    ) >= {
        "picture features: nothing beyond the latents",
    }


def test_a_faint_sign_of_the_alternative_is_found_where_the_probe_alone_stays_below_its_bound() -> None:
    drawn = sample_world(WORLD.replace(label_appearance=0.8, train_takes=200, test_takes=2))
    memory = tables_of_world(drawn)
    index = {label.label_id: label.alternative for label in drawn.labels}
    alternative = np.array([index[label] for label in memory.table("segments")["label_id"].to_pylist()])

    def tint(features: np.ndarray) -> np.ndarray:
        features[:, 0] = 3.0 * alternative + np.random.default_rng(0).normal(size=len(features))
        return features

    assert failed(leaks_world.picture_checks(untrained_of(drawn, memory))) == set()
    tinted = with_vectors(memory, "features", "vector", tint)
    checks = leaks_world.picture_checks(untrained_of(drawn, tinted))
    assert failed(checks) == {"picture features: nothing beyond the latents"}


def test_object_colours_that_follow_the_task_or_repeat_are_found(
    clean: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    material = untrained_of(world(), clean)

    def by_task(drawn: World, take: TakeTruth) -> TakeAppearance:
        look = take_appearance(drawn, take)
        return replace(look, objects=(look.objects // 4 + 60 * take.task).astype(np.uint8))

    assert leaks_world.palette_check(material).verdict == "holds"
    monkeypatch.setattr(leaks_world, "take_appearance", by_task)
    assert leaks_world.palette_check(material).verdict == "fails"
    monkeypatch.setattr(leaks_world, "take_appearance", lambda drawn, _: take_appearance(drawn, drawn.takes[0]))
    assert leaks_world.palette_check(material).verdict == "fails"


def test_take_names_that_follow_the_task_are_found(clean: Memory) -> None:
    names = [f"{'cw'[take.task]}_{i % 7}" for i, take in enumerate(truths(clean))]
    checks = leaks_world.name_checks(untrained_of(world(), with_column(clean, "takes", "name", names)))
    assert "names, ids and order of the takes do not tell the task" in failed(checks)


def test_file_names_that_follow_the_intent_are_found_by_the_labels(clean: Memory) -> None:
    files = [f"takes/{'ab'[take.intent]}{i}.mp4" for i, take in enumerate(truths(clean))]
    checks = leaks_world.name_checks(untrained_of(world(), with_column(clean, "takes", "video", files)))
    assert failed(checks) == {"names, ids and order of the takes do not tell the labels"}


def test_an_order_of_the_takes_by_task_is_found(clean: Memory) -> None:
    changed = copy_of(clean)
    order = np.argsort([take.task for take in truths(clean)], kind="stable")
    changed.tables["takes"] = clean.table("takes").take(pa.array(order))
    assert failed(leaks_world.name_checks(untrained_of(world(), changed))) >= {
        "names, ids and order of the takes do not tell the task"
    }


def test_label_ids_that_follow_the_place_are_found(clean: Memory) -> None:
    material = untrained_of(world(), clean)
    labels = tuple(replace(label, label_id=f"g{i:06d}") for i, label in enumerate(world().labels))
    renamed = replace(material, world=replace(world(), labels=labels))
    assert failed(leaks_world.name_checks(renamed)) == {"label ids do not tell a label's place"}


def later_ends(memory: Memory) -> Memory:
    ends = np.array(memory.table("segments")["end_s"].to_pylist()) + 0.02 * (labels_of(memory) % 5)
    return with_column(memory, "segments", "end_s", ends.tolist())


def later_frames(memory: Memory) -> Memory:
    times = memory.table("features")["frame_times_s"].to_pylist()
    moved = [[t + 0.01 * label for t in row] for row, label in zip(times, labels_of(memory) % 3, strict=True)]
    return with_column(memory, "features", "frame_times_s", moved)


@pytest.mark.parametrize("plant", [later_ends, later_frames])
def test_durations_and_frames_that_follow_the_label_are_found(clean: Memory, plant: Callable[[Memory], Memory]) -> None:
    checks = leaks_world.number_checks(untrained_of(world(), plant(clean)))
    assert failed(checks) == {"durations and frames of segments do not tell their labels"}


def test_a_take_whose_length_follows_its_task_is_found(clean: Memory) -> None:
    lengths = clean.table("takes")["duration_s"].to_numpy() + 2.0 * np.array([take.task for take in truths(clean)])
    changed = with_column(clean, "takes", "duration_s", lengths.tolist())
    checks = leaks_world.number_checks(untrained_of(world(), changed))
    assert failed(checks) == {"durations and frames of takes tell neither task nor labels"}


def test_too_few_dev_takes_are_said_and_not_judged() -> None:
    drawn = sample_world(WORLD.replace(train_takes=12, takes_per_capture=1))
    probes = [check for check in leaks_world.motion_checks(untrained_of(drawn)) if "probe" in check.check]
    assert [check.verdict for check in probes] == ["not run"]


def test_a_run_without_models_says_what_it_could_not_check(clean: Memory) -> None:
    checks = leak_checks(clean, world(), provenance(), CHECKS, ENTRIES)
    assert failed(checks) == set()
    assert all(check.bound is None and check.detail for check in checks if check.verdict == "not run")
    assert sum(check.verdict == "not run" for check in checks) == 13


def test_the_segments_of_a_take_are_laid_over_their_true_steps(clean: Memory) -> None:
    material: LeakContext = untrained_of(world(), clean)
    steps = material.steps
    true = [material.truths[take].segments[at].label for take, at in zip(steps.take, steps.at, strict=True)]  # type: ignore[union-attr]
    assert steps.label.tolist() == true
    assert len(steps.row) == len(material.segments)
    assert (steps.look[:, 0] <= steps.at).all()
    assert (steps.motion[:, 1] - steps.motion[:, 0]).max() <= 2
    assert material.data.motions.shape[1] == MOTIONS
