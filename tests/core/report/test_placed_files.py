"""Documents are placed next to each other below the root, verified."""

from pathlib import Path

import pytest

from schemas.artifacts import ArtifactRef, Manifest, RunRecord
from trajpilot_core.errors import StoreError
from trajpilot_core.report.committed import place_documents
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import commit_manifest, entry_of, stage_folder, write_data

PAGE = ArtifactRef(stage="report", uri="", fingerprint="f", rows=0)
TOOK = {"rows": 0, "memory_bytes": None, "gpu_bytes": 0, "disk_bytes": 0}
RAN = RunRecord(reused=0, computed=1, removed=0, rejected=0, started="", seconds=0.0, host="", **TOOK)


def test_documents_are_placed_and_a_damaged_one_is_not_handed_on(tmp_path: Path) -> None:
    """The planted fault: a byte of the committed page is another one."""
    folder = open_folder(str(tmp_path))
    entries = {"report.html": entry_of("document", [write_data(folder, "report", "objects", "html", b"<html>", 0)])}
    empty = {"config": {}, "inputs": {}, "rejected": {}, "libraries": {}}
    made = Manifest(format=1, stage="report", version=1, key="k", entries=entries, n_in=0, n_out=0, **empty)
    commit_manifest(folder, made, RAN, replace=True)
    assert place_documents(PAGE, str(tmp_path)) == f"{tmp_path}/reports/report.html"
    assert (tmp_path / "reports" / "report.html").read_bytes() == b"<html>"
    for path in (tmp_path / stage_folder("report") / "objects").glob("*.html"):
        path.write_bytes(b"<htmx>")
    with pytest.raises(StoreError, match="damaged"):
        place_documents(PAGE, str(tmp_path))


def test_without_a_report_nothing_is_placed(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run the stage report first"):
        place_documents(PAGE, str(tmp_path))
