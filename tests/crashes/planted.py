"""Faults of the kind that the checks are there for; each must turn the soak red."""

import os
from collections.abc import Callable
from typing import Any

VARIABLE = "TRAJPILOT_TEST_PLANTED"


def direct_write() -> None:
    """A file is written in its place, not next to it."""
    from trajpilot_core.store.files import LocalFolder

    def replace(self: LocalFolder, path: str, content: bytes) -> None:
        target = self.local(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(handle, content)
        os.fsync(handle)
        os.close(handle)

    LocalFolder.replace = replace


def no_fsync() -> None:
    """A file is renamed before the disk has it."""
    from trajpilot_core.store import files

    class Without:
        fsync = staticmethod(lambda handle: None)

        def __getattr__(self, name: str) -> Any:
            return getattr(os, name)

    files.os = Without()


def record_first() -> None:
    """A shard's record is written before its table."""
    from trajpilot_core.store.files import LocalFolder

    waiting: list[tuple[LocalFolder, str, bytes]] = []
    real = LocalFolder.replace

    def replace(self: LocalFolder, path: str, content: bytes) -> None:
        if "/shards/" in path and path.endswith(".parquet"):
            waiting.append((self, path, content))
            return
        real(self, path, content)
        if path.endswith("/record.json"):
            for folder, held, table in waiting:
                real(folder, held, table)
            waiting.clear()

    LocalFolder.replace = replace


def pointer_first() -> None:
    """The pointer is moved before the manifest that it names is there."""
    from trajpilot_core.engine.execution import execute
    from trajpilot_core.store import manifest

    real = manifest.commit_manifest

    def commit_manifest(folder: Any, made: Any, run_record: Any, *, replace: bool) -> Any:
        manifest.point_to(folder, made.stage, made.key)
        return real(folder, made, run_record, replace=replace)

    execute.commit_manifest = commit_manifest


def no_resume() -> None:
    """A training does not go on from its checkpoint."""
    from trajpilot_core.training import loop

    loop.load_checkpoint = lambda *_: None


def other_chance() -> None:
    """A training goes on, but not with the random numbers that it would have drawn."""
    import torch

    torch.set_rng_state = lambda state: None


def no_reuse() -> None:
    """Finished shards are made again."""
    from trajpilot_core.engine.execution import execute

    execute.finished_shards = lambda work, folder: {}


def orphans() -> None:
    """The trainings of a killed run go on."""
    from trajpilot_core import runtime

    runtime.end_with_parent = lambda: None


FAULTS = (*(direct_write, no_fsync, record_first, pointer_first, no_resume), *(other_chance, no_reuse, orphans))
PLANTS: dict[str, Callable[[], None]] = {fault.__name__: fault for fault in FAULTS}


def plant() -> None:
    name = os.environ.get(VARIABLE)
    if name:
        PLANTS[name]()
