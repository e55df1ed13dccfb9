"""Files of requests of the stage `vlm` for another program, and its answers read back."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from schemas.vlm import VlmConfig, VlmReply, VlmRequest
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import read_text
from trajpilot_core.stages.vlm import asking_of, rounds, take_of

if TYPE_CHECKING:
    from trajpilot_core.arrays import Image

PART_BYTES = 500 * 10**6
"""Size after which a new file of requests begins."""


class Written(NamedTuple):
    """Summary of the written files."""

    files: list[Path]
    n_requests: int
    n_bytes: int
    n_waiting: int
    """Takes with further requests that depend on the answers to these."""


def missing(work: Work[VlmConfig]) -> "Iterator[tuple[list[VlmRequest], Mapping[str, Image], bool]]":
    """Yield per take the requests without an answer, their frames, and whether further requests depend on them.

    Raises:
        LeakError: a prompt contains its answer.
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
            wanted = {one.request.digest(): one.request for one in units}
            open_ = answers.missing(wanted)
            replies |= {digest: found for digest in wanted if (found := answers.get(digest)) is not None}
            more = number == 0 and "qwen_sft_llm" in cfg.rows and bool(open_)
            if open_:
                yield [wanted[digest] for digest in open_], images, more
            if more:
                break


def write_requests(work: Work[VlmConfig], out: Path, part_bytes: int = PART_BYTES) -> Written:
    """Write requests without an answer as OpenAI JSONL, one folder per model, in parts.

    Raises:
        InputError: the folder has earlier requests, which might be answered twice.
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
            if path is None or path.stat().st_size > part_bytes:
                path = part_path(out, model, len(files) + 1)
                path.parent.mkdir(parents=True, exist_ok=True)
                open_files[model] = path
                files.append(path)
            with path.open("a", encoding="utf-8") as file:
                n_bytes += file.write(line(request, images) + "\n")
    return Written(files, len(seen), n_bytes, n_waiting)


def part_path(out: Path, model: str, number: int) -> Path:
    """Return the path of a file of requests to a model."""
    named = "".join(letter if letter.isalnum() or letter in "-._" else "_" for letter in model).strip("._")
    return out / (named or "model") / f"part-{number:04d}.jsonl"


def collect(paths: Sequence[Path], answers_folder: str) -> tuple[int, int, list[str]]:
    """Read files of results into the folder of answers.

    Args:
        paths: JSONL files as `vllm run-batch` writes them.
        answers_folder: VlmConfig.answers.

    Returns:
        Numbers of new and known answers, and the faults of the other lines.
    """
    from trajpilot_core.vlm.payload import AnswerFolder, replies_in

    answers, n_new, n_known, faults = AnswerFolder(answers_folder), 0, 0, []
    for path in paths:
        found, wrong = replies_in(read_text(path).split("\n"), path.name)
        faults += wrong
        for reply in found:
            known: Any = answers.get(reply.request) is not None
            n_known += known
            n_new += not known
            if not known:
                answers.put(reply)
    return n_new, n_known, faults
