"""Worlds stay what they are: tables and motions of a small one against digests that were recorded once."""

import hashlib
import json
from typing import Any

import numpy as np
import pyarrow as pa
from drawn_tables import motions_table, world_tables
from numpy.typing import NDArray

from schemas.config import IngestConfig
from schemas.world import WorldConfig
from trajpilot_core.simworld.sample import sample_world

DIGESTS = {
    "takes": "5cd510ab29ae3681",
    "segments": "5f5a8fcd539db69f",
    "labels": "05b821d4e9bb8d26",
    "windows": "de4ce94fad8db8d9",
    "truth": "12134a700b0dd8e9",
    "motions": "188505ad387f45ef",
}
"""First 16 digits of sha256, recorded on 2026-11-22."""
SMALL = {"broken": "none", "broken_share": 0.0, "train_takes": 6, "test_takes": 3, "seed": 7}


def test_a_small_world_has_the_recorded_tables_and_motions() -> None:
    """A failure means that every simulated result is of another world.

    Renew, only with that intent, by pasting what the comparison prints. Motions and looks are rounded, so that another
    machine's last digit does not count.
    """
    assert digests() == DIGESTS


def test_the_digests_see_a_changed_world() -> None:
    """The planted faults: other motion alone, and other looks alone."""
    moved, looking = digests(kappa=1.0), digests(label_appearance=1.0)
    assert {name for name in DIGESTS if moved[name] != DIGESTS[name]} == {"truth", "motions"}
    assert {name for name in DIGESTS if looking[name] != DIGESTS[name]} == {"truth"}
    assert digests(seed=8)["segments"] != DIGESTS["segments"]


def digests(**changes: Any) -> dict[str, str]:
    world = sample_world(WorldConfig(fps=10, size_px=192).replace(**{**SMALL, **changes}))
    tables = world_tables(world, IngestConfig(central_share=0.6, dev_min=1))
    found = {name: rows_digest(getattr(tables, name)) for name in ("takes", "segments", "labels", "windows")}
    truth = [[*segment.motion, *segment.look, segment.place] for take in world.takes for segment in take.segments]
    found["truth"] = rounded_digest(np.array(truth))
    motions = motions_table(world, tables.segments)
    found["motions"] = rounded_digest(np.stack(motions["motions"].to_numpy(zero_copy_only=False)))
    return found


def rows_digest(table: pa.Table) -> str:
    return hashlib.sha256(json.dumps(table.to_pylist(), sort_keys=True).encode()).hexdigest()[:16]


def rounded_digest(values: NDArray[np.float64]) -> str:
    return hashlib.sha256(np.rint(values * 1e4).astype("<i8").tobytes()).hexdigest()[:16]
