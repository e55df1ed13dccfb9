"""Cross-fitting by take: the folds, their chains, the takes that each is fitted on, what decides their reruns.

A chain is the set of all learned parts (normalisation, E_tau, predictors), fitted on one set of takes
(docs/decisions/paper-gaps.md, D 28). A model has the key `<chain>/s<seed>/<variant>` in its entry. Imports no torch,
because every plan computes the digests of what takes contribute. Reasons: docs/decisions/trainings.md.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import pyarrow.compute as pc
from pydantic import JsonValue

from schemas.base import fingerprint
from schemas.training import AlignmentConfig, PredictorConfig
from trajpilot_core.errors import InputError
from trajpilot_core.store.reading import Inputs

E_TAU = "e_tau"
"""Variant of the trajectory encoder of a chain."""
VARIANTS = ("traj", "no_traj", "endpoint_traj")
"""Predictor checkpoints of the final chain."""
TWINNED = ("traj", "no_traj")
"""Variants that may have a goal-dropout twin, trained with randomly masked goals (D 42). In runs that anticipate, the
third one has a twin, too."""
TWIN = "_goal_dropout"
"""Suffix of the names of twins, and of the keys of their models."""
SCORER_NO_GOAL = "scorer_no_goal"
"""Variant of the scorer without a goal; goal-dropout twins make its queries."""

FITTED = "fitted_takes/"
"""Prefix of notes by chain: JSON lists of the takes that models were fitted on; for models of another run, only those
that are also takes of this run."""
ELSEWHERE, CAPTURES = "fitted_elsewhere/", "fitted_captures/"
"""Prefixes of further notes on models that are from another run or started from one: the other takes that they were
fitted on, and the captures of all."""
ANNOTATED = ("segments", "windows")
"""Entries whose share per take ingest writes to `take_contents`."""


class Chain(NamedTuple):
    """One chain of models."""

    name: str
    """`final`, or `fold0`, `fold1`, ..."""
    fold: int | None
    """Training takes of this fold are left out of every fit and bank of the chain; None: none are."""


FINAL = Chain("final", None)


def chains(folds: int) -> tuple[Chain, ...]:
    """Return the chains of `folds` folds; 1 is the cheap mode, whose only chain leaves fold 0 out."""
    if folds == 1:
        return (Chain(FINAL.name, 0),)
    return (FINAL, *(Chain(f"fold{k}", k) for k in range(folds)))


def variants_of(chain: Chain) -> tuple[str, ...]:
    """Return the predictor variants of a chain; only a row of the tables uses endpoint_traj, so only final has it."""
    return VARIANTS if chain.name == FINAL.name else VARIANTS[:2]


def trained_variants(chain: Chain, cfg: PredictorConfig) -> tuple[str, ...]:
    """Return every predictor variant that a chain trains, including goal-dropout twins.

    Rows of the tables use the twins of the final chain. In runs that anticipate, those of the folds make the training
    queries of a scorer without a goal, and one more of the final chain has its own row: the motion of Start alone.
    """
    is_final = chain.name == FINAL.name
    if cfg.twin_goal_dropout is None or not (is_final or cfg.anticipates):
        return variants_of(chain)
    twinned = VARIANTS if is_final and cfg.anticipates else TWINNED
    return (*variants_of(chain), *map(twin_of, twinned))


def twin_of(variant: str) -> str:
    """Return the name of a variant's goal-dropout twin."""
    return f"{variant}{TWIN}"


def original_of(name: str) -> str:
    """Return the original of a goal-dropout twin; other names stay unchanged. Also works for keys of models."""
    return name.removesuffix(TWIN)


def is_twin(name: str) -> bool:
    """Return whether a variant, or the model of a key, is a goal-dropout twin."""
    return name.endswith(TWIN)


def model_key(chain: Chain, seed: int, variant: str) -> str:
    """Return the key of one model in its entry."""
    return f"{chain.name}/s{seed}/{variant}"


def seeds_of(models: Iterable[str]) -> list[int]:
    """Return the seeds of models, ascending, from their keys `<chain>/s<seed>/<variant>`."""
    return sorted({int(key.split("/")[1].removeprefix("s")) for key in models})


def fitted_on(fold_of: Mapping[str, int], chain: Chain) -> list[str]:
    """Return the training takes that a chain is fitted on, sorted; every chain is fitted on those of fold -1."""
    return sorted(take for take, fold in fold_of.items() if chain.fold is None or fold != chain.fold)


def note_fitted(chain: str, takes: Iterable[str], kind: str = FITTED) -> dict[str, str]:
    """Return the note that models of a chain were fitted on these takes; `kind` as in `noted_fitted`."""
    return {f"{kind}{chain}": json.dumps(sorted(takes))}


def noted_fitted(about: Mapping[str, str], kind: str = FITTED) -> dict[str, list[str]]:
    """Return chain -> takes that its models were fitted on, from notes of a kind; empty without notes."""
    notes = {name.removeprefix(kind): takes for name, takes in sorted(about.items()) if name.startswith(kind)}
    return {chain: list(json.loads(takes)) for chain, takes in notes.items()}


def is_imported(about: Mapping[str, str]) -> bool:
    """Return whether models are from another run, or started from its weights, by the notes of their entry."""
    return any(name.startswith(CAPTURES) for name in about)


def draw_folds(train_takes: Sequence[str], cfg: AlignmentConfig) -> dict[str, int]:
    """Return take_id -> fold for the training takes, by the order of sha256(fold seed:take) (D 28).

    Cross-fitting: the takes are distributed over folds 0 .. K-1; with a `fold_share` each fold gets that share, and the
    rest is -1. Cheap mode (one fold): the first `holdout_share` of them are fold 0, held out of every fit; the others
    are -1, fitted.

    Raises InputError: too few training takes.
    """
    if len(train_takes) < max(2, cfg.folds):
        remedy = "add takes, or lower alignment.folds with --set" if cfg.folds > 2 else "add training takes"
        n_takes, parts = len(train_takes), max(2, cfg.folds)
        raise InputError(f"{n_takes} training takes cannot be divided into {parts} parts; {remedy}")
    return deal_folds(train_takes, cfg, {})


def deal_folds(train_takes: Sequence[str], cfg: AlignmentConfig, known: Mapping[str, int]) -> dict[str, int]:
    """Return take_id -> fold for the training takes: as in `known`, the others as in `draw_folds`.

    In the cheap mode fold 0 is filled up to its share of all training takes. Takes beyond the shares of all folds are
    -1, fitted by every chain.
    """
    order = sorted(train_takes, key=lambda take: hashlib.sha256(f"{cfg.fold_seed}:{take}".encode()).hexdigest())
    new = [take for take in order if take not in known]
    folds = {take: known[take] for take in order if take in known}
    if cfg.folds == 1:
        n_held_out = min(len(order) - 1, max(1, round(cfg.holdout_share * len(order))))
        missing = n_held_out - sum(fold == 0 for fold in folds.values())
        folds |= {take: 0 if i < missing else -1 for i, take in enumerate(new)}
    else:
        share = None if cfg.fold_share is None else max(1, round(cfg.fold_share * len(new)))
        ranked = {take: i % cfg.folds if share is None else i // share for i, take in enumerate(new)}
        folds |= {take: fold if fold < cfg.folds else -1 for take, fold in ranked.items()}
    return dict(sorted(folds.items()))


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
        """Read what takes contribute to trainings through some entries and columns of `takes`.

        For an entry without parts per take, every take contributes the whole entry.
        """
        rows = inputs.table("takes", ["take_id", "split", *columns]).to_pylist()
        contents = {row["take_id"]: row for row in inputs.table("take_contents").to_pylist()}
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


def part_of(inputs: Inputs, name: str) -> JsonValue:
    """Return the digests of the parts of an entry."""
    return {**inputs.parts(name)}
