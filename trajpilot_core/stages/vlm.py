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
from schemas.vlm import (
    CompletedVlm,
    EndpointScore,
    VlmAnswer,
    VlmConfig,
    VlmCount,
    VlmReply,
    VlmRequest,
    VlmServer,
)
from trajpilot_core.corpora.records.contents import covered_s
from trajpilot_core.data.cross_fitting import Contributions, part_of
from trajpilot_core.encoders.text.registry import encoder_files
from trajpilot_core.engine.stage import Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import read_text
from trajpilot_core.store.reading import Inputs
from trajpilot_core.vlm.requests import load_prompts

if TYPE_CHECKING:
    from trajpilot_core.arrays import Image
    from trajpilot_core.vlm.parsing import Projection
    from trajpilot_core.vlm.requests import Asking
    from trajpilot_core.vlm.take import AskedUnit, TakeToAsk

NAME, VERSION, ROWS_VERSION = "vlm", 4, 3
OUTSIDE = ("answers", "decode_timeout_s", "seeds", "server", "windows_per_horizon")
"""Settings that change neither the requests of a take nor its rows; its windows are facts of its source."""
PART_BYTES = 500 * 10**6
"""Size after which a new file of requests begins."""


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

    Raises:
        InputError: a request has no answer and there is no server to answer it.
        LeakError: a prompt contains its answer.
    """
    from trajpilot_core.vlm.clients import client_of
    from trajpilot_core.vlm.parsing import load_projection
    from trajpilot_core.vlm.payload import AnswerFolder
    from trajpilot_core.vlm.take import n_questions, replied, rows_of_answers

    if not work.pending:
        return
    cfg, asking = work.config, asking_of(work.inputs, work.config)
    bank = load_projection(work.inputs, cfg.text, work.runtime.device)
    client = client_of(cfg)
    answers = AnswerFolder(cfg.answers)
    for done, source in enumerate(sorted(work.pending, key=lambda source: source.shard)):
        work.runtime.progress(done, len(work.pending), f"takes; {source.shard}")
        take, images, rejects = take_of(source, work)
        queries: list[AskedUnit] = []
        replies: dict[str, VlmReply] = {}
        for units in rounds(asking, take, bank, replies):
            replies |= replied(units, images, answers, client)
            queries += units
        rows = [*rows_of_answers(source.shard, queries, replies)]
        n_in = n_questions(take.windows, cfg.rows, anticipates=cfg.anticipates)
        work.sink.shard(source.shard, table_of(VlmAnswer, rows), lost(source, rejects, n_in - len(rows)), n_in)


def rounds(
    asking: "Asking", take: "TakeToAsk", bank: "Projection", replies: Mapping[str, VlmReply]
) -> "Iterator[list[AskedUnit]]":
    """Yield the first requests, then those that depend on their answers, which the caller has added to `replies`."""
    from trajpilot_core.vlm.take import first_round, recognised, second_round

    first = first_round(asking, take)
    yield first
    if "qwen_sft_llm" in asking.config.rows:
        yield second_round(asking, take, recognised(first, replies, bank))


def asking_of(inputs: Inputs, cfg: CompletedVlm) -> "Asking":
    """Read the material that all requests of a run share."""
    from trajpilot_core.vlm.material import load_material
    from trajpilot_core.vlm.requests import Asking

    return Asking(cfg, load_prompts(), load_material(inputs))


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
)


class Written(NamedTuple):
    """Summary of the written files."""

    files: list[Path]
    n_requests: int
    n_bytes: int
    n_waiting: int
    """Takes with further requests that depend on the answers to these."""


def missing(work: Work[CompletedVlm]) -> "Iterator[tuple[list[VlmRequest], Mapping[str, Image], bool]]":
    """Yield per take the requests without an answer, their frames, and whether further requests depend on them.

    Raises LeakError: a prompt contains its answer.
    """
    from trajpilot_core.vlm.parsing import load_projection
    from trajpilot_core.vlm.payload import AnswerFolder

    cfg, asking = work.config, asking_of(work.inputs, work.config)
    bank = load_projection(work.inputs, cfg.text, work.runtime.device)
    answers = AnswerFolder(cfg.answers)
    for done, source in enumerate(sorted(work.pending, key=lambda source: source.shard)):
        work.runtime.progress(done, len(work.pending), f"takes; {source.shard}")
        take, images, _ = take_of(source, work)
        replies: dict[str, VlmReply] = {}
        for number, units in enumerate(rounds(asking, take, bank, replies)):
            wanted = {unit.request.digest(): unit.request for unit in units}
            open_ = answers.missing(wanted)
            replies |= {digest: reply for digest in wanted if (reply := answers.get(digest)) is not None}
            more = number == 0 and "qwen_sft_llm" in cfg.rows and bool(open_)
            if open_:
                yield [wanted[digest] for digest in open_], images, more
            if more:
                break


def write_requests(work: Work[CompletedVlm], out: Path) -> Written:
    """Write requests without an answer as OpenAI JSONL, one folder per model, in parts.

    Raises InputError: the folder has earlier requests, which might be answered twice.
    """
    from trajpilot_core.vlm.payload import line

    if any(out.rglob("*.jsonl")):
        raise InputError(f"{out} already has files of requests; choose a new folder, or remove them")
    open_files: dict[str, Path] = {}
    files: list[Path] = []
    seen: set[str] = set()
    n_bytes = n_waiting = 0
    for requests, images, more in missing(work):
        n_waiting += more
        for request in requests:
            if request.digest() in seen:
                continue
            seen.add(request.digest())
            model = request.adapter or request.model
            path = open_files.get(model)
            if path is None or path.stat().st_size > PART_BYTES:
                named = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in model).strip("._")
                path = out / (named or "model") / f"part-{len(files) + 1:04d}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                open_files[model] = path
                files.append(path)
            with path.open("a", encoding="utf-8") as file:
                n_bytes += file.write(line(request, images) + "\n")
    return Written(files, len(seen), n_bytes, n_waiting)


def collect(paths: Sequence[Path], answers_folder: str) -> tuple[int, int, list[str]]:
    """Read JSONL files of results, as `vllm run-batch` writes them, into the folder VlmConfig.answers.

    Returns:
        Numbers of new and known answers, and the faults of the other lines.
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
