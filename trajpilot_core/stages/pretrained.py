"""What alignment and predictor import from another run: E_tau as it is, and the initial weights of trainings.

Imports no torch. Reasons: docs/decisions/pretrained.md.
"""

import logging
from collections.abc import Iterable, Mapping

from schemas.base import fingerprint
from schemas.training import AlignmentConfig, PredictorConfig
from trajpilot_core.data.cross_fitting import E_TAU, folds_of, is_imported, model_key, part_of
from trajpilot_core.data.imported_fits import (
    ImportedFit,
    TakesHere,
    first_weights,
    fits_of,
    folds_for,
    note_imported,
    refuse_leaks,
    require_models,
)
from trajpilot_core.data.other_runs import OtherOutput, open_other
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages.trained import Facts, Trainings
from trajpilot_core.store.reading import Inputs

CURVES, PREDICTORS = "alignment_curves", "predictors"
HERE = ("seeds", "folds", "holdout_share", "fold_share", "fold_seed", "pretrained")
"""Settings of alignment that decide which models exist, not how each was made."""
log = logging.getLogger("trajpilot")


def e_tau_facts(inputs: Inputs, cfg: AlignmentConfig, wanted: Trainings) -> dict[str, Facts]:
    """Return for every E_tau of another run the digests of its model, its curve, and what it was fitted on.

    Raises InputError: the other run lacks a model, does not match this one, or has seen what this one holds out.
    """
    output, here = open_alignment(cfg), TakesHere.read(inputs)
    fold_of = folds_for(here.train, cfg)
    require_models(output, E_TAU, wanted)
    fits, chains = fits_of(output, E_TAU), dict.fromkeys(chain for chain, *_ in wanted.values())
    refuse_leaks(output, fits, chains, here, fold_of)
    digests, curves = output.digests(E_TAU), output.digests(CURVES)
    facts: dict[str, Facts] = {}
    for name, (chain, *_) in wanted.items():
        noted: Facts = {**note_imported(chain.name, fits, here.split_of)}
        facts[name] = {"model": digests[name], "curve": curves[name], "fitted": fingerprint(noted)}
    return facts


def import_e_tau(work: Work[AlignmentConfig], wanted: Trainings) -> None:
    """Write every wanted E_tau as it is in the other run, with its curve.

    Raises InputError: it belongs to another text space, or is damaged.
    """
    output, here = open_alignment(work.config), TakesHere.read(work.inputs)
    models, fits = output.models(E_TAU), fits_of(output, E_TAU)
    tables = work.inputs.table("text_bank", ["encoder"]), output.table("text_bank", ["encoder"])
    mine, theirs = ({*table["encoder"].to_pylist()} for table in tables)
    if mine != theirs:
        raise InputError(
            f"{output.setting}: the labels here are embedded by {', '.join(sorted(mine))}, those of {output.named} by "
            f"{', '.join(sorted(theirs))}: E_tau maps to the space of that one; embed them with it (text_bank.encoder, "
            "text_bank.model, text_bank.embedding)"
        )
    for done, (name, (chain, *_)) in enumerate(wanted.items(), start=1):
        with work.sink.training(name) as share:
            share.table(CURVES, output.share(CURVES, name))
            share.model(E_TAU, name, models.read(name))
            notes = note_imported(chain.name, fits, here.split_of)
            share.models(E_TAU, {"text_width": models.about["text_width"], **notes})
        work.runtime.progress(done, len(wanted), "E_tau imported")
    log.info("%-13s %d E_tau imported from %s; none is trained", "alignment", len(wanted), output.named)


def open_alignment(cfg: AlignmentConfig) -> OtherOutput:
    """Open the output that E_tau is imported from."""
    assert cfg.pretrained is not None
    return open_other(cfg.pretrained, "alignment")


def settings_of_e_tau(cfg: AlignmentConfig) -> AlignmentConfig:
    """Return the settings with which every E_tau was made; for an imported one, sizes and training of the other run.

    Raises InputError: another version of this project wrote it.
    """
    if cfg.pretrained is None:
        return cfg
    settings = open_alignment(cfg).settings(AlignmentConfig, E_TAU)
    return settings.replace(**{name: getattr(cfg, name) for name in HERE})


def initial_weights(
    inputs: Inputs, cfg: PredictorConfig, wanted: Trainings, fold_of: Mapping[str, int]
) -> dict[str, Facts]:
    """Return training -> the fact that identifies its initial weights; empty where they are random.

    Raises InputError: the other run lacks a model, or has seen what this one holds out.
    """
    if cfg.pretrained is None:
        return {}
    output = open_other(cfg.pretrained, "predictor")
    digests = output.digests(PREDICTORS)
    first = {name: first_weights(name, digests) for name in wanted}
    require_models(output, PREDICTORS, first.values())
    chains = dict.fromkeys(chain for chain, *_ in wanted.values())
    refuse_leaks(output, fits_of(output, PREDICTORS), chains, TakesHere.read(inputs), fold_of)
    head: Facts = {"head": "learned factor"} if cfg.head == "classes" else {}
    return {name: {"initial weights": digests[key], **head} for name, key in first.items()}


def predictor_facts(
    inputs: Inputs, cfg: PredictorConfig, known: Trainings, reads: Iterable[str], first: Mapping[str, str]
) -> dict[str, Facts]:
    """Return what decides each training of a further predictor: entries, the E_tau of its chain and seed, and weights.

    `first` are, by training, the keys of the predictors with whose weights they begin; for events goal-dropout twins,
    because only those have learned with a masked Goal.

    Raises InputError: weights of another run have seen what is held out here (docs/decisions/pretrained.md).
    """
    e_tau, shared = inputs.parts(E_TAU), {name: part_of(inputs, name) for name in reads if name != E_TAU}
    initial = initial_weights(inputs, cfg, {key: known[name] for name, key in first.items()}, folds_of(inputs))
    return {
        name: {**shared, "e_tau": e_tau[model_key(chain, seed, E_TAU)], **initial.get(first.get(name, ""), {})}
        for name, (chain, seed, _) in known.items()
    }


def initial_fits(cfg: PredictorConfig) -> dict[str, ImportedFit]:
    """Return chain -> what the initial weights of its trainings were fitted on; empty where they are random."""
    if cfg.pretrained is None:
        return {}
    output = open_other(cfg.pretrained, "predictor")
    log.info("%-13s initial weights from %s", "predictor", output.named)
    return fits_of(output, PREDICTORS)


def origin_of_models(e_tau: Mapping[str, str], cfg: PredictorConfig, fitted_on: str) -> str:
    """Return in words where E_tau, by the notes of its entry, and the initial weights of predictors come from."""
    first = "random weights" if cfg.pretrained is None else "weights of another run"
    origin = "of another run" if is_imported(e_tau) else f"fitted on {fitted_on}"
    return f"E_tau: {origin}; predictors begin with {first}"
