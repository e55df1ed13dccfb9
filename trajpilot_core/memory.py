"""Work on a device whose memory may run out: in parts that are halved until they fit."""

import logging
from collections.abc import Callable
from typing import TypeVar

import torch

from trajpilot_core.errors import InputError

T = TypeVar("T")
SAID = ("CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED", "CUDA error: out of memory", "DefaultCPUAllocator")
"""What errors of other types say where a library or a CPU found no memory."""
DEVICE_SHARE = 0.5
"""Share of the free memory of a device that what is read again and again may take; the rest is for the work."""
log = logging.getLogger("trajpilot")


def is_out_of_memory(error: RuntimeError) -> bool:
    """Return whether an error of torch means that the device has no memory left."""
    return isinstance(error, torch.OutOfMemoryError) or any(text in str(error) for text in SAID)


def in_parts(
    n_rows: int,
    most: int,
    work: Callable[[slice], T],
    too_large: str,
    advice: str,
    halved: Callable[[int], None] | None = None,
) -> list[T]:
    """Work through rows in parts; where a part does not fit into memory, it and all later ones have half as many rows.

    Parts that are done stay done. The results must not depend on how the rows are cut.

    Args:
        n_rows: rows in all.
        most: rows of a part, before any is halved.
        work: does the rows of a slice, in order.
        too_large: says that one row does not fit; the error's text comes after it.
        advice: what to do then.
        halved: called with the new `most` after each halving, by work that fills its parts up to `most`; None: a part
            needs memory for its own rows only, and a line of the log says that it was halved.

    Returns:
        What `work` returned, in order of the rows.

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
            raise InputError(f"{too_large}: {result}; {advice}")
        most = size // 2
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.empty_cache()
        if halved is None:
            log.warning("out of memory; going on with %d rows at once", most)
        else:
            halved(most)
    return done


def _attempt(work: Callable[[slice], T], rows: slice) -> tuple[T] | str:
    """Return the result in a tuple, or why there was no memory for it.

    When this function is left the error is gone, and with it its traceback, which holds the tensors of the failed part.
    """
    try:
        return (work(rows),)
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
        return str(error)


def fits(bytes_needed: int, bytes_free: int) -> bool:
    """Return whether data of that size leave a device enough free memory to work with them."""
    return bytes_needed <= DEVICE_SHARE * bytes_free


def free_bytes(device: str) -> int:
    """Return the free memory of a device; 0 for a CPU, whose memory mapped files do not need."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.startswith("cuda") else 0
