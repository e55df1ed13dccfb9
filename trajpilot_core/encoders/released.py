"""Files of released features -> one vector a segment. No encoder runs, no code of a file runs.

Axes: N rows of a file, D numbers of a row.
"""

import io
import zipfile
import zlib
from pickle import UnpicklingError
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.rejects import RejectCode
from trajpilot_core.arrays import Array
from trajpilot_core.corpora.released import NPZ_KEY, ReleasedFeatures
from trajpilot_core.errors import TakeFault

LONGEST_FAULT = 160
"""Characters of torch's own words that are passed on."""
LARGEST = 1 << 30
"""Bytes that an array of a compressed file may have: 30 hours of rows 2,304 wide."""
REFUSED = (
    UnpicklingError,
    RuntimeError,
    EOFError,
    ValueError,
    KeyError,
    OSError,
    TypeError,
    zipfile.BadZipFile,
    zlib.error,
    NotImplementedError,
)
"""What torch, numpy and zipfile raise on files that are none of theirs."""


class SegmentRows(NamedTuple):
    """What of a file stands for a segment."""

    vector: NDArray[np.float32]
    """(D,)."""
    spans_s: Array
    """(R, 2) windows of the rows that were averaged, seconds."""
    overhang_s: float
    """Seconds of these windows that lie outside the segment; 0 where they lie inside."""


def read_rows(content: bytes, path: str, width: int) -> NDArray[np.float32]:
    """Return the (N, D) rows of a file; (N, 1, D), which the extractor writes at batch 1, is the same.

    Args:
        content: of a file that `torch.save` wrote, or of a `.npy` or `.npz` file; no code of any is run.
        width: D, as the set has it.

    Raises TakeFault: the file is damaged, holds more than one tensor of floats, or rows of another width.
    """
    try:
        loaded = _loaded(content, path)
    except REFUSED as error:
        said = str(error).splitlines()[0][:LONGEST_FAULT] if str(error) else type(error).__name__
        raise malformed(f"refused: {said}", path) from error
    if not isinstance(loaded, torch.Tensor):
        raise malformed(f"holds a {type(loaded).__name__}, expected one tensor", path)
    if loaded.layout != torch.strided or not loaded.is_floating_point():
        raise malformed(f"holds {loaded.layout} of {loaded.dtype}, expected dense floats", path)
    shape = tuple(loaded.shape)
    if len(shape) == 3 and shape[1] == 1:
        loaded = loaded[:, 0]
    if loaded.ndim != 2 or not len(loaded) or loaded.shape[1] != width:
        raise malformed(f"has the shape {shape}, expected (N, {width}) or (N, 1, {width})", path)
    return np.asarray(loaded.float().numpy(), np.float32)


def _loaded(content: bytes, path: str) -> object:
    """Return what a file holds: weights_only and allow_pickle=False run no code of it."""
    if not path.endswith((".npy", ".npz")):
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    found = _zipped(content) if path.endswith(".npz") else np.load(io.BytesIO(content), allow_pickle=False)
    if not isinstance(found, np.ndarray) or found.dtype.kind != "f":
        raise ValueError(f"holds {getattr(found, 'dtype', type(found).__name__)}, expected an array of floats")
    return torch.from_numpy(np.ascontiguousarray(found, found.dtype.newbyteorder("=")))


def _zipped(content: bytes) -> object:
    """Return the array of a `.npz` file; one that would fill the memory is refused before it is unpacked."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        held = {one.filename: one.file_size for one in archive.infolist()}
        size = held.get(f"{NPZ_KEY}.npy")
        if size is None or size > LARGEST:
            names = ", ".join(sorted(held)[:5]) or "nothing"
            raise ValueError(f"holds {names} of {size} bytes, expected {NPZ_KEY}.npy of at most {LARGEST:,}")
        return np.lib.format.read_array(io.BytesIO(archive.read(f"{NPZ_KEY}.npy")), allow_pickle=False)


def malformed(detail: str, path: str) -> TakeFault:
    """Return the fault of a file that is not what it should be."""
    return TakeFault(RejectCode.FEATURES_MALFORMED, f"{path} {detail}", path)


def refuse_length(n_rows: int, duration_s: float, most_s: float, released: ReleasedFeatures, path: str) -> None:
    """Refuse a file whose rows cannot be those of a video of this length. Raises TakeFault: they differ by more."""
    n_frames = released.clock.n_frames(duration_s)
    off_s = released.clock.off_s(n_rows, n_frames)
    if abs(off_s) > most_s:
        raise TakeFault(
            RejectCode.FEATURES_LENGTH,
            f"{path} has {n_rows} rows, a video of {duration_s:.2f} s has {released.clock.n_rows(n_frames)}: "
            f"{off_s:+.2f} s, allowed are {most_s:g} s (features.released_off_s)",
            path,
        )


def segment_tokens(
    rows_ND: NDArray[np.float32], spans_s: Array, start_s: float, end_s: float, tokens: int
) -> SegmentRows | None:
    """Return the row that is nearest to the middle of each of equal parts of a segment, of those inside it.

    None where no row lies inside: tokens are for what comes after a segment, and a row that overhangs would show it.

    Args:
        spans_s: (N, 2) their windows, seconds.
        tokens: T; the vector then has T x D numbers, in the order of time.
    """
    inside = np.flatnonzero((spans_s[:, 0] >= start_s) & (spans_s[:, 1] <= end_s))
    if not len(inside):
        return None
    middles = start_s + (np.arange(tokens) + 0.5) / tokens * (end_s - start_s)
    nearest = inside[np.abs(spans_s[inside].mean(axis=1) - middles[:, None]).argmin(axis=1)]
    return SegmentRows(rows_ND[nearest].ravel(), spans_s[nearest], 0.0)


def segment_rows(rows_ND: NDArray[np.float32], spans_s: Array, start_s: float, end_s: float) -> SegmentRows:
    """Return the mean of the rows whose window lies inside a segment; else the row whose centre is nearest to its own.

    Args:
        spans_s: (N, 2) their windows, seconds.
    """
    inside = np.flatnonzero((spans_s[:, 0] >= start_s) & (spans_s[:, 1] <= end_s))
    if not len(inside):
        inside = np.abs(spans_s.mean(axis=1) - (start_s + end_s) / 2).argmin(keepdims=True)
    used = spans_s[inside]
    outside = np.maximum(start_s - used[:, 0], 0) + np.maximum(used[:, 1] - end_s, 0)
    vector = rows_ND[inside].mean(axis=0, dtype=np.float64).astype(np.float32)
    return SegmentRows(vector, used, float(outside.max()))
