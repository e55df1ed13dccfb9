"""Work in parts that are halved until they fit into the memory of the device."""

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from trajpilot_core.errors import InputError

T = TypeVar("T")
SAID = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory", "DefaultCPUAllocator")
"""Texts of out-of-memory errors of other types."""
DEVICE_SHARE = 0.5
"""Share of the free memory of a device for data that stays on it; the rest is for the work."""
log = logging.getLogger("trajpilot")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error of torch means that the device has no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in SAID)


def in_parts(
    n_rows: int, most: int, work: Callable[[slice], T], halved: Callable[[int], None] | None = None
) -> list[T]:
    """Process rows in parts; where a part does not fit into memory, it and all later ones have half as many rows.

    Finished parts are kept, and the results returned in order of the rows. They must not depend on how the rows are
    divided.

    Args:
        n_rows: number of rows.
        most: rows of a part before any is halved.
        work: processes the rows of a slice, in order.
        halved: called with the new `most` after each halving, by work that fills its parts up to `most`; None: a part
            needs memory for its own rows only, and the log reports that it was halved.

    Raises:
        InputError: a single row does not fit.
    """
    done: list[T] = []
    at = 0
    while at < n_rows:
        rows = slice(at, min(at + most, n_rows))
        result = _attempt(work, rows)
        if not isinstance(result, str):
            done.append(result[0])
            at = rows.stop
            continue
        size = rows.stop - at if halved is None else most
        if size == 1:
            raise InputError(
                f"a single row does not fit into memory: {result}; choose another device, or lower the sizes of this "
                "stage, such as scorer.candidates or latent.search.samples, or the model of the features"
            )
        most = size // 2
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()
        if halved is None:
            log.warning("out of memory; continuing with %d rows at once", most)
        else:
            halved(most)
    return done


def _attempt(work: Callable[[slice], T], rows: slice) -> tuple[T] | str:
    """Return the result in a tuple, or the text of an out-of-memory error.

    The error must not leave this function: its traceback refers to the tensors of the failed part.
    """
    try:
        return (work(rows),)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return str(error)


def fits(bytes_needed: int, bytes_free: int) -> bool:
    """Return whether data of that size leave enough free memory to work with them."""
    return bytes_needed <= DEVICE_SHARE * bytes_free


def free_bytes(device: str) -> int:
    """Return the free memory of a device; 0 for a CPU, whose memory mapped files do not need."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.startswith("cuda") else 0
