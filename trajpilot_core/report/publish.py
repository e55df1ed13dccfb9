"""Copies the report's documents and the tables behind them from the store to `<root>/reports`."""

import shutil
from pathlib import Path

from schemas.artifacts import ArtifactRef, Entry, Manifest
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import TEMPORARY, Folder, naming_failures, open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_document, table_file

FOLDER = "reports"
TABLES = f"{FOLDER}/tables"
SCORED_BY = {"metrics": "evaluation", "probe_scores": "probe"}
"""Entry that a page reads -> the stage whose tables it shows; a page that reads none of them shows its own stage's."""
LABELS = "labels"
"""Table of the label ids; the stage `ingest` writes it."""


def place_documents(report: ArtifactRef, root: str) -> str:
    """Copy every document of the report to `<root>/reports`, verified; return the address of the HTML page.

    The tables that the page shows are copied to `<root>/reports/tables`, each as one Parquet file.

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
    scored = [stage for entry, stage in SCORED_BY.items() if entry in manifest.inputs] or [report.stage]
    for stage in scored:
        _place_tables(folder, current_manifest(folder, stage))
    page = next(name for name in documents if name.endswith(".html"))
    return f"{folder.url}/{FOLDER}/{page}"


def _place_tables(folder: Folder, manifest: Manifest | None) -> None:
    """Copy every table of a stage, and the table of label ids; a stage without output has none."""
    if manifest is None:
        return
    for name, entry in manifest.entries.items():
        _place_table(folder, manifest.stage, name, entry)
    ingest = current_manifest(folder, "ingest")
    if ingest is not None and LABELS in ingest.entries:
        _place_table(folder, ingest.stage, LABELS, ingest.entries[LABELS])


def _place_table(folder: Folder, stage: str, name: str, entry: Entry) -> None:
    """Copy a table, verified, byte by byte: a sharded one as its pack; one without shards is skipped."""
    if entry.kind != "table" or not entry.files:
        return
    content, label = table_file(folder, stage, entry), f"{TABLES}/{name}.parquet"
    target = folder.local(label)
    if target is None or not isinstance(content, Path):
        folder.replace(label, content.read_bytes() if isinstance(content, Path) else content)
        return
    with naming_failures("write", target, sum(file.bytes for file in entry.files)):
        target.parent.mkdir(parents=True, exist_ok=True)
        fresh = target.with_name(f"{TEMPORARY}{target.name}")
        shutil.copyfile(content, fresh)  # predictions of a large run do not fit into memory
        fresh.replace(target)
