"""Plan, status and verify: what a run would do, what is there, what is damaged."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import toy_stages as toy
from toy_stages import TOYS, VECTOR, run_toys, toys_with, tree_bytes, write_corpus

from schemas.base import fingerprint
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.planning.plan import PlanRow, plan, status
from trajpilot_core.engine.planning.watch import noticed
from trajpilot_core.engine.stage import AnyStage, Work
from trajpilot_core.errors import InputError, StoreError, StoreIOError, VersionError
from trajpilot_core.store import inventory, reading
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import LocalFolder, open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table


def planned(run, stages=TOYS, config: PipelineConfig | None = None) -> dict[str, PlanRow]:
    return {row.stage: row for row in plan(stages, config or PipelineConfig(), run)}


def test_plan_of_an_empty_root_knows_the_first_stage_only(run: RunOptions) -> None:
    rows = planned(run)
    assert [row.state for row in rows.values()] == ["missing"] * 3
    assert rows["toy_ingest"].why == "never ran"
    vectors = rows["toy_vectors"]
    assert (vectors.why, vectors.work()) == ("unknown until toy_ingest has run", "unknown")
    assert not Path(run.root).exists()


def test_plan_after_a_run_is_fresh_and_reads_no_input_file(run: RunOptions, monkeypatch) -> None:
    run_toys(run)
    monkeypatch.setattr(inventory.Inventory, "hash", lambda *_: pytest.fail("plan read an input file"))
    assert [row.state for row in planned(run).values()] == ["fresh"] * 3


def test_plan_says_exactly_at_most_and_unknown(run: RunOptions, corpus: Path) -> None:
    run_toys(run)
    (corpus / "take2.txt").write_text("8 8 8 8")
    rows = planned(run)
    row = rows["toy_vectors"]
    assert (row.state, row.work(), row.why) == ("stale", "at most 1", "1 take touched: take2 (take2.txt)")
    assert (rows["toy_sum"].state, rows["toy_sum"].why) == ("unknown", "unknown until toy_vectors has run")
    changed = planned(run, config=toy.features_config(batch=3))
    assert changed["toy_vectors"].why.startswith("batch 8 -> 3")
    write_corpus(corpus)
    run_toys(run)
    changed = planned(run, config=toy.features_config(batch=3))
    assert changed["toy_vectors"].work() == "exactly 4"
    assert planned(run, toys_with(VECTOR, version=2))["toy_vectors"].why.startswith("version 1 -> 2")
    assert planned(run.replace(force=("toy_vectors",)))["toy_vectors"].work() == "exactly 4"


def test_status_shows_rows_and_where_they_are(run: RunOptions) -> None:
    assert all(row.rows is None for row in status(TOYS, PipelineConfig(), run))
    run_toys(run)
    rows = {row.plan.stage: row for row in status(TOYS, PipelineConfig(), run)}
    assert rows["toy_vectors"].rows == 12
    assert rows["toy_vectors"].uri is not None


def file_of_vectors(run: RunOptions, number: int) -> Path:
    manifest = current_manifest(open_folder(run.root), "toy_vectors")
    return Path(run.root) / "artifacts/toy_vectors" / manifest.entries["toy_vectors"].files[number].name


def test_verify_finds_damage_and_repair_makes_the_next_run_mend_it(run: RunOptions) -> None:
    run_toys(run)
    root, data = Path(run.root), file_of_vectors(run, 2)
    before = tree_bytes(root)
    assert verify(run.root, repair=False) == []
    data.write_bytes(bytes([data.read_bytes()[0] ^ 1]) + data.read_bytes()[1:])
    found = verify(run.root, repair=True)
    assert [("is damaged" in damage.problem, len(damage.records)) for damage in found] == [(True, 2)], "shard, manifest"
    assert run_toys(run)["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"
    assert tree_bytes(root) == before
    assert verify(run.root, repair=False) == []


def test_a_damaged_pack_is_built_again_and_a_damaged_shard_is_named(run: RunOptions) -> None:
    run_toys(run)
    folder = open_folder(run.root)
    manifest = current_manifest(folder, "toy_vectors")
    table = read_entry_table(folder, manifest, "toy_vectors")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(reading, "_build", lambda *_: pytest.fail("a pack that is there was built again"))
        assert read_entry_table(folder, manifest, "toy_vectors") == table
    (pack,) = Path(run.root).glob("artifacts/toy_vectors/packs/*.parquet")
    pack.write_bytes(b"x" * pack.stat().st_size)
    assert read_entry_table(folder, manifest, "toy_vectors") == table
    pack.unlink()
    shard = file_of_vectors(run, 0)
    shard.write_bytes(shard.read_bytes()[:-1] + b"?")
    with pytest.raises(StoreError, match=shard.name):
        read_entry_table(folder, manifest, "toy_vectors")


def test_a_shard_of_other_columns_is_named_when_the_pack_is_built(run: RunOptions) -> None:
    def mixed(work: Work) -> None:
        for source in work.pending:
            table, rejects, n_in = toy.vectors_of(source, work.runtime.data_root)
            names = ["a", "b", "c"] if source.shard == "take0" else table.column_names
            work.sink.shard(source.shard, table.rename_columns(names), rejects, n_in)

    with pytest.raises(StoreError, match="has the columns"):
        run_toys(run, toys_with(VECTOR, run=mixed))


def test_repair_never_drops_what_could_not_be_read(run: RunOptions, monkeypatch) -> None:
    """A disk that does not answer is no damage: what is on it may be whole."""
    run_toys(run)
    before = tree_bytes(Path(run.root))
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
    assert tree_bytes(Path(run.root)) == before


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
    run: RunOptions,
) -> None:
    def without_the_document(work: Work) -> None:
        work.sink.document = lambda name, content: None
        toy.read_takes(work)

    before = toys_with(toy.INGEST, writes=("toy_takes", "toy_model"), run=without_the_document)
    run_toys(run, before)
    old = tree_bytes(Path(run.root), lambda path: path.name == "manifest.json")
    row = planned(run)["toy_ingest"]
    assert (row.state, row.work(), row.why) == ("stale", "exactly 1", "1 entry missing from the output: toy.html")
    done = run_toys(run)
    assert [outcome.cached for outcome in done.values()] == [False, True, True]
    assert old.items() <= tree_bytes(Path(run.root)).items(), "what was written before stays byte for byte"
    assert [row.state for row in planned(run).values()] == ["fresh"] * 3
    assert all(outcome.cached for outcome in run_toys(run, before).values())


CONFIG = PipelineConfig()
FIRST = next(iter(TOYS))


def looks(run: RunOptions, n: int, stages: Mapping[str, AnyStage] = TOYS) -> list[int]:
    """How many changes each of `n` looks tells."""
    return [len(noticed(stages, CONFIG, run)) for _ in range(n)]


def test_a_change_is_told_once_after_two_equal_looks(run: RunOptions, corpus: Path) -> None:
    stages = {FIRST: TOYS[FIRST]}
    run_toys(run, stages)
    assert noticed(stages, CONFIG, run) == ()
    (corpus / "take1.txt").write_text("7 8 9")
    (corpus / "takes.txt").write_text("take0\ntake1\ntake9\n")
    (corpus / "take9.txt").write_text("4 5 6")
    assert noticed(stages, CONFIG, run) == ()
    (told,) = noticed(stages, CONFIG, run)
    assert told.startswith(f"{FIRST}: ")
    assert noticed(stages, CONFIG, run) == ()
    run_toys(run, stages)
    assert noticed(stages, CONFIG, run) == ()


def test_a_run_at_work_and_a_take_that_no_run_mends_start_no_other_run(run: RunOptions, corpus: Path) -> None:
    """Stage after stage becomes fresh while the files stay as they are: no news."""
    assert looks(run, 2) == [0, 3]
    for until in TOYS:
        run_toys(run, until=until)
        assert looks(run, 3) == [0, 0, 0], until
    (corpus / "take1.txt").unlink()
    assert [n > 0 for n in looks(run, 4)] == [False, True, False, False]


def test_a_file_that_nothing_reads_is_no_news_and_the_next_change_is(run: RunOptions, corpus: Path) -> None:
    run_toys(run)
    (corpus / b"caf\xe9.txt".decode(errors="surrogateescape")).write_text("no text")
    assert looks(run, 3) == [0, 0, 0]
    (corpus / "take1.txt").write_text("7 7")
    assert [n > 0 for n in looks(run, 3)] == [False, True, False]


def test_a_damaged_note_is_forgotten_and_a_data_root_that_is_gone_is_an_error(run: RunOptions) -> None:
    """A share that is not mounted must not start a run."""
    looks(run, 1)
    (Path(run.root) / "watch.json").write_text("{")
    assert looks(run, 2) == [0, 3]
    with pytest.raises(InputError, match="is no folder"):
        noticed(TOYS, CONFIG, run.replace(data_root=f"{run.data_root}/nowhere"))


def test_a_download_that_is_under_way_is_not_told(run: RunOptions, corpus: Path) -> None:
    stages = {FIRST: TOYS[FIRST]}
    run_toys(run, stages)
    for k in range(5, 8):
        (corpus / "takes.txt").write_text("\n".join(f"take{n}" for n in range(k)))
        (corpus / f"take{k - 1}.txt").write_text("1 2")
        assert looks(run, 1, stages) == [0], k
