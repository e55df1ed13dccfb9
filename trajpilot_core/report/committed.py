"""The committed outputs below a root, from which summaries are made; copies of the pages, and their address in the UI.

A browser opens no file from a page that it got over HTTP, so a `file:` link in the UI is dead. Prefect's server serves
its pages from a folder that a setting names; `trajpilot ui` names one below the root and keeps a copy of the pages in
it, in a folder with a random name, which only those who can read the artifact, behind the login, know.
"""

import contextlib
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from schemas.annotation import SIMULATED
from schemas.artifacts import ArtifactRef, Entry
from schemas.config import PipelineConfig, RunOptions
from schemas.features import ReleasedName, released_note
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest, stage_folder, verified_bytes
from trajpilot_core.store.parquet import read_table
from trajpilot_core.store.reading import read_entry_document, read_stored

WARNING = "SIMULATED WORLD: no evidence about real recordings, not comparable with published figures"
FOLDER = "reports"
HOME, STATIC, NOTE = "prefect", "ui", "report-link"
"""Below a root: Prefect's folder; in it the pages that the UI serves, and the file with the name of their folder."""
SERVED = "v1"
"""The folder of `STATIC` that Prefect's server has at its own root."""
LINKED = re.compile(r"report-[A-Za-z0-9_-]{22}")
"""Name of the folder in which the UI serves the pages."""


def notices(released: ReleasedName | None, *, simulated: bool) -> list[str]:
    """Return the notices at the top of pages: of a simulated corpus, of released features."""
    return [
        *([WARNING] if simulated else []),
        *([f"{released}: {released_note(released)}"] if released is not None else []),
    ]


@dataclass(frozen=True)
class Committed:
    """The current outputs of a root, and the settings of the run."""

    folder: Folder
    config: PipelineConfig
    run: RunOptions

    def table(self, stage: str, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a committed table, verified. Raises StoreError if there is none."""
        return read_stored(self.folder, stage, self._entry(stage, name), columns)

    def some_shards(self, stage: str, name: str, n: int, columns: Sequence[str]) -> list[pa.Table]:
        """Read at most `n` shards of a sharded table, evenly spaced among those with rows; no others are opened."""
        files = [file for file in self._entry(stage, name).files if file.rows]
        chosen = [files[i * len(files) // n] for i in range(n)] if len(files) > n else files
        return [read_table(verified_bytes(self.folder, stage_folder(stage), file), columns) for file in chosen]

    def warning(self) -> str:
        """Return the notice for results of a simulated corpus or on released features; empty for others."""
        simulated = SIMULATED in self.table("ingest", "takes", ("corpus",))["corpus"].to_pylist()
        features = self.config.features
        return "; ".join(notices(features.released if features.source == "released" else None, simulated=simulated))

    def _entry(self, stage: str, name: str) -> Entry:
        manifest = current_manifest(self.folder, stage)
        if manifest is None or name not in manifest.entries:
            raise StoreError(f"there is no {name} under {self.folder.url}; run {stage} first")
        return manifest.entries[name]


def committed_under(config: PipelineConfig, run: RunOptions) -> Committed:
    """Return the committed outputs under the root of a run."""
    return Committed(open_folder(run.root), config, run)


def place_documents(report: ArtifactRef, root: str) -> str:
    """Copy every document of the report to `<root>/reports`, verified; return the address of the HTML page.

    Raises:
        StoreError: the report stage has no output, or it is damaged.
    """
    folder = open_folder(root)
    manifest = current_manifest(folder, report.stage)
    if manifest is None:
        raise StoreError(f"no report under {folder.url}; run the stage report first")
    documents = [name for name, entry in manifest.entries.items() if entry.kind == "document"]
    for name in documents:
        folder.replace(f"{FOLDER}/{name}", read_entry_document(folder, manifest, name))
    page = next(name for name in documents if name.endswith(".html"))
    return f"{folder.url}/{FOLDER}/{page}"


def linked_folder(home: Path) -> str:
    """Return the name of the folder of the pages; it is generated once, and only this user can read it.

    A note of another user, or with any other content, is replaced, because the name becomes part of a path.
    """
    note, name = home / NOTE, ""
    with contextlib.suppress(PermissionError):
        name = note.read_bytes().decode("ascii", "replace").strip() if note.is_file() else ""
    if LINKED.fullmatch(name):
        return name
    note.unlink(missing_ok=True)
    note.touch(mode=0o600)
    name = f"report-{secrets.token_urlsafe(16)}"
    note.write_text(f"{name}\n", encoding="ascii")
    return name


def link_to(page: str) -> str | None:
    """Return the path of a page, `<root>/reports/<name>.html`, in the UI of its root; None where no UI can serve it."""
    home = Path(page).parent.parent / HOME
    return None if "://" in page or not home.is_dir() else f"/{linked_folder(home)}/{Path(page).name}"


def copy_pages(reports: Path, home: Path) -> int:
    """Copy the pages that are newer than their copies to where the UI serves them; return how many.

    Nothing is copied before the server has written its own files, because it clears the folder first.
    """
    served = home / STATIC / SERVED
    if not (served / "index.html").is_file() or not reports.is_dir():
        return 0
    folder, copied = served / linked_folder(home), 0
    folder.mkdir(exist_ok=True)
    for page in sorted(reports.glob("*.html")):
        copy = folder / page.name
        if not copy.exists() or copy.stat().st_mtime_ns < page.stat().st_mtime_ns:
            fresh = folder / f".{page.name}"
            fresh.write_bytes(page.read_bytes())
            fresh.replace(copy)
            copied += 1
    return copied
