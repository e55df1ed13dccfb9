"""Stage `vlm_tuning`: low-rank weights for the recogniser of segments, which the stage `vlm` then asks.

Source: paper, appendix on the recogniser; docs/decisions/vlm.md.
"""

import json
from typing import cast

from pydantic import JsonValue

from schemas.arrow import table_of
from schemas.base import fingerprint
from schemas.config import PipelineConfig
from schemas.results import CurvePoint
from schemas.vlm import VlmConfig
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages.needs_of_vlm import tuning_needs
from trajpilot_core.vlm.local.folder import TUNABLE, model_folder
from trajpilot_core.vlm.material import load_material
from trajpilot_core.vlm.prompts import load_prompts

NAME, ENTRY = "vlm_tuning", "vlm_adapter"
OUTSIDE = ("model", "prompts", "decode_timeout_s")
"""Settings that enter no key of a training: the files that they name do, or nothing depends on them."""
VERSION = 1  # raise when the numbers that this stage writes change


def completed(config: PipelineConfig) -> VlmConfig:
    """Return what decides the weights: model, frames, examples and tuning, but neither rows nor who answers them.

    Raises:
        InputError: what is asked for does not fit the other settings.
    """
    own = config.vlm
    refuse_tuning(own)
    kept = ("model", "prompts", "n_frames", "size_px", "exemplars", "seed", "decode_timeout_s", "tuning")
    return VlmConfig(backend="transformers", corpus=config.ingest.corpus, **{name: getattr(own, name) for name in kept})


def refuse_tuning(own: VlmConfig) -> None:
    """Refuse a tuning that nothing would read, or next to other tuned weights.

    Raises:
        InputError: names the settings.
    """
    if not own.tuning.is_asked:
        return
    if "qwen_sft_llm" not in own.rows:
        raise InputError("vlm.tuning.is_asked, but no row asks what is tuned; add qwen_sft_llm to vlm.rows")
    if own.adapter is not None:
        raise InputError(f"vlm.tuning.is_asked and vlm.adapter={own.adapter} name two recognisers; leave one out")
    if own.backend != "transformers":
        raise InputError(
            f"vlm.tuning.is_asked, but vlm.backend={own.backend} answers elsewhere; set vlm.backend=transformers, or "
            "tune for a server with `trajpilot vlm tune` and name what that leaves as vlm.adapter"
        )


def shard_of(cfg: VlmConfig) -> str:
    """Return the name of the training."""
    return f"final/s{cfg.tuning.seed}/recogniser"


def sources(inputs: Inputs, cfg: VlmConfig, data_root: str) -> list[Source]:
    """Return the training: the videos of the takes that it is fitted and measured on, its pairs, words and model.

    Raises:
        InputError: the model is not there, not whole or of another kind.
        LeakError: a pair is of a take of another split.
        TrainingError: there is none.
    """
    from trajpilot_core.vlm.tuning.pairs import pairs_to_tune

    if not cfg.tuning.is_asked:
        return []
    pairs = pairs_to_tune(inputs, cfg.tuning)
    known = sorted((name, list(labels)) for name, labels in load_material(inputs).labels_of.items())
    facts: dict[str, JsonValue] = {
        "pairs": fingerprint([[repr(one) for one in split] for split in pairs]),
        "examples": fingerprint(cast(JsonValue, [list(one) for one in known])),
        "prompts": load_prompts(cfg.prompts).digest,
    }
    videos = sorted({one.video for split in pairs for one in split})
    files = model_folder("vlm.model", cfg.model, TUNABLE).files
    return [Source(shard_of(cfg), (*videos, *files), facts)]


def run(work: Work[VlmConfig]) -> None:
    """Fit the added weights, or go on with that, and keep those of the round that answers best on dev.

    Raises:
        LeakError: a question tells its answer.
        TrainingError: it does not converge, or frames cannot be decoded.
    """
    from trajpilot_core.vlm.tuning.fit import tune
    from trajpilot_core.vlm.tuning.run import ready

    for source in work.pending:
        made = ready(work.inputs, work.config, work.runtime)
        folder = work.runtime.training_scratch[source.shard]
        done = tune(made.task, work.config.tuning, folder, work.runtime.progress, work.runtime.checkpoint_s)
        with work.sink.training(source.shard) as share:
            share.table(f"{NAME}_curves", table_of(CurvePoint, done.curve))
            share.model(ENTRY, source.shard, {name: value.numpy() for name, value in done.state.items()})
            about = {name: json.dumps(value) for name, value in made.about(done).items()}
            share.models(ENTRY, {"base": made.base, **about})


def conclude(work: Work[VlmConfig]) -> None:
    """Write the settings, and an empty curve where nothing was asked for; rows are segments."""
    if not work.config.tuning.is_asked:
        work.sink.table(f"{NAME}_curves", table_of(CurvePoint, []))
    work.sink.models(ENTRY, {"config": work.config.model_dump_json()})
    n_segments = work.inputs.table("segments", ["segment_id"]).num_rows
    work.sink.count(n_segments, n_segments)


STAGE = Stage(
    name=NAME,
    reads=("takes", "segments", "labels", "windows", "features"),
    writes=(ENTRY, f"{NAME}_curves"),
    config=VlmConfig,
    run=run,
    version=VERSION,
    summary="Tunes low-rank weights of a vision-language model that recognises segments, on training takes",
    shard_by="training",
    completed=completed,
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    needs=tuning_needs,
    conclude=conclude,
    outside_shards=OUTSIDE,
    may_be_empty=True,
)
