"""Stage `vlm`: queries vision-language models about the test windows, take by take, and keeps their answers.

Stage `vlm_rows`: these answers -> predictions of their rows, and counts of how they parsed.
Source: paper, appendix on vision-language baselines; docs/decisions/vlm.md.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from schemas.arrow import rows_of, table_of
from schemas.config import PipelineConfig
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import Prediction
from schemas.vlm import (
    CompletedVlm,
    EndpointScore,
    VlmAnswer,
    VlmConfig,
    VlmCount,
    VlmServer,
)
from trajpilot_core.corpora.records.contents import covered_s
from trajpilot_core.data.cross_fitting import Contributions, part_of
from trajpilot_core.encoders.text.registry import encoder_files
from trajpilot_core.engine.stage import Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.store.reading import Inputs
from trajpilot_core.vlm.requests import Asking, load_prompts

if TYPE_CHECKING:
    from trajpilot_core.vlm.take import TakeToAsk

NAME, VERSION, ROWS_VERSION = "vlm", 4, 3
OUTSIDE = ("answers", "decode_timeout_s", "seeds", "server", "windows_per_horizon")
"""Settings that change neither the requests of a take nor its rows; its windows are facts of its source."""


def completed(config: PipelineConfig) -> CompletedVlm:
    """Return the settings, completed from those of other stages."""
    return CompletedVlm.completing(
        config.vlm,
        corpus=config.ingest.corpus,
        anticipates=config.predictor.anticipates,
        text=config.text_bank,
        seeds=config.alignment.seeds,
    )


def sources(inputs: Inputs, cfg: CompletedVlm, data_root: str) -> list[Source]:
    """Return one source per test take with windows to query: its video, windows and texts.

    Raises InputError: the settings contradict the run's other settings.
    """
    from trajpilot_core.vlm.material import windows_to_ask

    windows_of_take = windows_to_ask(inputs, cfg.windows_per_horizon, cfg.seed)
    spans = {
        row["segment_id"]: [row["segment_id"], row["start_s"], row["end_s"]]
        for row in inputs.table("segments", ["segment_id", "start_s", "end_s"]).to_pylist()
    }
    known = Contributions.read(inputs, ("segments", "windows"), ("scenario",))
    shared = {
        "prompts": load_prompts().digest,
        "labels": part_of(inputs, "labels"),
        "training": known.digest(known.train),
        "text bank": part_of(inputs, "text_bank"),
    }
    files = encoder_files(cfg.text)
    listed = []
    for take in inputs.table("takes", ["take_id", "video", "fps", "scenario"]).to_pylist():
        windows = windows_of_take.get(take["take_id"], [])
        if not windows:
            continue
        ends = sorted({segment for window in windows for segment in (window.segment_ids[0], window.segment_ids[-1])})
        facts: dict[str, Any] = {
            **shared,
            "fps": take["fps"],
            "scenario": take["scenario"],
            "segments": [spans[segment] for segment in ends],
            "windows": [[window.window_id, window.horizon, list(window.segment_ids)] for window in windows],
        }
        listed.append(Source(take["take_id"], (take["video"], *files), facts))
    return listed


def run(work: Work[CompletedVlm]) -> None:
    """Query one take after the other; a shard is committed as soon as its take is answered.

    Raises LeakError: a prompt contains its answer.
    """
    from trajpilot_core.vlm.clients import client_of
    from trajpilot_core.vlm.material import load_material
    from trajpilot_core.vlm.parsing import load_projection
    from trajpilot_core.vlm.payload import AnswerFolder
    from trajpilot_core.vlm.take import first_round, n_questions, recognised, replied, rows_of_answers, second_round

    if not work.pending:
        return
    cfg = work.config
    asking = Asking(cfg, load_prompts(), load_material(work.inputs))
    bank = load_projection(work.inputs, cfg.text, work.runtime.device)
    client = client_of(cfg)
    answers = AnswerFolder(cfg.answers)
    for done, source in enumerate(sorted(work.pending, key=lambda source: source.shard)):
        work.runtime.progress(done, len(work.pending), f"takes; {source.shard}")
        take, images, rejects = take_of(source, work)
        queries = first_round(asking, take)
        replies = replied(queries, images, answers, client)
        if "qwen_sft_llm" in cfg.rows:
            depending = second_round(asking, take, recognised(queries, replies, bank))
            replies = {**replies, **replied(depending, images, answers, client)}
            queries = [*queries, *depending]
        rows = [*rows_of_answers(source.shard, queries, replies)]
        n_in = n_questions(take.windows, cfg.rows, anticipates=cfg.anticipates)
        work.sink.shard(source.shard, table_of(VlmAnswer, rows), lost(source, rejects, n_in - len(rows)), n_in)


def take_of(source: Source, work: Work[CompletedVlm]) -> "tuple[TakeToAsk, Mapping[str, Any], tuple[Reject, ...]]":
    """Decode the frames of one take; return its queries, images and rejects."""
    from trajpilot_core.vlm.material import AskedWindow, take_frames
    from trajpilot_core.vlm.take import TakeToAsk

    facts = cast(dict[str, Any], source.facts)
    spans = [(str(segment), float(start), float(end)) for segment, start, end in facts["segments"]]
    frames = take_frames(
        source.files[0], facts["fps"], spans, work.config, work.runtime.data_root, work.runtime.scratch
    )
    windows = [AskedWindow(window_id, horizon, tuple(segments)) for window_id, horizon, segments in facts["windows"]]
    named = column_by(work.inputs, "labels", "label_id", "label")
    true = column_by(work.inputs, "segments", "segment_id", "label_id")
    labels = {segment: named[true[segment]] for window in windows for segment in window.segment_ids}
    return TakeToAsk(source.shard, windows, labels, frames.of_segment), frames.images, frames.rejects


def lost(source: Source, rejects: tuple[Reject, ...], n_units: int) -> list[Reject]:
    """Return the rejects of a take: frames that could not be decoded, and the questions lost with them."""
    if not n_units:
        return [*rejects]
    code = RejectCode(rejects[0].code) if rejects else RejectCode.DECODE_FAILED
    detail = f"{n_units} questions show frames that could not be decoded"
    return [*rejects, reject(NAME, code, source.shard, detail, n_units=n_units, source_file=source.files[0])]


def refuse_settings(config: PipelineConfig) -> None:
    """Check the settings: labels as answers, videos, and a server that frames may be sent to.

    Raises InputError: they contradict each other.
    """
    from trajpilot_core.vlm.clients import check_server

    if config.evaluation.vocabulary == "classes":
        raise InputError("vlm.rows answers with labels, but evaluation.vocabulary=classes; use a run on labels")
    if config.features.source == "released":
        raise InputError("vlm.rows needs the videos, but features.source=released has none")
    check_server(config.vlm.server, config.ingest.corpus)


STAGE = Stage(
    name=NAME,
    reads=("takes", "take_contents", "segments", "labels", "windows", "features", "motions", "text_bank"),
    writes=("vlm_answers",),
    config=VlmConfig,
    run=run,
    version=VERSION,
    summary="Asks vision-language models about the test windows, take by take, and keeps what they wrote",
    completed=completed,
    shard_by="take",
    sources=sources,
    pure_sources=True,
    lowers=("vlm.size_px",),
    video_s=covered_s,
    outside_shards=OUTSIDE,
)


def completed_rows(config: PipelineConfig) -> CompletedVlm:
    """Return the settings of the stage `vlm` without its server, which has no effect on how answers are read."""
    return completed(config).replace(server=VlmServer())


def sources_of_rows(inputs: Inputs, cfg: CompletedVlm, data_root: str) -> list[Source]:
    """Return the local files of the text encoder, which maps answers outside the bank."""
    return [Source("", encoder_files(cfg.text))]


def run_rows(work: Work[CompletedVlm]) -> None:
    """Parse every answer, map its labels to the bank, and write predictions, counts and the recogniser's table."""
    from trajpilot_core.vlm.parsing import load_projection
    from trajpilot_core.vlm.score import Truth, counts_of, endpoint_scores, predictions_of_answers, read_answers

    bank = load_projection(work.inputs, work.config.text, work.runtime.device)
    answers = rows_of(VlmAnswer, work.inputs.table("vlm_answers"))
    truth = Truth(
        column_by(work.inputs, "segments", "segment_id", "label_id"),
        column_by(work.inputs, "windows", "window_id", "segment_ids"),
    )
    parsed = read_answers(answers, bank)
    predicted = list(predictions_of_answers(parsed, truth, bank, work.config.seeds))
    work.sink.table("vlm_predictions", table_of(Prediction, predicted))
    work.sink.table("vlm_counts", table_of(VlmCount, counts_of(parsed, bank)))
    work.sink.table("endpoint_cache", table_of(EndpointScore, endpoint_scores(parsed, truth, bank)))
    work.sink.count(len(answers), len(answers))


def column_by(inputs: Inputs, name: str, key: str, value: str) -> dict[str, Any]:
    """Return one column of an input by another one, whose values are unique."""
    table = inputs.table(name, [key, value])
    return dict(zip(table[key].to_pylist(), table[value].to_pylist(), strict=True))


ROWS = Stage(
    name="vlm_rows",
    reads=("vlm_answers", "segments", "windows", "text_bank"),
    writes=("vlm_predictions", "vlm_counts", "endpoint_cache"),
    config=VlmConfig,
    run=run_rows,
    version=ROWS_VERSION,
    summary="What vision-language models wrote -> predictions of their rows, failures included, and how it was read",
    completed=completed_rows,
    sources=sources_of_rows,
    pure_sources=True,
)
