"""What takes contribute to trainings, as digests: the facts that decide whether a training is run again.

Does not import torch, because every plan computes them. Reasons: docs/decisions/trainings.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import pyarrow.compute as pc
from pydantic import JsonValue

from schemas.base import fingerprint
from trajpilot_core.data.cross_fitting import Chain, chains, fitted_on
from trajpilot_core.engine.stage import Inputs

CONTENTS = "take_contents"
ANNOTATED = ("segments", "windows")
"""Entries whose share per take ingest writes to `take_contents`."""


@dataclass(frozen=True)
class Contributions:
    """What the takes of a corpus contribute to the trainings of one stage."""

    of_take: Mapping[str, tuple[str, ...]]
    """Take -> digests of its shares of the entries."""
    train: tuple[str, ...]
    """Training takes, sorted."""
    dev: tuple[str, ...]
    """Dev takes, sorted."""

    @classmethod
    def read(cls, inputs: Inputs, entries: Sequence[str], columns: Sequence[str] = ()) -> Self:
        """Read what takes contribute to trainings through some entries.

        For an entry without parts per take, every take contributes the whole entry.

        Args:
            inputs: inputs of the stage, which declares `takes`, `take_contents` and the entries.
            entries: the entries that its trainings read.
            columns: further columns of `takes` that they read.
        """
        rows = inputs.table("takes", ["take_id", "split", *columns]).to_pylist()
        contents = {row["take_id"]: row for row in inputs.table(CONTENTS).to_pylist()}
        parts = {name: inputs.parts(name) for name in entries if name not in ANNOTATED}

        def share(name: str, take: str) -> str:
            if name in ANNOTATED:
                return str(contents[take][name])
            return parts[name].get(take, parts[name].get("", ""))

        of_take = {
            row["take_id"]: (
                *(str(row[column]) for column in columns),
                *(share(name, row["take_id"]) for name in entries),
            )
            for row in rows
        }
        by_split = {
            split: tuple(sorted(row["take_id"] for row in rows if row["split"] == split)) for split in ("train", "dev")
        }
        return cls(of_take, by_split["train"], by_split["dev"])

    def digest(self, takes: Iterable[str]) -> str:
        """Return one digest of the contributions of these takes."""
        content: list[JsonValue] = [[take, *self.of_take[take]] for take in takes]
        return fingerprint(content)

    def facts(self, fold_of: Mapping[str, int], chain: Chain) -> dict[str, JsonValue]:
        """Return the facts of the source of a chain's training."""
        return {"training takes": self.digest(fitted_on(fold_of, chain)), "dev takes": self.digest(self.dev)}


def folds_of(inputs: Inputs) -> dict[str, int]:
    """Read training take -> fold from the table `folds`."""
    table = inputs.table("folds", ["take_id", "fold"])
    return dict(zip(table["take_id"].to_pylist(), table["fold"].to_pylist(), strict=True))


def chains_in(fold_of: Mapping[str, int]) -> tuple[Chain, ...]:
    """Return the chains for these folds, the final one first."""
    return chains(1 + max(fold_of.values()))


def horizons_of(inputs: Inputs) -> list[JsonValue]:
    """Return the horizons of the windows, ascending; models have one position for each step of the longest."""
    horizons: list[JsonValue] = sorted(pc.unique(inputs.table("windows", ["horizon"])["horizon"]).to_pylist())
    return horizons


def part_of(inputs: Inputs, name: str, begins: str = "") -> JsonValue:
    """Return the digests of the parts of an entry whose names start with `begins`."""
    return {part: digest for part, digest in inputs.parts(name).items() if part.startswith(begins)}
