"""Ceilings over classes of labels: exact where classes are scored, and never compared with rows over labels."""

from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from drawn_tables import world_tables
from middle_world import middle_world
from right_predictions import right_predictions

from schemas.config import IngestConfig
from trajpilot_core.corpora.records.closed_vocabulary import label_classes
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.ceiling import compare, known_of_predictions, known_values
from trajpilot_core.evaluation.ceiling_check import calibration_check
from trajpilot_core.metrics import with_ceiling
from trajpilot_core.simworld.inference.visible import KINDS, unshown
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import World

Made = tuple[World, dict[str, pa.Table]]
WANTED = 24


@pytest.fixture(scope="module")
def made() -> Made:
    world = sample_world(middle_world().replace(broken="none", broken_share=0.0, train_takes=60, test_takes=16))
    tables = world_tables(world, IngestConfig(central_share=0.6, max_horizon=4))._asdict()
    windows = tables["windows"]
    tables["windows"] = windows.filter(pc.equal(windows["split"], "test"))
    return world, tables


def classes_of(tables: dict[str, pa.Table], wanted: int | None) -> dict[str, str]:
    found, _ = label_classes(tables["labels"], wanted)
    return dict(zip(found["label_id"].to_pylist(), found["class_id"].to_pylist(), strict=True))


def test_a_map_that_merges_nothing_changes_no_digit(made: Made) -> None:
    world, tables = made
    classes = classes_of(tables, None)
    assert all(label == of for label, of in classes.items())
    plain = known_values(world, tables["segments"], tables["windows"])
    own = known_values(world, tables["segments"], tables["windows"], classes)
    for kind in KINDS:
        assert np.array_equal(plain.values[kind], own.values[kind])
        assert np.array_equal(plain.expected[kind], own.expected[kind])
    assert plain.truth == own.truth


def test_ceilings_of_classes_are_higher_than_those_of_labels_and_calibrated(made: Made) -> None:
    world, tables = made
    classes = classes_of(tables, WANTED)
    assert len(set(classes.values())) < len(classes)
    plain = known_values(world, tables["segments"], tables["windows"])
    own = known_values(world, tables["segments"], tables["windows"], classes)
    for kind in KINDS:
        gain = (own.expected[kind] - plain.expected[kind]).mean(axis=0)
        assert (gain > 0).all(), kind
        at = with_ceiling().index("MSeq")
        assert (own.expected[kind][:, at] >= plain.expected[kind][:, at] - 1e-6).all(), "window by window"
    assert calibration_check(own).verdict == "holds"
    assert own.n_unproven == 0


def test_rows_and_ceilings_over_different_answers_are_refused_and_over_the_same_compared(made: Made) -> None:
    """The planted fault, both ways: classes are right more often than labels."""
    world, tables = made
    for of_rows, of_ceilings in product((None, WANTED), repeat=2):
        predictions = right_predictions(tables["segments"], tables["windows"], classes_of(tables, of_rows))
        classes = classes_of(tables, of_ceilings)
        known = known_of_predictions(world, predictions, tables["segments"], tables["windows"], classes)
        if of_rows == of_ceilings:
            assert {row.variant for row in compare(predictions, known)} == {"no_traj"}
        else:
            with pytest.raises(InputError, match="one is over labels and the other over classes"):
                compare(predictions, known)


def test_classes_of_unknown_texts_have_no_exact_ceiling(made: Made) -> None:
    """Without the table of paraphrases a label is its text, and its class is unrelated to the world's label."""
    world, tables = made
    at = tables["segments"].schema.get_field_index("label_id")
    texts = tables["segments"].set_column(at, "label_id", tables["segments"]["label"])
    found = unshown(world, texts, has_classes=True)
    assert found is not None
    assert "carry a label that no step of the world has" in found
    assert unshown(world, texts, has_classes=False) is None, "over labels as before"
    assert unshown(world, tables["segments"], has_classes=True) is None
