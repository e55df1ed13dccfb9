"""Whether a stage may begin on this machine: it states what it needs at the size at hand, before it computes."""

import ctypes
import logging
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.capacity import free_memory
from trajpilot_core.engine.execution.scratch import scratch_folder
from trajpilot_core.engine.key import KeyedStage
from trajpilot_core.engine.needs import (
    WORTH_SAYING,
    MachineFree,
    Needs,
    NeedsMachine,
    needs_fit,
    needs_text,
    require_needs,
)
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.sizes import sizes_of
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import ARTIFACTS

BLOCK_BYTES = 512
"""Unit in which a file system counts what a file has."""
log = logging.getLogger("trajpilot")


def admitted(work: KeyedStage, folder: Folder, config: PipelineConfig, run: RunOptions) -> RunOptions:
    """Check that a stage that is about to compute has what it needs, and return the options under which it fits.

    Where several processes at a time need more memory than is free, fewer are used.

    Args:
        work: the stage.
        folder: the root.
        config: all settings of the run.
        run: where and how.

    Raises:
        InputError: it does not fit; says what it needs, what is there, and what to change.
    """
    stage, own = work.resolved.stage, work.resolved.config
    stated = stage.needs
    if stated is None or run.ignore_needs:
        return run
    sizes = replace(sizes_of(folder, work.resolved.inputs.entries, config), data_root=run.data_root)
    device = resolve_device(run.device) if stage.on_gpu(own) else "cpu"

    def with_workers(workers: int) -> Needs:
        return stated(sizes, own, NeedsMachine(device, workers))

    release_heap()
    keys = (work.key, *work.shard_keys.values()) if stage.conclude is not None else (work.key,)
    left = [scratch_folder(run, f"{stage.name}-{key[:16]}") for key in keys]
    free = machine_free(folder, run, device, left)
    workers = needs_fit(with_workers, run.workers, free)
    needs = with_workers(workers)
    require_needs(stage.name, needs, free)
    if workers < run.workers:
        more = with_workers(run.workers).host.bytes / 1e9
        log.warning("%-13s %d at a time, not %d, which need %.1f GB", stage.name, workers, run.workers, more)
    if needs.largest >= WORTH_SAYING:
        log.info("%-13s needs at most %s", stage.name, needs_text(needs))
    return run.replace(workers=workers)


def release_heap() -> None:
    """Give freed memory of this process back to the system: stages before may have left gigabytes of it in heaps."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc
    if trim is not None:
        trim(0)


def machine_free(folder: Folder, run: RunOptions, device: str = "cpu", left: Sequence[Path] = ()) -> MachineFree:
    """Return what is free on this machine for a stage.

    Args:
        folder: the root.
        run: where.
        device: resolved; on a CPU no GPU is asked.
        left: the stage's folders of scratch; what an interrupted run has left there counts as free.
    """
    root = folder.local(ARTIFACTS)
    return MachineFree(
        host=free_memory(),
        device=_free_on_gpu(device) if device.startswith("cuda") else None,
        disk=None if root is None else _free_on_disk(root) + sum(map(allocated, left)),
        scratch=None if root is not None else _free_on_disk(Path(tempfile.gettempdir())),
    )


def _free_on_gpu(device: str) -> int:
    """Return what is free there; what torch keeps for later tensors of this process counts as free."""
    import torch

    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0]) + kept


def _free_on_disk(path: Path) -> int:
    existing = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    return shutil.disk_usage(existing).free


def allocated(folder: Path) -> int:
    """Return the bytes that the files below a folder have on disk; 0 where it is not there."""
    return sum(path.lstat().st_blocks * BLOCK_BYTES for path in folder.rglob("*")) if folder.is_dir() else 0
