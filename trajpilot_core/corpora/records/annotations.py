"""Annotations of one take -> half-open intervals inside its video and the runs that no window crosses; their texts ->
normalised labels -> paraphrase groups -> the table of answers.

Source: paper, appendix on preprocessing (moments: midpoints to the neighbouring descriptions; annotated segments:
around their middle, not beyond their ends); what it leaves open (first and last interval, cap, video's end; which texts
are the same answer) is decided in docs/decisions/ingest.md.
"""

import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from schemas.annotation import Label, Split
from schemas.config import IngestConfig
from trajpilot_core.arrays import Array, Mask
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import BOM, decode_text

ROUNDING = 1e-9
"""Shares and lengths this close to a limit count as on it."""
SUBJECTS = "the camera wearer, a camera wearer, camera wearer, the person, a person, person, the wearer, c"
SUBJECT_PHRASES = tuple(SUBJECTS.split(", "))
"""Names of the wearer at the start of a description; `c` is that of Ego-Exo4D."""
APOSTROPHES = "'’ʼ`´"
UNSURE_TAG = re.compile(r"#\s*unsure\b|<\s*unsure\b")
TAG = re.compile(rf"{UNSURE_TAG.pattern}\s*>?|#[a-z]\w*|<\s*/?\s*[a-z]\w*\s*/?\s*>")
"""Tags that narrators put into a text, in lower case: `#C`, `#unsure`, `<unsure>`."""
COLUMNS = ["text", "label_id"]


class CutIntervals(NamedTuple):
    """(N,) intervals in seconds and the fate of each; a lost interval keeps its numbers."""

    start_s: Array
    end_s: Array
    is_outside: Mask
    """Lost: the time point, or too much of the interval, is outside the video."""
    is_empty: Mask
    """Lost: no length, or less than `min_segment_s`."""
    is_clipped: Mask
    """Kept, but cut at the video's end."""


def midpoint_intervals(anchor_s: Array, duration_s: float, cap_s: float | None) -> tuple[Array, Array]:
    """Return starts and ends, of shape (N,) each: midpoints to the neighbours, at most `cap_s` either side.

    The first and the last interval mirror their inner half, so they may leave the video. A single point reaches
    `cap_s` either side, or over the whole video where there is no cap.

    Args:
        anchor_s: (N,) time points in seconds, not falling; equal ones get intervals that only touch.
        cap_s: longest reach, None for no cap.
    """
    if len(anchor_s) == 0:
        return anchor_s.copy(), anchor_s.copy()
    reach = np.inf if cap_s is None else cap_s
    if len(anchor_s) == 1:
        return np.maximum(anchor_s - reach, 0.0), np.minimum(anchor_s + reach, max(duration_s, float(anchor_s[0])))
    half = np.diff(anchor_s) / 2
    before, after = np.concatenate([half[:1], half]), np.concatenate([half, half[-1:]])
    middle = anchor_s[:-1] + half
    start_s, end_s = anchor_s - np.minimum(before, reach), anchor_s + np.minimum(after, reach)
    start_s[1:] = np.where(half < reach, middle, start_s[1:])  # neighbours share the very same number
    end_s[:-1] = np.where(half < reach, middle, end_s[:-1])
    return start_s, end_s


def span_intervals(annotated_s: Array, cap_s: float | None) -> tuple[Array, Array]:
    """Return (N,) starts and ends: around the middle of each annotated segment, at most `cap_s` either side.

    They never leave the annotated segment, so a segment without length, or that ends before it starts, stays one.
    Overlapping segments give intervals that may overlap.

    Args:
        annotated_s: (N, 2) annotated starts and ends in seconds.
        cap_s: longest reach, None for the whole segment.
    """
    start_s, end_s = annotated_s[:, 0], annotated_s[:, 1]
    if cap_s is None:
        return start_s.copy(), end_s.copy()
    middle_s = start_s + (end_s - start_s) / 2
    is_long = end_s - start_s > 2 * cap_s
    return np.where(is_long, middle_s - cap_s, start_s), np.where(is_long, middle_s + cap_s, end_s)


def fit_to_video(
    anchor_s: Array, start_s: Array, end_s: Array, duration_s: float, config: IngestConfig
) -> CutIntervals:
    """Cut intervals, arrays of shape (N,), to the video, keep their central share, and mark those that are lost.

    The part before the video's start is cut silently: it is only ever a mirrored half. An interval is outside
    when its time point is, or when less than `min_overlap` of it is inside.
    """
    is_turned = end_s < start_s
    length_s = end_s - start_s
    inside_s = np.minimum(end_s, duration_s) - np.maximum(start_s, 0.0)
    is_outside = (anchor_s > duration_s) | ~is_turned & (inside_s < config.min_overlap * length_s - ROUNDING)
    is_clipped = end_s > duration_s + ROUNDING
    start_s, end_s = np.clip(start_s, 0.0, duration_s), np.clip(end_s, 0.0, duration_s)
    if config.central_share < 1:
        cut_s = (end_s - start_s) * (1 - config.central_share) / 2
        start_s, end_s = start_s + cut_s, end_s - cut_s
    length_s = end_s - start_s
    is_empty = ~is_outside & (is_turned | (length_s <= 0) | (length_s < config.min_segment_s - ROUNDING))
    return CutIntervals(start_s, end_s, is_outside, is_empty, is_clipped & ~is_outside & ~is_empty)


def run_numbers(is_kept: Mask, begins_group: Mask | None = None) -> NDArray[np.int64]:
    """Return the run of each kept segment, shape (K,), from 0: it rises by one after a lost segment.

    Both masks have shape (N,), segments of one take in order of time; where a group begins, a run begins too.
    """
    breaks = ~is_kept if begins_group is None else ~is_kept + begins_group.astype(np.int64)
    return np.unique(np.cumsum(breaks)[is_kept], return_inverse=True)[1].astype(np.int64)


class _Characters(dict[int, str]):
    """Map for str.translate: letters, digits and marks stay, apostrophes go, all else becomes a space."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        keeps = unicodedata.category(character)[0] in "LNM"
        self[code] = "" if character in APOSTROPHES else character if keeps else " "
        return self[code]


_CHARACTERS = _Characters()


def normalise(text: str, subjects: Sequence[str] = SUBJECT_PHRASES) -> str:
    """Return the label of a description: NFKC, lower case, no tags, no punctuation, single spaces, no leading subject.

    Subjects are in normal form and dropped repeatedly. Idempotent: the label of a label is the label itself. Empty
    where nothing is left.
    """
    before = None
    while text != before:
        before = text
        words = " ".join(TAG.sub(" ", _folded(text)).translate(_CHARACTERS).split())
        spoken = next((s for s in subjects if words == s or words.startswith(f"{s} ")), "")
        text = words[len(spoken) + 1 :] if spoken else words
    return text


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


def is_tagged_unsure(text: str) -> bool:
    """Return whether a description carries a tag like `#unsure` or `<unsure>`."""
    return UNSURE_TAG.search(_folded(text)) is not None


def read_paraphrases(content: bytes, where: str) -> dict[str, str]:
    """Read a table of paraphrases, CSV with the columns text and label_id; return normalised text -> label id.

    Raises InputError: not UTF-8, no such columns, an empty cell, or one text in two groups.
    """
    text = decode_text(content.removeprefix(BOM), where)
    try:
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if rows.fieldnames is None or not set(COLUMNS) <= set(rows.fieldnames):
            raise InputError(f"{where} has the columns {rows.fieldnames}, expected {', '.join(COLUMNS)}")
        groups: dict[str, str] = {}
        for row in rows:
            text, label_id = normalise(row["text"] or ""), (row["label_id"] or "").strip()
            line = f"{where}, line {rows.line_num}"
            if not text or not label_id:
                raise InputError(f"{line}: text or label_id is empty ({row}); fill it or delete the line")
            if groups.setdefault(text, label_id) != label_id:
                raise InputError(f"{line}: {text!r} is in the groups {groups[text]!r} and {label_id!r}; keep one")
    except csv.Error as error:
        raise InputError(f"{where} is no CSV: {error}; quote texts that contain commas") from error
    return groups


def label_rows(texts: Iterable[tuple[str, str, Split]]) -> list[Label]:
    """Return one row per label id, in order of id.

    The label is the text that is most frequent in training (ties: first in order), else the first in order.
    """
    groups: dict[str, Counter[tuple[str, Split]]] = defaultdict(Counter)
    for label_id, text, split in texts:
        groups[label_id][text, split] += 1
    labels = []
    for label_id, counts in sorted(groups.items()):
        paraphrases = sorted({text for text, _ in counts})
        label = min(paraphrases, key=lambda text: (-counts[text, "train"], text))
        n_of = {f"n_{part}": sum(n for (_, split), n in counts.items() if split == part) for part in get_args(Split)}
        labels.append(Label(label_id=label_id, label=label, paraphrases=tuple(paraphrases), **n_of))
    return labels
