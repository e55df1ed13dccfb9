"""Plan, status and verify: what a run would do, what is there, what is damaged."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import toy_stages as toy
from toy_stages import TOYS, VECTOR, options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.base import fingerprint
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.planning.plan import PlanRow, plan, status
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import StoreError, StoreIOError, VersionError
from trajpilot_core.store import inventory, reading
from trajpilot_core.store.files import LocalFolder, open_folder
from trajpilot_core.store.garbage import verify
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> RunOptions:
    return options(tmp_path / "root", corpus)


def planned(run, stages=TOYS, config: PipelineConfig | None = None) -> dict[str, PlanRow]:
    return {row.stage: row for row in plan(stages, config or PipelineConfig(), run)}


def test_plan_of_an_empty_root_knows_the_first_stage_only(tmp_path: Path, corpus: Path) -> None:
    rows = planned(options(tmp_path / "root", corpus))
    assert [row.state for row in rows.values()] == ["missing"] * 3
    assert rows["toy_ingest"].why == "never ran"
    assert rows["toy_vectors"].why == "unknown until toy_ingest has run"
    assert rows["toy_vectors"].work() == "unknown"
    assert not (tmp_path / "root").exists()


def test_plan_after_a_run_is_fresh_and_reads_no_input_file(run: RunOptions, monkeypatch) -> None:
    run_toys(run)
    monkeypatch.setattr(inventory, "_hash", lambda *_: pytest.fail("plan read an input file"))
    assert [row.state for row in planned(run).values()] == ["fresh"] * 3


def test_plan_says_exactly_at_most_and_unknown(run: RunOptions, tmp_path: Path, corpus: Path) -> None:
    run_toys(run)
    (corpus / "take2.txt").write_text("8 8 8 8")
    rows = planned(run)
    assert rows["toy_vectors"].state == "stale"
    assert rows["toy_vectors"].work() == "at most 1"
    assert rows["toy_vectors"].why == "1 take touched: take2 (take2.txt)"
    assert rows["toy_sum"].state == "unknown"
    assert rows["toy_sum"].why == "unknown until toy_vectors has run"
    changed = planned(run, config=toy.features_config(batch=3))
    assert changed["toy_vectors"].why.startswith("batch 8 -> 3")
    write_corpus(corpus)
    run_toys(run)
    changed = planned(run, config=toy.features_config(batch=3))
    assert changed["toy_vectors"].work() == "exactly 4"
    assert planned(run, toys_with(VECTOR, version=2))["toy_vectors"].why.startswith("version 1 -> 2")
    assert planned(options(tmp_path / "root", corpus, force=("toy_vectors",)))["toy_vectors"].work() == "exactly 4"


def test_plan_after_a_crash_counts_the_missing_shards_only(run: RunOptions, corpus: Path) -> None:
    def crash(work) -> None:
        source = work.pending[0]
        work.sink.shard(source.shard, *toy.vectors_of(source, str(corpus)))
        raise KeyError

    with pytest.raises(KeyError):
        run_toys(run, toys_with(VECTOR, run=crash))
    assert planned(run)["toy_vectors"].work() == "exactly 3"


def test_status_shows_rows_and_where_they_are(run: RunOptions) -> None:
    assert all(row.rows is None for row in status(TOYS, PipelineConfig(), run))
    run_toys(run)
    rows = {row.plan.stage: row for row in status(TOYS, PipelineConfig(), run)}
    assert rows["toy_vectors"].rows == 12
    assert rows["toy_vectors"].uri is not None


def test_verify_finds_damage_and_repair_makes_the_next_run_mend_it(tmp_path: Path, corpus: Path) -> None:
    root, run = tmp_path / "root", options(tmp_path / "root", corpus)
    run_toys(run)
    before = tree_bytes(root)
    assert verify(str(root), repair=False) == []
    folder = open_folder(str(root))
    manifest = current_manifest(folder, "toy_vectors")
    assert manifest is not None
    data = root / "artifacts/toy_vectors" / manifest.entries["toy_vectors"].files[2].name
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    found = verify(str(root), repair=True)
    assert len(found) == 2  # the shard's record and the manifest that needs it
    assert all("damaged" in damage.problem for damage in found)
    done = run_toys(run)
    assert done["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"
    assert tree_bytes(root) == before
    assert verify(str(root), repair=False) == []


def test_a_damaged_pack_is_built_again_and_a_damaged_shard_is_named(tmp_path: Path, corpus: Path) -> None:
    root, run = tmp_path / "root", options(tmp_path / "root", corpus)
    run_toys(run)
    folder = open_folder(str(root))
    manifest = current_manifest(folder, "toy_vectors")
    assert manifest is not None
    table = read_entry_table(folder, manifest, "toy_vectors")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "_build", lambda *_: pytest.fail("a pack that is there was built again"))
        assert read_entry_table(folder, manifest, "toy_vectors") == table
    (pack,) = (root / "artifacts/toy_vectors/packs").glob("*.parquet")
    pack.write_bytes(b"x" * pack.stat().st_size)
    assert read_entry_table(folder, manifest, "toy_vectors") == table
    pack.unlink()
    shard = root / "artifacts/toy_vectors" / manifest.entries["toy_vectors"].files[0].name
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(StoreError, match=shard.name):
        read_entry_table(folder, manifest, "toy_vectors")


def test_repair_never_drops_what_could_not_be_read(run: RunOptions, tmp_path: Path, monkeypatch) -> None:
    """A disk that does not answer is no damage: what is on it may be whole."""
    run_toys(run)
    before = tree_bytes(tmp_path / "root")
    kept = LocalFolder.read

    def failing(folder: LocalFolder, path: str) -> bytes:
        if "/toy_vectors/" in path:
            raise StoreIOError(f"cannot read {path}: Input/output error")
        return kept(folder, path)

    monkeypatch.setattr(LocalFolder, "read", failing)
    found = verify(run.root, repair=True)
    monkeypatch.undo()
    assert found
    assert not any(item.is_sure for item in found)
    assert tree_bytes(tmp_path / "root") == before


def test_repair_never_drops_what_another_version_wrote(run: RunOptions) -> None:
    done = run_toys(run)
    path = Path(done["toy_sum"].ref.uri)
    body = {name: value for name, value in json.loads(path.read_bytes()).items() if name != "sha256"}
    path.write_text(json.dumps({**body, "new": 1, "sha256": fingerprint({**body, "new": 1})}))
    with pytest.raises(VersionError, match="undamaged, but another version wrote it"):
        current_manifest(open_folder(run.root), "toy_sum")
    assert [item.is_sure for item in verify(run.root, repair=True)] == [False, False]
    assert path.exists()
    assert planned(run)["toy_sum"].state == "stale"


def test_an_output_of_before_a_stage_wrote_an_entry_is_made_again_and_nothing_after_it_is(
    run: RunOptions, tmp_path: Path
) -> None:
    before = replace(toy.INGEST, writes=("toy_takes", "toy_model"), run=without_the_document)
    run_toys(run, {**TOYS, toy.INGEST.name: before})
    old = tree_bytes(tmp_path / "root", lambda path: path.name == "manifest.json")
    row = planned(run)["toy_ingest"]
    assert (row.state, row.work()) == ("stale", "exactly 1")
    assert row.why == "1 entry missing from the output: toy.html"
    done = run_toys(run)
    assert [outcome.cached for outcome in done.values()] == [False, True, True]
    assert old.items() <= tree_bytes(tmp_path / "root").items(), "what was written before stays byte for byte"
    assert [row.state for row in planned(run).values()] == ["fresh"] * 3
    assert all(outcome.cached for outcome in run_toys(run, {**TOYS, toy.INGEST.name: before}).values())


def without_the_document(work: Work) -> None:
    """Run the toy ingest as it was before it wrote toy.html."""
    work.sink.document = lambda name, content: None  # type: ignore[method-assign]
    toy.read_takes(work)
