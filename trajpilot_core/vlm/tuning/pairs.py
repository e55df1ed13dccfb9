"""What the recogniser is tuned on: segments of training takes, the question that is asked of each, and its label.

Source: paper, appendix on the recogniser; docs/decisions/vlm.md.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow.compute as pc

from schemas.vlm import VlmConfig, VlmRequest, VlmTuning
from trajpilot_core.arrays import Image
from trajpilot_core.engine.stage import Inputs
from trajpilot_core.errors import LeakError, TrainingError
from trajpilot_core.vlm.frames import TakeFrames
from trajpilot_core.vlm.linter import check_request
from trajpilot_core.vlm.requests import Asking, segment_request


@dataclass(frozen=True)
class TuningPair:
    """One segment and the answer that is right."""

    segment_id: str
    take_id: str
    video: str
    """Relative to the data root."""
    fps: float
    start_s: float
    end_s: float
    label: str
    """Its text."""


FramesOf = Callable[[TuningPair], TakeFrames]


def pairs_of(inputs: Inputs, split: str) -> list[TuningPair]:
    """Return the segments of the takes of a split that have features, each once, in order of their ids.

    Classes are not balanced, as in the paper. A segment without features could not be decoded there, either.

    Args:
        inputs: takes, segments, labels, features.
        split: `train` or `dev`.
    """
    takes = inputs.table("takes", ["take_id", "split", "video", "fps"])
    of_take = {row["take_id"]: row for row in takes.filter(pc.equal(takes["split"], split)).to_pylist()}
    text = {row["label_id"]: row["label"] for row in inputs.table("labels", ["label_id", "label"]).to_pylist()}
    seen = set(inputs.table("features", ["segment_id"])["segment_id"].to_pylist())
    columns = ["segment_id", "take_id", "label_id", "start_s", "end_s"]
    rows = sorted(inputs.table("segments", columns).to_pylist(), key=lambda row: row["segment_id"])
    return [
        TuningPair(
            segment_id=row["segment_id"],
            take_id=row["take_id"],
            video=of_take[row["take_id"]]["video"],
            fps=of_take[row["take_id"]]["fps"],
            start_s=row["start_s"],
            end_s=row["end_s"],
            label=text[row["label_id"]],
        )
        for row in rows
        if row["take_id"] in of_take and row["segment_id"] in seen
    ]


def sample_of(pairs: Sequence[TuningPair], n: int, seed: int) -> list[TuningPair]:
    """Return so many pairs, the first by sha256 of seed and id."""
    return sorted(pairs, key=lambda one: hashlib.sha256(f"{seed}:{one.segment_id}".encode()).hexdigest())[:n]


def require_split(inputs: Inputs, pairs: Sequence[TuningPair], split: str) -> None:
    """Check by the table of takes that pairs are of one split.

    Raises:
        LeakError: one is of another.
        TrainingError: there is none.
    """
    if not pairs:
        raise TrainingError(f"no segment of a {split} take has features: look at the rejects of ingest and features")
    split_of = {row["take_id"]: row["split"] for row in inputs.table("takes", ["take_id", "split"]).to_pylist()}
    for one in pairs:
        if split_of[one.take_id] != split:
            raise LeakError(
                f"{one.segment_id} stands among the pairs of {split}, but its take {one.take_id} is of "
                f"{split_of[one.take_id]}; nothing was tuned"
            )


def pairs_to_tune(inputs: Inputs, cfg: VlmTuning) -> tuple[list[TuningPair], list[TuningPair]]:
    """Return what is tuned on and what decides which round is kept.

    Raises:
        LeakError: a pair is of a take of another split.
        TrainingError: there is none.
    """
    train, dev = pairs_of(inputs, "train"), sample_of(pairs_of(inputs, "dev"), cfg.dev_segments, cfg.seed)
    require_split(inputs, train, "train")
    require_split(inputs, dev, "dev")
    return train, dev


def question_of(pair: TuningPair, asking: Asking, frames_of: FramesOf) -> tuple[VlmRequest, Mapping[str, Image]]:
    """Return the question about a segment, word for word as it is asked of test segments, and its frames.

    Raises:
        LeakError: the question tells what it asks for.
        TrainingError: the frames could not be decoded now, although they could when features were made.
    """
    found = frames_of(pair)
    if pair.segment_id not in found.of_segment:
        why = found.rejects[0].detail if found.rejects else "no frame came back"
        raise TrainingError(f"{pair.segment_id}: {why} ({pair.video}); run features again, which then rejects it")
    scenario = asking.material.scenario_of[pair.take_id]
    request = segment_request(asking, pair.segment_id, scenario, found.of_segment[pair.segment_id])
    check_request(request, (pair.label,), (), asking.material, asking.prompts)
    return request, found.images


def decoder(cfg: VlmConfig, data_root: str, scratch: Path) -> FramesOf:
    """Return what decodes the frames of one segment in a child process."""

    def frames_of(pair: TuningPair) -> TakeFrames:
        from trajpilot_core.vlm import frames

        span = (pair.segment_id, pair.start_s, pair.end_s)
        return frames.take_frames(pair.video, pair.fps, [span], cfg, data_root, scratch)

    return frames_of
