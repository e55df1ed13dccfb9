"""What alignment and predictor take from another run: E_tau as it is, and the weights with which trainings begin.

Imports no torch. Reasons: docs/decisions/pretrained.md.
"""

import logging
from collections.abc import Mapping

from pydantic import JsonValue

from schemas.base import fingerprint
from schemas.training import AlignmentConfig, PredictorConfig
from trajpilot_core.data.cross_fitting import Chain, is_imported
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
from trajpilot_core.engine.stage import Inputs, Source, Work
from trajpilot_core.errors import InputError
from trajpilot_core.store.tensors import Models

E_TAU, CURVES, PREDICTORS, BANK = "e_tau", "alignment_curves", "predictors", "text_bank"
HERE = ("seeds", "folds", "holdout_share", "fold_share", "fold_seed", "pretrained")
"""Settings of alignment that say which models there are, not how each was made."""
log = logging.getLogger("trajpilot")


def e_tau_sources(inputs: Inputs, cfg: AlignmentConfig, wanted: Mapping[str, tuple[Chain, int]]) -> list[Source]:
    """Return one source per E_tau that comes from another run: its digest, its curve, and what it was fitted on.

    Args:
        inputs: of alignment.
        cfg: its settings.
        wanted: training -> chain and seed.

    Raises:
        InputError: the other run lacks a model, does not go with this one, or has seen what this one holds out.
    """
    output, here = open_alignment(cfg), TakesHere.read(inputs)
    fold_of = folds_for(here.train, cfg)
    require_models(output, E_TAU, wanted)
    fits, chains = fits_of(output, E_TAU), dict.fromkeys(chain for chain, _ in wanted.values())
    refuse_leaks(output, fits, chains, here, fold_of)
    digests = output.digests(E_TAU)

    def facts(name: str, chain: Chain) -> dict[str, JsonValue]:
        said: dict[str, JsonValue] = {**note_imported(chain.name, fits, here.split_of)}
        return {"model": digests[name], "curve": output.share_digest(CURVES, name), "fitted": fingerprint(said)}

    return [Source(name, facts=facts(name, chain)) for name, (chain, _) in wanted.items()]


def import_e_tau(work: Work[AlignmentConfig], wanted: Mapping[str, tuple[Chain, int]]) -> None:
    """Write every E_tau that is asked for as it is in the other run, with its curve.

    Args:
        work: of alignment.
        wanted: training -> chain and seed.

    Raises:
        InputError: it belongs to another text space, or is damaged.
    """
    output, here = open_alignment(work.config), TakesHere.read(work.inputs)
    models, fits = output.models(E_TAU), fits_of(output, E_TAU)
    width = require_text_space(output, models, work.inputs)
    for done, source in enumerate(work.pending, start=1):
        chain, _ = wanted[source.shard]
        with work.sink.training(source.shard) as share:
            share.table(CURVES, output.share(CURVES, source.shard))
            share.model(E_TAU, source.shard, models.read(source.shard))
            share.models(E_TAU, {"text_width": str(width), **note_imported(chain.name, fits, here.split_of)})
        work.runtime.progress(done, len(work.pending), "E_tau imported")
    log.info("%-13s %d E_tau come from %s; none is trained", "alignment", len(work.pending), output.named)


def open_alignment(cfg: AlignmentConfig) -> OtherOutput:
    """Open the output from which E_tau comes; it is set."""
    assert cfg.pretrained is not None
    return open_other(cfg.pretrained, "alignment")


def settings_of_e_tau(cfg: AlignmentConfig) -> AlignmentConfig:
    """Return the settings with which every E_tau was made: sizes and training of the other run, where it comes there.

    Raises:
        InputError: another version of this project wrote it.
    """
    if cfg.pretrained is None:
        return cfg
    there = open_alignment(cfg).settings(AlignmentConfig, E_TAU)
    return there.replace(**{name: getattr(cfg, name) for name in HERE})


def require_text_space(output: OtherOutput, models: Models, inputs: Inputs) -> int:
    """Return the width of the text space, which is the same here and in the other run.

    Raises:
        InputError: it is another width or another encoder.
    """
    bank = inputs.table(BANK, ["encoder", "vector"])
    here, there = int(bank.schema.field("vector").type.list_size), int(models.about["text_width"])
    if here != there:
        raise InputError(
            f"{output.setting}: the text bank here is {here} wide, E_tau of {output.named} was fitted to one of "
            f"{there}; embed the labels with the encoder of that run (text_bank.encoder, text_bank.model)"
        )
    mine, theirs = ({*table["encoder"].to_pylist()} for table in (bank, output.table(BANK, ["encoder"])))
    if mine != theirs:
        raise InputError(
            f"{output.setting}: the labels here are embedded by {', '.join(sorted(mine))}, those of {output.named} by "
            f"{', '.join(sorted(theirs))}: E_tau maps to the space of that one; embed them with it (text_bank.encoder, "
            "text_bank.model, text_bank.embedding)"
        )
    return here


def initial_weights(
    inputs: Inputs, cfg: PredictorConfig, wanted: Mapping[str, tuple[Chain, int, str]], fold_of: Mapping[str, int]
) -> dict[str, dict[str, JsonValue]]:
    """Return training -> the fact that says with which weights it begins; empty where they are random.

    Args:
        inputs: of predictor.
        cfg: its settings.
        wanted: training -> chain, seed and variant.
        fold_of: training take -> its fold.

    Raises:
        InputError: the other run lacks a model, or has seen what this one holds out.
    """
    if cfg.pretrained is None:
        return {}
    output = open_other(cfg.pretrained, "predictor")
    digests = output.digests(PREDICTORS)
    first = {name: first_weights(name, digests) for name in wanted}
    require_models(output, PREDICTORS, first.values())
    chains = dict.fromkeys(chain for chain, *_ in wanted.values())
    refuse_leaks(output, fits_of(output, PREDICTORS), chains, TakesHere.read(inputs), fold_of)
    head: dict[str, JsonValue] = {"head": "learned factor"} if cfg.head == "classes" else {}
    return {name: {"initial weights": digests[key], **head} for name, key in first.items()}


def initial_fits(cfg: PredictorConfig) -> dict[str, ImportedFit]:
    """Return chain -> what the weights with which its trainings begin were fitted on; empty where they are random."""
    if cfg.pretrained is None:
        return {}
    output = open_other(cfg.pretrained, "predictor")
    log.info("%-13s begins with the weights of %s", "predictor", output.named)
    return fits_of(output, PREDICTORS)


def origin_of_models(e_tau: Mapping[str, str], cfg: PredictorConfig, fitted_on: str) -> str:
    """State where E_tau and the first weights of predictors come from, for people.

    Args:
        e_tau: what is said of the models.
        cfg: settings of the predictors.
        fitted_on: what E_tau was fitted on where it comes from this run.
    """
    first = "random weights" if cfg.pretrained is None else "weights of another run"
    origin = "of another run" if is_imported(e_tau) else f"fitted on {fitted_on}"
    return f"E_tau: {origin}; predictors begin with {first}"
