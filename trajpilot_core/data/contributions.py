"""What takes contribute to trainings, as digests: the facts that decide whether a training is made again.

Imports no torch: they are worked out for every plan. Reasons: docs/decisions/trainings.md.
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
"""Entries whose share per take ingest states in `take_contents`."""


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

        Of an entry that does not come by take, every take contributes the whole.

        Args:
            inputs: of the stage, which declares `takes`, `take_contents` and the entries.
            entries: what its trainings read of each take.
            columns: of `takes`, what they read there in addition.
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
        """Return one digest of what these takes contribute."""
        content: list[JsonValue] = [[take, *self.of_take[take]] for take in takes]
        return fingerprint(content)

    def facts(self, fold_of: Mapping[str, int], chain: Chain) -> dict[str, JsonValue]:
        """Return what decides a training of a chain, as the facts of its source."""
        return {"training takes": self.digest(fitted_on(fold_of, chain)), "dev takes": self.digest(self.dev)}


def folds_of(inputs: Inputs) -> dict[str, int]:
    """Read training take -> its fold from the table `folds`."""
    table = inputs.table("folds", ["take_id", "fold"])
    return dict(zip(table["take_id"].to_pylist(), table["fold"].to_pylist(), strict=True))


def chains_in(fold_of: Mapping[str, int]) -> tuple[Chain, ...]:
    """Return the chains that folds call for, the final one first."""
    return chains(1 + max(fold_of.values()))


def horizons_of(inputs: Inputs) -> list[JsonValue]:
    """Return the horizons that the windows have, ascending: models have a place for each position of the longest."""
    found: list[JsonValue] = sorted(pc.unique(inputs.table("windows", ["horizon"])["horizon"]).to_pylist())
    return found


def part_of(inputs: Inputs, name: str, begins: str = "") -> JsonValue:
    """Return the digests of those parts of an entry whose names begin so."""
    return {part: digest for part, digest in inputs.parts(name).items() if part.startswith(begins)}
