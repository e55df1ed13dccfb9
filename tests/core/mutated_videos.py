"""Damage video files in seeded ways, read them as the pipeline does, and compare every frame with the undamaged file's.

    python tests/core/mutated_videos.py --files 300 --seed 0

Each file is probed as ingest does and, where the probe accepts it, its segments are decoded as the stage `features`
does, in child processes. The table says what became of the files of each kind of damage; the one in
docs/decisions/video-backend.md is of the command above.
"""

import argparse
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from video_fixture import write_video

from trajpilot_core.stages.ingest import LATE_START_S
from trajpilot_core.video.clips import frame_times_s
from trajpilot_core.video.decode import frames
from trajpilot_core.video.isolate import COMMAND, Event, run_jobs
from trajpilot_core.video.probe import VideoError, VideoProbe, probe_many

log = logging.getLogger("mutated_videos")
N, FPS, SIZE_PX, TIMEOUT_S = 150, 30, 64, 60.0
SEGMENTS = [(0.6 * k, 0.6 * k + 0.6) for k in range(8)]
Damage = Callable[[bytearray, np.random.Generator], None]
Pixels = NDArray[np.uint8]

SOURCES: dict[str, dict[str, object]] = {
    "index first.mp4": {},
    "index last, sound.mp4": {"faststart": False, "audio_s": 5.0},
    "fragments.mp4": {"faststart": False, "muxer": {"movflags": "frag_keyframe+empty_moov"}},
    "matroska.mkv": {"muxer": {"fflags": "+bitexact"}},
    "mpeg4.avi": {"codec": "mpeg4", "b_frames": 0},
}
MARKS = (
    *b"moov trak mdia minf stbl stsd stts stsz stsc stco ctts stss edts elst mdat moof traf trun mvhd tkhd".split(),
    *b"mdhd avc1 avcC LIST hdrl strh strf movi idx1 00dc".split(),
    b"\x1f\x43\xb6\x75", b"\x16\x54\xae\x6b", b"\xa3", b"\x1c\x53\xbb\x6b",
)  # fmt: skip
"""Names of boxes, chunks and elements, whose sizes are changed."""


def flip(raw: bytearray, rng: np.random.Generator, bits: int = 1) -> None:
    for at in rng.integers(len(raw), size=bits):
        raw[at] ^= 1 << int(rng.integers(8))


def flip_many(raw: bytearray, rng: np.random.Generator) -> None:
    flip(raw, rng, 20)


def cut_off(raw: bytearray, rng: np.random.Generator) -> None:
    del raw[int(rng.integers(len(raw))) :]


def stretch(raw: bytearray, rng: np.random.Generator) -> slice:
    at = int(rng.integers(len(raw)))
    return slice(at, min(len(raw), at + int(rng.integers(1, 600))))


def overwrite(raw: bytearray, rng: np.random.Generator) -> None:
    where = stretch(raw, rng)
    raw[where] = rng.integers(0, 256, where.stop - where.start, dtype=np.uint8).tobytes()


def zero(raw: bytearray, rng: np.random.Generator) -> None:
    where = stretch(raw, rng)
    raw[where] = bytes(where.stop - where.start)


def remove(raw: bytearray, rng: np.random.Generator) -> None:
    del raw[stretch(raw, rng)]


def double(raw: bytearray, rng: np.random.Generator) -> None:
    where = stretch(raw, rng)
    raw[where.start : where.start] = raw[where]


def resize_box(raw: bytearray, rng: np.random.Generator) -> None:
    marks = [mark for mark in MARKS if mark in raw]
    mark = marks[int(rng.integers(len(marks)))]
    at, size = raw.index(mark), int(rng.integers(1 << int(rng.integers(4, 32))))
    if not mark.isalnum():  # Matroska: the size follows the name
        raw[at + len(mark)] ^= int(rng.integers(1, 128))
    elif raw[:4] == b"RIFF":
        raw[at + 4 : at + 8] = size.to_bytes(4, "little")
    else:
        raw[at - 4 : at] = size.to_bytes(4, "big")


def change_header(raw: bytearray, rng: np.random.Generator) -> None:
    index = raw.find(b"moov")
    at = index + int(rng.integers(900)) if index >= 0 else int(rng.integers(600))
    raw[min(at, len(raw) - 1)] = int(rng.integers(256))


DAMAGE: dict[str, Damage] = {
    "one bit flipped": flip, "20 bits flipped": flip_many, "cut off": cut_off, "bytes overwritten": overwrite,
    "bytes zeroed": zero, "bytes removed": remove, "bytes doubled": double, "a box's size changed": resize_box,
    "a byte of the header changed": change_header,
}  # fmt: skip
OUTCOMES = ("rejected", "part rejected", "right", "warned", "wrong pixels", "wrong frame", "crashed", "hung")
"""`right`: every segment that came has the frames of the undamaged file. `warned`: other frames, with a warning in the
rejects (uneven rate, late start). `wrong pixels` and `wrong frame`: silently wrong. `crashed` and `hung`: the child."""


@dataclass(frozen=True)
class Mutant:
    """A damaged file."""

    path: Path
    source: str
    damage: str


@dataclass(frozen=True)
class Read:
    """What became of a damaged file."""

    mutant: Mutant
    outcome: str
    detail: str


def make(folder: Path, n_files: int, seed: int) -> tuple[list[Mutant], dict[str, Pixels]]:
    """Write the damaged files; returns them, and the frames (N, size, size, 3) of what they were made from."""
    whole, clean = {}, {}
    for name, how in SOURCES.items():
        path = write_video(folder / name, N, keyframe=50, **{"b_frames": 2, **how})  # type: ignore[arg-type]
        whole[name], clean[name] = path.read_bytes(), frames(str(path), np.arange(N) / FPS, SIZE_PX, "pyav").frames
    mutants = []
    for number in range(n_files):
        source = list(SOURCES)[number % len(SOURCES)]
        damage = list(DAMAGE)[number // len(SOURCES) % len(DAMAGE)]
        raw = bytearray(whole[source])
        DAMAGE[damage](raw, np.random.default_rng((seed, number)))
        path = folder / f"{number}{Path(source).suffix}"
        path.write_bytes(raw)
        mutants.append(Mutant(path, source, damage))
    return mutants, clean


def read(mutants: Sequence[Mutant], clean: dict[str, Pixels], command: Sequence[str] = COMMAND) -> list[Read]:
    """Probe every file and decode its segments, and say what came of each."""
    probes = probe_many([str(mutant.path) for mutant in mutants], 2, TIMEOUT_S)
    accepted = [at for at, found in enumerate(probes) if isinstance(found, VideoProbe)]
    jobs = [_job(mutants[at], probes[at]) for at in accepted]  # type: ignore[arg-type]
    events: dict[int, list[Event]] = {at: [] for at in accepted}
    for event in run_jobs(jobs, workers=2, timeout_s=TIMEOUT_S, ahead=8, command=command):
        events[accepted[event.job]].append(event)
    reads = []
    for at, (mutant, found) in enumerate(zip(mutants, probes, strict=True)):
        if isinstance(found, VideoError):
            reads.append(Read(mutant, _ended(str(found)) or "rejected", f"{found.code}: {found}"))
        else:
            times_s = np.array(jobs[accepted.index(at)]["times_s"])
            reads.append(_judged(mutant, found, events[at], times_s, clean[mutant.source]))
    return reads


def _job(mutant: Mutant, found: VideoProbe) -> dict[str, object]:
    inside = [(start_s, min(end_s, found.duration_s)) for start_s, end_s in SEGMENTS if start_s < found.duration_s]
    times = [frame_times_s(start_s, end_s, found.fps, 16).tolist() for start_s, end_s in inside]
    return {"kind": "clips", "path": str(mutant.path), "times_s": times, "size_px": SIZE_PX, "backend": "pyav"}


def _ended(detail: str) -> str | None:
    """Return how a child ended, where the message says that it did."""
    return "hung" if "was silent for" in detail else "crashed" if "decoder process died" in detail else None


def _judged(
    mutant: Mutant, found: VideoProbe, events: list[Event], times_s: NDArray[np.float64], clean: Pixels
) -> Read:
    """Compare every frame that came with the undamaged file's frame of that time."""
    n_other, n_pixels, lost = 0, 0, [event.values["detail"] for event in events if "detail" in event.values]
    for event in events:
        if event.frames is not None:
            for time_s, image in zip(times_s[event.values["segment"]], event.frames, strict=True):
                if not any(np.array_equal(image, clean[at]) for at in meant(time_s)):
                    is_other = any(np.array_equal(image, other) for other in clean)
                    n_other, n_pixels = n_other + is_other, n_pixels + (not is_other)
    is_warned = found.is_vfr or found.start_s > LATE_START_S
    wrong = "warned" if is_warned else "wrong frame" if n_other else "wrong pixels"
    ended = [how for detail in lost if (how := _ended(detail))]
    outcome = ended[0] if ended else wrong if n_other + n_pixels else "part rejected" if lost else "right"
    detail = f"{n_other} other frames, {n_pixels} with other pixels, {len(lost)} segments rejected; {found}"
    return Read(mutant, outcome, detail)


def meant(time_s: float) -> list[int]:
    """Return the frames that a time may mean: the nearest, both where it lies in the middle."""
    return [at for at in range(N) if abs(at / FPS - time_s) <= 0.51 / FPS]


def table(reads: Sequence[Read]) -> str:
    """Return counts by damage and outcome as a Markdown table."""
    counts = Counter((one.mutant.damage, one.outcome) for one in reads)
    lines = [f"| damage | {' | '.join(OUTCOMES)} |", "|---" * (1 + len(OUTCOMES)) + "|"]
    for damage in DAMAGE:
        lines.append(f"| {damage} | {' | '.join(str(counts[damage, outcome]) for outcome in OUTCOMES)} |")
    total = Counter(one.outcome for one in reads)
    return "\n".join([*lines, f"| all {len(reads)} | {' | '.join(str(total[outcome]) for outcome in OUTCOMES)} |"])


def main() -> None:
    """Print the table and every file that is silently wrong; ends with 1 where a decoder crashed or hung."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--files", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stdout)
    with tempfile.TemporaryDirectory() as folder:
        mutants, clean = make(Path(folder), asked.files, asked.seed)
        began = time.monotonic()
        reads = read(mutants, clean)
        log.info("%s\n\n%.0f s", table(reads), time.monotonic() - began)
    for one in reads:
        if one.outcome not in ("rejected", "part rejected", "right"):
            which = one.mutant
            log.info("%s, %s, %s: %s: %s", which.path.name, which.source, which.damage, one.outcome, one.detail)
    sys.exit(any(one.outcome in ("crashed", "hung") for one in reads))


if __name__ == "__main__":
    main()
