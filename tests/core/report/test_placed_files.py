"""What lies next to the page: its documents, and the tables behind it under their names."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from schemas.artifacts import ArtifactRef, Entry, Manifest, RunRecord
from trajpilot_core.errors import StoreError
from trajpilot_core.report.committed import place_documents
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import commit_manifest, entry_of, stage_folder, write_data
from trajpilot_core.store.parquet import table_bytes

PAGE = ArtifactRef(stage="report", uri="", fingerprint="f", rows=0)
TOOK = {"rows": 0, "memory_bytes": None, "gpu_bytes": 0, "disk_bytes": 0}
RAN = RunRecord(reused=0, computed=1, removed=0, rejected=0, started="", seconds=0.0, host="", **TOOK)


def numbers(*values: int) -> pa.Table:
    return pa.table({"n": pa.array(values, pa.int64())})


def entry(folder: Folder, stage: str, *tables: pa.Table) -> Entry:
    files = [write_data(folder, stage, "objects", "parquet", table_bytes(t), t.num_rows) for t in tables]
    return entry_of("table", files)


def commit(folder: Folder, stage: str, entries: Mapping[str, Entry]) -> None:
    read = {"metrics": "a fingerprint"} if stage == "report" else {}
    empty = {"config": {}, "inputs": read, "rejected": {}, "libraries": {}}
    made = Manifest(format=1, stage=stage, version=1, key="k", entries=dict(entries), n_in=0, n_out=0, **empty)
    commit_manifest(folder, made, RAN, replace=True)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with labels, predictions, a sharded table, one without a shard, a document, and a table of a training."""
    folder = open_folder(str(tmp_path))
    page = entry_of("document", [write_data(folder, "report", "objects", "html", b"<html>", 0)])
    commit(folder, "report", {"report.html": page})
    commit(
        folder, "ingest", {"labels": entry(folder, "ingest", numbers(7)), "takes": entry(folder, "ingest", numbers(8))}
    )
    scored = {
        "predictions": entry(folder, "evaluation", numbers(1, 2, 3)),
        "take_scores": entry(folder, "evaluation", numbers(4), numbers(5, 6)),
        "nothing": entry(folder, "evaluation"),
        "notes": entry_of("document", [write_data(folder, "evaluation", "objects", "txt", b"no table", 0)]),
    }
    commit(folder, "evaluation", scored)
    commit(folder, "probe", {"probe_scores": entry(folder, "probe", numbers(9))})
    commit(folder, "predictor", {"predictor_curves": entry(folder, "predictor", numbers(9))})
    return tmp_path


def test_every_table_of_the_evaluation_lies_under_its_name_and_labels_with_them(root: Path) -> None:
    assert place_documents(PAGE, str(root)) == f"{root}/reports/report.html"
    placed = {path.name: pq.read_table(path)["n"].to_pylist() for path in (root / "reports" / "tables").iterdir()}
    assert placed == {"predictions.parquet": [1, 2, 3], "take_scores.parquet": [4, 5, 6], "labels.parquet": [7]}
    assert (root / "reports" / "report.html").read_bytes() == b"<html>"


def test_a_damaged_table_is_not_handed_on(root: Path) -> None:
    """The planted fault: a byte of the committed predictions is another one."""
    place_documents(PAGE, str(root))
    folder = root / stage_folder("evaluation") / "objects"
    for path in folder.glob("*.parquet"):
        path.write_bytes(path.read_bytes()[:-1] + b"x")
    with pytest.raises(StoreError, match="damaged"):
        place_documents(PAGE, str(root))


def test_without_a_report_nothing_is_placed(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="run the stage report first"):
        place_documents(PAGE, str(tmp_path))
