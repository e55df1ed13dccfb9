"""Files of released features -> one vector per segment. Neither an encoder nor code from a file is run.

Axes: N rows of a file, D numbers of a row.
"""

import io
import zipfile
import zlib
from pickle import UnpicklingError

import numpy as np
import torch
from numpy.typing import NDArray

from schemas.rejects import RejectCode
from trajpilot_core.arrays import Array
from trajpilot_core.corpora.released import NPZ_KEY, ReleasedFeatures
from trajpilot_core.encoders.video.base import SegmentVector
from trajpilot_core.errors import TakeFault

LARGEST = 1 << 30
"""Most bytes of an array in a compressed file: 30 hours of rows 2,304 wide."""
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
"""Errors of torch, numpy and zipfile for files in another format."""


def read_rows(content: bytes, path: str, width: int) -> NDArray[np.float32]:
    """Return the (N, D) rows of a file by `torch.save`, or of a `.npz` file; no code in it is run.

    Also accepts (N, 1, D), which the extractor writes at batch 1; `width` is D, `path` is for messages.

    Raises TakeFault: the file is damaged, is not one tensor of floats, or has rows of another width.
    """
    try:
        loaded = _loaded(content, path)
    except REFUSED as error:
        message = str(error).splitlines()[0][:160] if str(error) else type(error).__name__
        raise malformed(f"refused: {message}", path) from error
    if not isinstance(loaded, torch.Tensor):
        raise malformed(f"contains a {type(loaded).__name__}, expected one tensor", path)
    if loaded.layout != torch.strided or not loaded.is_floating_point():
        raise malformed(f"contains {loaded.layout} of {loaded.dtype}, expected dense floats", path)
    shape = tuple(loaded.shape)
    if len(shape) == 3 and shape[1] == 1:
        loaded = loaded[:, 0]
    if loaded.ndim != 2 or not len(loaded) or loaded.shape[1] != width:
        raise malformed(f"has the shape {shape}, expected (N, {width}) or (N, 1, {width})", path)
    return np.asarray(loaded.float().numpy(), np.float32)


def _loaded(content: bytes, path: str) -> object:
    """Return the content of a file: with weights_only and allow_pickle=False none of its code is run."""
    if not path.endswith(".npz"):
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        sizes = {member.filename: member.file_size for member in archive.infolist()}
        size = sizes.get(f"{NPZ_KEY}.npy")
        if size is None or size > LARGEST:  # before it is unpacked
            names = ", ".join(sorted(sizes)[:5]) or "nothing"
            raise ValueError(f"contains {names} of {size} bytes, expected {NPZ_KEY}.npy of at most {LARGEST:,}")
        content = archive.read(f"{NPZ_KEY}.npy")
    array = np.load(io.BytesIO(content), allow_pickle=False)
    if not isinstance(array, np.ndarray) or array.dtype.kind != "f":
        raise ValueError(f"contains {getattr(array, 'dtype', type(array).__name__)}, expected an array of floats")
    return torch.from_numpy(np.ascontiguousarray(array, array.dtype.newbyteorder("=")))


def malformed(detail: str, path: str) -> TakeFault:
    """Return the fault of a malformed file."""
    return TakeFault(RejectCode.FEATURES_MALFORMED, f"{path} {detail}", path)


def refuse_length(n_rows: int, duration_s: float, most_s: float, released: ReleasedFeatures, path: str) -> None:
    """Refuse a file whose rows do not match the video's length. Raises TakeFault: they differ by more than `most_s`."""
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
) -> SegmentVector | None:
    """Return, for each of `tokens` equal parts of a segment, the row inside the segment that is nearest to its middle.

    None if no row is inside: tokens predict what comes after a segment, which a row beyond its end would reveal.
    `spans_s` (N, 2) are the windows of the rows, seconds. The vector has tokens x D numbers, in the order of time.
    """
    inside = np.flatnonzero((spans_s[:, 0] >= start_s) & (spans_s[:, 1] <= end_s))
    if not len(inside):
        return None
    middles = start_s + (np.arange(tokens) + 0.5) / tokens * (end_s - start_s)
    nearest = inside[np.abs(spans_s[inside].mean(axis=1) - middles[:, None]).argmin(axis=1)]
    return SegmentVector(rows_ND[nearest].ravel(), spans_s[nearest])


def segment_rows(rows_ND: NDArray[np.float32], spans_s: Array, start_s: float, end_s: float) -> SegmentVector:
    """Return the mean of the rows whose window, in `spans_s` (N, 2), seconds, is inside a segment; if there are none,
    the row with the nearest centre."""
    inside = np.flatnonzero((spans_s[:, 0] >= start_s) & (spans_s[:, 1] <= end_s))
    if not len(inside):
        inside = np.abs(spans_s.mean(axis=1) - (start_s + end_s) / 2).argmin(keepdims=True)
    vector = rows_ND[inside].mean(axis=0, dtype=np.float64).astype(np.float32)
    return SegmentVector(vector, spans_s[inside])
