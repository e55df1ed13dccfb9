"""Stage `vlm`: queries vision-language models about the test windows, take by take, and keeps their answers.

The requests may be files for another program, whose answers are read back. Stage `vlm_rows`: these answers ->
predictions of their rows, and counts of how they parsed.
Source: paper, appendix on vision-language baselines; docs/decisions/vlm.md.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from schemas.arrow import rows_of, table_of
from schemas.config import PipelineConfig
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import Prediction
from schemas.vlm import CompletedVlm, EndpointScore, VlmAnswer, VlmConfig, VlmCount, VlmReply, VlmServer
from trajpilot_core.corpora.records.contents import covered_s
from trajpilot_core.data.cross_fitting import Contributions, part_of
from trajpilot_core.encoders.text.registry import encoder_files
from trajpilot_core.engine.stage import Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import read_text
from trajpilot_core.store.reading import Inputs
from trajpilot_core.vlm.requests import prompts_digest

if TYPE_CHECKING:
    from trajpilot_core.vlm.clients import Client
    from trajpilot_core.vlm.payload import RequestFiles
    from trajpilot_core.vlm.take import AskedUnit, TakeToAsk

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
        "prompts": prompts_digest(),
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

    Raises InputError: a request has no answer, and there is no server; LeakError: a prompt contains its answer.
    """
    from trajpilot_core.vlm.clients import client_of
    from trajpilot_core.vlm.take import n_questions, rows_of_answers

    cfg = work.config
    for asked in asked_takes(work, client_of(cfg)) if work.pending else ():
        take_id = asked.source.shard
        rows, rejects = [*rows_of_answers(take_id, asked.units, asked.replies)], [*asked.rejects]
        n_in = n_questions(asked.take.windows, cfg.rows, anticipates=cfg.anticipates)
        if n_lost := n_in - len(rows):
            code = RejectCode(rejects[0].code) if rejects else RejectCode.DECODE_FAILED
            detail = f"{n_lost} questions show frames that could not be decoded"
            rejects.append(reject(NAME, code, take_id, detail, n_units=n_lost, source_file=asked.source.files[0]))
        work.sink.shard(take_id, table_of(VlmAnswer, rows), rejects, n_in)


class AskedTake(NamedTuple):
    """What was asked about a take, and the answers."""

    source: Source
    take: "TakeToAsk"
    units: "Sequence[AskedUnit]"
    replies: Mapping[str, VlmReply]
    """By the digest of the request."""
    rejects: Sequence[Reject]
    is_waiting: bool
    """Whether it has further requests, which depend on missing answers to these."""


def asked_takes(work: Work[CompletedVlm], client: "Client") -> Iterator[AskedTake]:
    """Yield the pending takes, each after its requests without an answer were passed to the client.

    Raises LeakError: a prompt contains its answer.
    """
    from trajpilot_core.vlm.parsing import load_projection
    from trajpilot_core.vlm.payload import AnswerFolder
    from trajpilot_core.vlm.requests import load_asking
    from trajpilot_core.vlm.take import first_round, recognised, replied, second_round

    cfg, asking, answers = work.config, load_asking(work.inputs, work.config), AnswerFolder(work.config.answers)
    bank = load_projection(work.inputs, cfg.text, work.runtime.device)
    for done, source in enumerate(sorted(work.pending, key=lambda source: source.shard)):
        work.runtime.progress(done, len(work.pending), f"takes; {source.shard}")
        take, images, rejects = take_of(source, work)
        units = first_round(asking, take)
        replies = replied(units, images, answers, client)
        has_fills = "qwen_sft_llm" in cfg.rows
        is_waiting = has_fills and any(unit.request.digest() not in replies for unit in units)
        if has_fills and not is_waiting:
            fills = second_round(asking, take, recognised(units, replies, bank))
            units, replies = [*units, *fills], replies | replied(fills, images, answers, client)
        yield AskedTake(source, take, units, replies, rejects, is_waiting)


def take_of(source: Source, work: Work[CompletedVlm]) -> "tuple[TakeToAsk, Mapping[str, Any], tuple[Reject, ...]]":
    """Decode the frames of one take; return its queries, images and rejects."""
    from trajpilot_core.vlm.material import AskedWindow, take_frames
    from trajpilot_core.vlm.take import TakeToAsk

    facts, runtime = cast(dict[str, Any], source.facts), work.runtime
    spans = [(str(segment), float(start), float(end)) for segment, start, end in facts["segments"]]
    frames = take_frames(source.files[0], facts["fps"], spans, work.config, runtime.data_root, runtime.scratch)
    windows = [AskedWindow(window_id, horizon, tuple(segments)) for window_id, horizon, segments in facts["windows"]]
    named = column_by(work.inputs, "labels", "label_id", "label")
    true = column_by(work.inputs, "segments", "segment_id", "label_id")
    labels = {segment: named[true[segment]] for window in windows for segment in window.segment_ids}
    return TakeToAsk(source.shard, windows, labels, frames.of_segment), frames.images, frames.rejects


def refuse_settings(config: PipelineConfig) -> None:
    """Raise InputError where the settings have no labels as answers, no videos, or a server without permission."""
    if config.evaluation.vocabulary == "classes":
        raise InputError("vlm.rows answers with labels, but evaluation.vocabulary=classes; use a run on labels")
    if config.features.source == "released":
        raise InputError("vlm.rows needs the videos, but features.source=released has none")
    if config.vlm.backend == "http":
        from trajpilot_core.vlm.clients import check_server

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
    lowers=("vlm.size_px",),
    video_s=covered_s,
    outside_shards=OUTSIDE,
)


def completed_rows(config: PipelineConfig) -> CompletedVlm:
    """Return the settings of the stage `vlm` without its server, which has no effect on how answers are read."""
    return completed(config).replace(server=VlmServer())


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
    sources=lambda inputs, cfg, data_root: [Source("", encoder_files(cfg.text))],  # it maps answers outside the bank
)


def write_requests(work: Work[CompletedVlm], out: Path) -> "tuple[RequestFiles, int]":
    """Write the requests without an answer to a folder; also return how many takes have requests that depend on these.

    Raises InputError: the folder has earlier requests, which might be answered twice.
    """
    from trajpilot_core.vlm.payload import RequestFiles

    files = RequestFiles(out)
    return files, sum(asked.is_waiting for asked in asked_takes(work, files.write))


def collect(paths: Sequence[Path], answers_folder: str) -> tuple[int, int, list[str]]:
    """Read JSONL files of results, as `vllm run-batch` writes them, into the folder VlmConfig.answers.

    Returns the numbers of new and known answers, and the faults of the other lines.
    """
    from trajpilot_core.vlm.payload import AnswerFolder, replies_in

    answers, n_new, n_known, faults = AnswerFolder(answers_folder), 0, 0, []
    for path in paths:
        replies, wrong = replies_in(read_text(path).split("\n"), path.name)
        faults += wrong
        for reply in replies:
            if answers.get(reply.request) is not None:
                n_known += 1
            else:
                n_new += 1
                answers.put(reply)
    return n_new, n_known, faults
