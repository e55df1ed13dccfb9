"""The run with secrets, and what happens after a hostile pickle was planted in every file that it left.

Source: docs/security.md.
"""

import json
import pickle
import shutil
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hostile import SECRET, Marker, hits, payload
from prefect.serializers import PickleSerializer
from whole_run import Ran, typed

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]
TRAININGS = {"alignment": (".",), "predictor": (".",), "scorer": ("scorer",)}
"""Where a training of a stage keeps its checkpoints, below its folder in scratch."""


def test_no_secret_of_the_user_and_no_login_of_its_own_server_stands_in_anything_that_a_run_writes(ran: Ran) -> None:
    assert "finished in" in ran.output
    assert (ran.root / "prefect" / "prefect.db").stat().st_size > 100_000
    assert SECRET not in ran.output
    name, _, password = ran.server_login.partition(":")
    assert (name, len(password) >= 32) == ("run", True)
    assert hits(ran.root, SECRET) == hits(ran.root, password) == []
    assert hits(ran.root, str(ran.root)) != []


@pytest.mark.campaign
def test_a_failing_run_with_its_tracebacks_keeps_the_secrets_too(ran: Ran, tmp_path: Path) -> None:
    weights, marker, root = tmp_path / "weights.pt", tmp_path / "marker", tmp_path / "root"
    shutil.copytree(ran.root, root)
    weights.write_bytes(payload(marker))
    status, output = ran.again(root, "--only", "features", "--set", f"features.checkpoint={weights}")
    assert status == 2
    assert "weights.pt was refused" in " ".join(output.split())
    assert not marker.exists()
    with sqlite3.connect(root / "prefect" / "prefect.db") as database:
        told = " ".join(message for (message,) in database.execute("select message from log"))
    assert "Traceback" in told
    assert SECRET not in output
    assert hits(root, SECRET) == []


def test_a_secret_in_a_log_a_table_or_the_database_would_be_found(ran: Ran, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"connecting with {SECRET}-aws_secret_access_key\n")
    pq.write_table(
        pa.table({"detail": [f"{SECRET}{n % 3}" for n in range(500)]}), tmp_path / "b.parquet", compression="zstd"
    )
    shutil.copy(ran.root / "prefect" / "prefect.db", tmp_path / "c.db")
    with sqlite3.connect(tmp_path / "c.db") as database:
        assert database.execute("select count(*) from log").fetchone() > (10,)
        database.execute("update log set message = ? where rowid = (select max(rowid) from log)", (f"x{SECRET}x",))
    database.close()
    (tmp_path / "d.json").write_text("{}")
    assert hits(tmp_path, SECRET) == ["a.log", "b.parquet", "c.db"]


def test_prefect_kept_no_result(ran: Ran) -> None:
    assert [p for p in (ran.root / "prefect" / "storage").rglob("*") if p.is_file()] == []
    with sqlite3.connect(ran.root / "prefect" / "prefect.db") as database:
        states = database.execute("select data from task_run_state union all select data from flow_run_state")
        kinds = {json.loads(data or "null") and json.loads(data).get("type") for (data,) in states}
    assert kinds <= {None, "unpersisted"}


def plant(root: Path, marker: Path, *, keep: tuple[str, ...] = ()) -> list[Path]:
    """Put the hostile pickle in place of every file below a root, of the same size, but those called `keep`."""
    planted = [p for p in sorted(root.rglob("*")) if p.is_file() and p.name not in keep]
    for path in planted:
        path.write_bytes(payload(marker, path.stat().st_size))
    return planted


def test_hostile_pickles_in_place_of_all_data_are_named_and_never_run(ran: Ran, tmp_path: Path) -> None:
    copy, marker = tmp_path / "root", tmp_path / "marker"
    shutil.copytree(ran.root / "artifacts", copy / "artifacts")
    kept = ("manifest.json", "record.json", "run_record.json", "sources.json", "current")
    planted = plant(copy / "artifacts", marker, keep=kept)
    assert len(planted) > 40
    status, said = typed("verify", "--root", str(copy))
    assert status == 1
    assert all(p.name[5:17] in said for p in planted), said
    assert not marker.exists()


@pytest.mark.campaign
def test_hostile_pickles_in_place_of_everything_are_computed_again_and_never_run(ran: Ran, tmp_path: Path) -> None:
    marker, root = tmp_path / "marker", Path(shutil.copytree(ran.root, tmp_path / "root"))
    before = {p.relative_to(root): p.read_bytes() for p in root.rglob("manifest.json")}
    planted = plant(root / "artifacts", marker)
    for path in (root / "inventory.json", root / "last.json"):
        path.write_bytes(payload(marker, path.stat().st_size))
        planted.append(path)
    for stage in TRAININGS:
        planted += plant_scratch(root, stage, marker)
    kinds = {p.suffix for p in planted}
    assert {".parquet", ".safetensors", ".json", "", ".html"} <= kinds
    status, output = ran.again(root)
    assert status == 0, output
    assert not marker.exists()
    assert {p: (root / p).read_bytes() for p in before} == before
    files = [path for path in (root / "artifacts").rglob("*") if path.is_file()]
    assert [path for path in files if path.read_bytes().startswith(payload(marker))] == [], "what was planted is left"


def plant_scratch(root: Path, stage: str, marker: Path) -> list[Path]:
    """Plant where a training looks for the checkpoint that a broken run left behind."""
    keys = {p.parent.name for p in (root / "artifacts" / stage).glob("shards/*/record.json")}
    folders = [root / "scratch" / f"{stage}-{key[:16]}" / job for key in sorted(keys) for job in TRAININGS[stage]]
    assert folders
    places = [folder / "checkpoint.safetensors" for folder in folders]
    for place in places:
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(payload(marker))
    return places


def test_the_planted_pickle_is_hostile_indeed(tmp_path: Path) -> None:
    pickle.loads(payload(tmp_path / "0", 4096))
    PickleSerializer().loads(PickleSerializer().dumps(Marker(tmp_path / "1")))
    assert (tmp_path / "0").exists()
    assert (tmp_path / "1").exists()
