"""Worlds stay what they are: tables and motions of a small one against what was recorded once."""

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from drawn_tables import motions_table, world_tables
from numpy.typing import NDArray

from schemas.config import IngestConfig
from schemas.world import WorldConfig
from trajpilot_core.simworld.sample import sample_world

WORDS = {
    "takes": "5696d884040e4c97",
    "segments": "c92619644cf5b804",
    "labels": "05b821d4e9bb8d26",
    "windows": "de4ce94fad8db8d9",
}
"""First 16 digits of sha256 over the texts and whole numbers of each table."""
NUMBERS = {
    "takes.duration_s": 0.1483267577,
    "takes.fps": 0.1480837827,
    "segments.start_s": 0.009005417894,
    "segments.end_s": 0.008591951473,
    "segments.anchor_s": 0.008943681131,
    "truth": -0.01522290474,
    "motions": 0.002614158499,
}
"""Of the other numbers: `weighed`."""
CLOSE = 8 * float(np.finfo(np.float32).eps)
"""Motions are stored in float32: a mean of numbers of at most 1 is off by a few roundings at most."""
COLUMNS = (
    ("takes", "duration_s"),
    ("takes", "fps"),
    ("segments", "start_s"),
    ("segments", "end_s"),
    ("segments", "anchor_s"),
)
"""Those of float64."""
SMALL = {"broken": "none", "broken_share": 0.0, "train_takes": 6, "test_takes": 3, "seed": 7}


def test_a_small_world_has_the_recorded_tables_and_motions() -> None:
    """A failure means that every simulated result is of another world.

    Renew, only with that intent, by pasting what the comparison prints.
    """
    words, numbers = described()
    assert words == WORDS
    assert numbers == pytest.approx(NUMBERS, rel=0, abs=CLOSE)


def test_a_changed_world_is_seen() -> None:
    """The planted faults: other motion alone, other looks alone, and other draws."""
    assert changed(kappa=1.0) == {"truth", "motions"}
    assert changed(label_appearance=1.0) == {"truth"}
    assert changed(seed=8) >= {"segments", "windows", "truth", "motions"}


def changed(**changes: Any) -> set[str]:
    """Names of what is not as recorded."""
    words, numbers = described(**changes)
    other = {name for name in WORDS if words[name] != WORDS[name]}
    return other | {name for name in NUMBERS if abs(numbers[name] - NUMBERS[name]) > CLOSE}


def described(**changes: Any) -> tuple[dict[str, str], dict[str, float]]:
    """Words and numbers of the tables, of what is true, and of the motions."""
    world = sample_world(WorldConfig(fps=10, size_px=192).replace(**{**SMALL, **changes}))
    tables = world_tables(world, IngestConfig(central_share=0.6, dev_min=1))
    by_name: dict[str, pa.Table] = {name: getattr(tables, name) for name in ("takes", "segments", "labels", "windows")}
    words = {name: words_digest(table) for name, table in by_name.items()}
    truth = [[*segment.motion, *segment.look, segment.place] for take in world.takes for segment in take.segments]
    motions = motions_table(world, tables.segments)["motions"].to_numpy(zero_copy_only=False)
    arrays = {f"{name}.{column}": by_name[name][column].to_numpy() for name, column in COLUMNS}
    arrays |= {"truth": np.array(truth), "motions": np.stack(motions)}
    return words, {name: weighed(values) for name, values in arrays.items()}


def words_digest(table: pa.Table) -> str:
    exact = [field.name for field in table.schema if not pa.types.is_floating(field.type)]
    return hashlib.sha256(json.dumps(table.select(exact).to_pylist(), sort_keys=True).encode()).hexdigest()[:16]


def weighed(values: NDArray[np.floating[Any]]) -> float:
    """The mean of the numbers, divided by the largest, each times a weight of its place."""
    flat = values.astype(np.float64).ravel()
    return float((flat * np.cos(np.arange(flat.size))).mean() / np.abs(flat).max())
