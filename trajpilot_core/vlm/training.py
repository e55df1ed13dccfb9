"""The training data of the recogniser of segments, as LLaMA-Factory reads them; the training itself is not ours.

Format: https://github.com/hiyouga/LLaMA-Factory, data/README.md (sharegpt, images) and examples/train_lora. Source of
what is asked and of the settings: paper, appendix on vision-language baselines.
"""

import json
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import cv2

from schemas.rejects import Reject, RejectCode, reject
from schemas.vlm import CompletedVlm, VlmRequest
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import InputError, LeakError
from trajpilot_core.vlm.linter import check_request
from trajpilot_core.vlm.material import NAME, take_frames
from trajpilot_core.vlm.requests import TEMPLATES, Asking, load_asking, prompt, prompts_digest, segment_request

SEGMENTS, IMAGES, TRAINER, NOTE = "segments", "images", "lora.yaml", "export.json"
"""What is in the folder of an export; the first is also the name of the data set."""
JPEG_QUALITY = 95


class Exported(NamedTuple):
    """What an export has written."""

    n_segments: int
    """Training segments of the corpus: conversations and rejects together."""
    n_conversations: int
    rejects: list[Reject]


def check_training(request: VlmRequest, answer: str, take: Mapping[str, Any], asking: Asking) -> None:
    """Refuse a conversation that leaks.

    Raises LeakError: its take does not train, the answer is in the prompt outside of the examples, or an example is of
    no other scenario.
    """
    if take["split"] != "train":
        raise LeakError(f"{take['take_id']} is a take of {take['split']}; the recogniser learns from training takes")
    check_request(request, [answer], (), asking.material)
    others = frozenset(asking.material.labels_outside.get(take["scenario"], asking.material.training_labels))
    (message,), heading = request.messages, prompt("exemplars")
    examples = [part.text.removeprefix(heading) for part in message.parts if part.section == "exemplars"]
    labels = [line for text in examples for line in text.splitlines() if line and line not in others]
    if labels:
        raise LeakError(f"the example {labels[0]!r} is of no other scenario than {take['scenario']!r}")


def write_training(work: Work[CompletedVlm], out: Path) -> Exported:
    """Write a conversation for each training segment, take by take; takes that are there already are kept.

    Raises InputError: the folder is that of an export with other settings or other takes; LeakError: a conversation
    leaks.
    """
    asking = load_asking(work.inputs, work.config)
    named = {row["label_id"]: row["label"] for row in work.inputs.table("labels", ["label_id", "label"]).to_pylist()}
    takes = {row["take_id"]: row for row in work.inputs.table("takes").to_pylist()}
    columns = ["segment_id", "take_id", "start_s", "end_s", "label_id"]
    segments: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in sorted(work.inputs.table("segments", columns).to_pylist(), key=lambda row: row["segment_id"]):
        if takes[row["take_id"]]["split"] == "train":
            segments[row["take_id"]].append({**row, "label": named[row["label_id"]]})
    if not segments:
        raise InputError("no training take has a segment; look at the rejects of ingest")
    note = {"settings": work.config.content(), "prompts": prompts_digest(), "takes": sorted(segments)}
    start(out, note, work.config)
    n_conversations, rejects = 0, []
    for done, take_id in enumerate(sorted(segments)):
        work.runtime.progress(done, len(segments), f"takes; {take_id}")
        part = out / SEGMENTS / f"{take_id.replace(':', '_')}.jsonl"
        if not part.exists():
            write_take(work, asking, takes[take_id], segments[take_id], part)
        n_kept, code = len(part.read_text(encoding="utf-8").splitlines()), RejectCode.DECODE_FAILED
        n_conversations, n_lost = n_conversations + n_kept, len(segments[take_id]) - n_kept
        if n_lost:
            detail, video = f"{n_lost} segments have frames that could not be decoded", takes[take_id]["video"]
            rejects.append(reject(NAME, code, take_id, detail, n_units=n_lost, source_file=video))
    return Exported(sum(map(len, segments.values())), n_conversations, rejects)


def start(out: Path, note: dict[str, Any], cfg: CompletedVlm) -> None:
    """Write what describes an export, or check that the folder has the same one.

    The trainer has the paper's values; what the paper does not state is the default of LLaMA-Factory. On four GPUs
    (`FORCE_TORCHRUN=1`) a step has the paper's 16 segments.
    """
    (out / SEGMENTS).mkdir(parents=True, exist_ok=True)
    text, known = json.dumps(note, sort_keys=True, indent=1), out / NOTE
    if known.exists() and known.read_text(encoding="utf-8") != text:
        raise InputError(f"{out} has an export with other settings or other takes; choose a new folder, or remove it")
    known.write_text(text, encoding="utf-8")
    columns = {"messages": "messages", "images": "images"}
    tags = {"role_tag": "role", "content_tag": "content", "user_tag": "user", "assistant_tag": "assistant"}
    listed = {SEGMENTS: {"file_name": SEGMENTS, "formatting": "sharegpt", "columns": columns, "tags": tags}}
    (out / "dataset_info.json").write_text(json.dumps(listed, indent=1), encoding="utf-8")
    quoted = {"model": cfg.model, "out": str(out), "adapter": str(out / "adapter")}
    trainer = (TEMPLATES / TRAINER).read_text(encoding="utf-8")
    trainer = trainer.format(pixels=cfg.size_px**2, **{name: json.dumps(value) for name, value in quoted.items()})
    (out / TRAINER).write_text(trainer, encoding="utf-8")


def write_take(
    work: Work[CompletedVlm], asking: Asking, take: Mapping[str, Any], segments: list[dict[str, Any]], part: Path
) -> None:
    """Decode the frames of one take and write them, then its conversations at once."""
    out, lines = part.parents[1], []
    spans = [(row["segment_id"], row["start_s"], row["end_s"]) for row in segments]
    frames = take_frames(take["video"], take["fps"], spans, work.config, work.runtime.data_root, work.runtime.scratch)
    files = {digest: f"{IMAGES}/{digest[:2]}/{digest}.jpg" for digest in frames.images}
    for digest, image in frames.images.items():
        (out / files[digest]).parent.mkdir(parents=True, exist_ok=True)
        bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
        ok, coded = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
        assert ok
        (out / files[digest]).write_bytes(coded.tobytes())
    for row in segments:
        digests = frames.of_segment.get(row["segment_id"])
        if digests is not None:
            request = segment_request(asking, row["segment_id"], take["scenario"], digests)
            check_training(request, row["label"], take, asking)
            parts = [part for message in request.messages for part in message.parts]
            text = "".join(part.text + "<image>" * len(part.frames) for part in parts)
            turns = [{"role": "user", "content": text}, {"role": "assistant", "content": row["label"]}]
            shown = [files[digest] for part in parts for digest in part.frames]
            lines.append(json.dumps({"messages": turns, "images": shown}, ensure_ascii=False))
    fresh = part.with_suffix(".part")
    fresh.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    fresh.replace(part)
