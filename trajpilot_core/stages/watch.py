"""Whether the data root has changed since the pipeline ran, told once, and only when it has come to rest."""

import json
from collections.abc import Mapping

from pydantic import JsonValue

from schemas.base import canonical_json, fingerprint
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.stages.plan import plan
from trajpilot_core.stages.stage import Stage
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.locations import parse_location

NOTE = "watch.json"
"""Below the root: what the last look saw, and what was told last."""


def noticed(stages: Mapping[str, Stage], config: PipelineConfig, run: RunOptions) -> tuple[str, ...]:
    """Look once; return what is stale and why, when this look saw the same as the last one and it was not told yet.

    Two equal looks mean that no download is under way. A pipeline that cannot mend what is stale (a broken take) is
    not started again and again, because the same finding is told once.

    Raises:
        StoreError: the root cannot be read or written.
    """
    folder = open_folder(run.root, run.protocols)
    rows = [row for row in plan(stages, config, run) if row.state in ("stale", "missing")]
    found = tuple(f"{row.stage}: {row.why}" for row in rows)
    seen, told = last_look(folder)
    digest = fingerprint([*found, *(listing(run) if found else ())])
    news = bool(found) and digest == seen and digest != told
    note: dict[str, JsonValue] = {"seen": digest, "told": digest if news else told if found else None}
    folder.replace(NOTE, canonical_json(note).encode())
    return found if news else ()


def listing(run: RunOptions) -> list[str]:
    """Return one line per file of the data root: path, size, and time or version. Nothing is read.

    Raises:
        StoreError: the data root is no address that may be opened.
    """
    import fsspec

    place = parse_location(run.data_root, run.protocols)
    files = fsspec.filesystem(place.protocol, use_listings_cache=False).find(place.path, detail=True)
    return [
        f"{path} {info.get('size')} {info.get('mtime') or info.get('ETag')}" for path, info in sorted(files.items())
    ]


def last_look(folder: Folder) -> tuple[str | None, str | None]:
    """Return the digests of what was seen and of what was told; None and None before the first look."""
    if folder.size(NOTE) is None:
        return None, None
    note = json.loads(folder.read(NOTE))
    return note["seen"], note["told"]
