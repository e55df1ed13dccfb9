"""The takes that models of another run were fitted on, what a run inherits with them, and when it must refuse them.

Does not import torch. Reasons: docs/decisions/pretrained.md.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Self

from schemas.places import OtherRun
from schemas.training import AlignmentConfig
from trajpilot_core.data.cross_fitting import (
    CAPTURES,
    ELSEWHERE,
    FINAL,
    FITTED,
    Chain,
    deal_folds,
    draw_folds,
    note_fitted,
    noted_fitted,
    original_of,
    seeds_of,
)
from trajpilot_core.data.other_runs import OtherOutput, open_other, shown
from trajpilot_core.errors import InputError
from trajpilot_core.store.reading import Inputs


class ImportedFit(NamedTuple):
    """The takes that the models of one chain of another run were fitted on, there or in an earlier run."""

    takes: frozenset[str]
    captures: frozenset[str]


class TakesHere(NamedTuple):
    """The takes of this run."""

    split_of: Mapping[str, str]
    """Take -> train, dev or test."""
    capture_of: Mapping[str, str]

    @classmethod
    def read(cls, inputs: Inputs) -> Self:
        """Read the table `takes`."""
        rows = inputs.table("takes", ["take_id", "split", "capture"]).to_pylist()
        return cls(*({row["take_id"]: row[column] for row in rows} for column in ("split", "capture")))

    @property
    def train(self) -> list[str]:
        """Training takes, sorted."""
        return sorted(take for take, split in self.split_of.items() if split == "train")


def dev_of_captures(run: OtherRun | None) -> dict[str, bool]:
    """Return capture -> whether it is dev in another run; empty if there is no other run."""
    if run is None:
        return {}
    takes = open_other(run, "ingest").takes()
    dev = {take.capture for take in takes if take.split == "dev"}
    return {take.capture: take.capture in dev for take in takes}


def fits_of(output: OtherOutput, entry: str) -> dict[str, ImportedFit]:
    """Return chain -> the takes that its models were fitted on, for an entry of models of another run.

    Raises InputError: a chain has no note of its takes.
    """
    models, captures = output.models(entry), {take.take_id: take.capture for take in output.takes()}
    fitted, elsewhere, noted = (noted_fitted(models.about, kind) for kind in (FITTED, ELSEWHERE, CAPTURES))
    missing = sorted({key.split("/")[0] for key in models.keys} - fitted.keys())
    if missing:
        raise InputError(
            f"{output.setting}: {output.named} does not note on which takes the chains {', '.join(missing)} were "
            "fitted; train them again with this version"
        )
    return {
        chain: ImportedFit(
            frozenset([*takes, *elsewhere.get(chain, ())]),
            frozenset([*(captures[take] for take in takes if take in captures), *noted.get(chain, ())]),
        )
        for chain, takes in fitted.items()
    }


def first_weights(key: str, existing: Collection[str]) -> str:
    """Return the key of the model of another run that a training starts from: its own key.

    A goal-dropout twin that the other run lacks starts from its original there.
    """
    return key if key in existing else original_of(key)


def require_models(output: OtherOutput, entry: str, wanted: Iterable[str]) -> None:
    """Check for models in another run. Raises InputError: models are missing; names them, and what exists."""
    existing = output.digests(entry)
    missing = [key for key in wanted if key not in existing]
    if missing:
        seeds = ", ".join(map(str, seeds_of(existing)))
        chains = ", ".join(sorted({key.split("/")[0] for key in existing}))
        raise InputError(
            f"{output.setting}: {output.named} lacks {shown(missing)}; it has the seeds {seeds} and the chains "
            f"{chains}: set alignment.seeds and alignment.folds accordingly"
        )


def refuse_leaks(
    output: OtherOutput,
    fits: Mapping[str, ImportedFit],
    chains: Iterable[Chain],
    here: TakesHere,
    fold_of: Mapping[str, int],
) -> None:
    """Refuse models that were fitted on takes that are held out in this run; `fits` is by chain.

    Raises InputError: a chain was fitted on takes or captures that are dev or test here, or on takes that it leaves out
    here, or its epochs were chosen on takes that are test here; names them.
    """
    held_out = {take: split for take, split in here.split_of.items() if split != "train"}
    captures = {here.capture_of[take]: split for take, split in held_out.items()}
    chosen_on = [
        take.take_id for take in output.takes() if take.split == "dev" and held_out.get(take.take_id) == "test"
    ]
    for chain in chains:
        fit = fits[chain.name]
        left_out = {take: f"fold {fold}" for take, fold in fold_of.items() if fold == chain.fold}
        faults = [
            *_named("takes", {**left_out, **held_out}, fit.takes),
            *_named("captures", captures, fit.captures),
            *_named("dev takes (its epochs were chosen on them)", held_out, chosen_on),
        ]
        if faults:
            raise InputError(
                f"{output.setting}: the chain {chain.name} of {output.named} has seen data that this run holds out: "
                f"{'; '.join(faults)}; inherit dev captures and folds from that run (ingest.splits_of, "
                "alignment.pretrained: `trajpilot run --pretrained` sets all), or start from one that has not seen them"
            )


def _named(what: str, held_out: Mapping[str, str], seen: Collection[str]) -> list[str]:
    """List what is held out but was seen, with the reason why it is held out."""
    both = sorted(name for name in seen if name in held_out)
    return [f"{what} {shown([f'{name} ({held_out[name]} here)' for name in both])}"] if both else []


def note_imported(
    chain: str, fits: Mapping[str, ImportedFit], here: Collection[str], fitted_here: Iterable[str] = ()
) -> dict[str, str]:
    """Return the notes on models of a chain that are from another run, or started from one.

    `fits` are chain -> what they were fitted on there; empty: only `fitted_here`, the takes of this run, is noted.
    """
    if not fits:
        return note_fitted(chain, fitted_here)
    takes, captures = fits[chain]
    return {
        **note_fitted(chain, takes.intersection(here).union(fitted_here)),
        **note_fitted(chain, takes.difference(here), ELSEWHERE),
        **note_fitted(chain, captures, CAPTURES),
    }


def with_imported(about: Mapping[str, str], fits: Mapping[str, ImportedFit], here: Collection[str]) -> dict[str, str]:
    """Return the notes on models that were fitted here (`about`) and started from those of another run."""
    notes: dict[str, str] = {}
    for chain, takes in noted_fitted(about).items():
        notes |= note_imported(chain, fits, here, takes)
    return notes


def folds_for(train_takes: Sequence[str], cfg: AlignmentConfig) -> dict[str, int]:
    """Return training take -> fold: as in another run if E_tau comes from there, else as in `draw_folds`.

    Raises InputError: too few training takes, or folds that do not match those of the other run.
    """
    if cfg.pretrained is None:
        return draw_folds(train_takes, cfg)
    output = open_other(cfg.pretrained, "alignment")
    rows = output.table("folds", ("take_id", "fold")).to_pylist()
    fold_of = {row["take_id"]: row["fold"] for row in rows}
    n_there = 1 + max(fold_of.values())
    if cfg.folds not in (1, n_there):
        raise InputError(
            f"{output.setting}: {output.named} has {n_there} folds and alignment.folds is {cfg.folds}: the models of a "
            f"fold are those of the same fold there; set alignment.folds={n_there}, or 1 for the cheap mode"
        )
    fits = fits_of(output, "e_tau")
    known = {}
    for take in train_takes:
        seen = take in fits[FINAL.name].takes
        if cfg.folds == 1 and (seen or take in fold_of):  # what `final` was fitted on there is fitted here
            known[take] = -1 if seen else 0
        elif take in fold_of:
            known[take] = fold_of[take]
        elif seen:  # a take from a fold of an earlier run is left out where the models have not seen it
            unseen = (fold for fold in range(cfg.folds) if take not in fits[f"fold{fold}"].takes)
            known[take] = next(unseen, -1)
    folds = deal_folds(train_takes, cfg, known)
    empty = sorted({*range(cfg.folds)} - {*folds.values()})
    if empty:
        other = f"set alignment.folds={n_there if cfg.folds == 1 else 1}, or " if n_there > 1 else ""
        raise InputError(
            f"{output.setting}: fold {', '.join(map(str, empty))} has no training take here: {len(known)} of "
            f"{len(train_takes)} keep their fold of {output.named}, and the others do not fill it; {other}add training "
            "takes on which its models were not fitted"
        )
    return folds
