"""The executor: what is recomputed, what is reused, what is refused."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import toy_stages as toy
from toy_stages import INGEST, TOYS, VECTOR, hostile_names, options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.config import IngestConfig, PipelineConfig, RunOptions
from schemas.rejects import Reject
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.execution.sink import StageSink
from trajpilot_core.engine.stage import Source, Work
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_document, read_entry_table


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus")


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> RunOptions:
    return options(tmp_path / "root", corpus)


def manifest_of(root: Path, stage: str):
    manifest = current_manifest(open_folder(str(root)), stage)
    assert manifest is not None
    return manifest


def test_a_second_run_computes_nothing_and_says_so(run: RunOptions) -> None:
    first, second = run_toys(run), run_toys(run)
    assert first["toy_vectors"].message() == "reused 0, computed 4, removed 0, rejected 0"
    assert second["toy_vectors"].message() == "reused 4, computed 0, removed 0, rejected 0"
    assert all(outcome.cached for outcome in second.values())
    assert not any(outcome.cached for outcome in first.values())
    assert [o.ref for o in first.values()] == [o.ref for o in second.values()]


def test_equal_inputs_give_equal_bytes_whatever_the_history(tmp_path: Path, corpus: Path) -> None:
    run_toys(options(tmp_path / "a", corpus))
    elsewhere = write_corpus(tmp_path / "moved" / "corpus")
    (elsewhere / "take1.txt").write_text("9 9 9")
    run_toys(options(tmp_path / "b", elsewhere))
    write_corpus(elsewhere)
    run_toys(options(tmp_path / "b", elsewhere))
    for stage in TOYS:
        a, b = (manifest_of(tmp_path / root, stage) for root in "ab")
        assert a == b
    assert set(tree_bytes(tmp_path / "a").items()) <= set(tree_bytes(tmp_path / "b").items())


def test_a_stage_without_anything_to_do_says_so(tmp_path: Path, corpus: Path) -> None:
    done = run_toys(options(tmp_path / "root", corpus))["toy_vectors"]
    assert replace(done, computed=0, rejected={}).message() == "no take to compute"
    assert replace(done, computed=0, rejected={"DECODE_FAILED": 1}).message().endswith("rejected 1")


def test_changing_one_shards_file_recomputes_one_shard(run: RunOptions, corpus: Path) -> None:
    run_toys(run)
    (corpus / "take2.txt").write_text("7 bad 8")
    done = run_toys(run)
    assert done["toy_ingest"].cached
    assert done["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 1"
    assert done["toy_vectors"].rejected == {"DECODE_FAILED": 1}
    assert done["toy_vectors"].n_in == 12
    assert done["toy_vectors"].n_out == 11
    assert not done["toy_sum"].cached


def test_the_same_content_from_upstream_leaves_downstream_fresh(run: RunOptions, corpus: Path) -> None:
    run_toys(run)
    (corpus / "takes.txt").write_text("take0\n\n\ntake1\ntake2 take3")
    done = run_toys(run)
    assert [done[name].cached for name in TOYS] == [False, True, True]


def test_only_its_own_part_of_the_config_enters_a_stages_key(run: RunOptions) -> None:
    run_toys(run)
    done = run_toys(run, config=toy.features_config(batch=3))
    assert [done[name].cached for name in TOYS] == [True, False, True]  # equal vectors: the sum stays fresh
    done = run_toys(run, config=PipelineConfig(ingest=IngestConfig(min_horizon=4)))
    assert not done["toy_ingest"].cached


def test_force_recomputes_although_the_output_is_there(tmp_path: Path, corpus: Path) -> None:
    run_toys(options(tmp_path / "root", corpus))
    before = tree_bytes(tmp_path / "root")
    done = run_toys(options(tmp_path / "root", corpus, force=("toy_vectors", "toy_ingest")))
    assert done["toy_vectors"].computed == 4
    assert done["toy_ingest"].computed == 1
    assert done["toy_sum"].cached
    assert tree_bytes(tmp_path / "root") == before


def test_going_back_to_an_older_config_moves_the_pointer_only(run: RunOptions, tmp_path: Path) -> None:
    first = run_toys(run)["toy_vectors"].ref
    assert run_toys(run, config=toy.features_config(size_px=64))["toy_vectors"].ref.uri != first.uri
    back = run_toys(run)["toy_vectors"]
    assert back.cached
    assert back.ref == first
    assert manifest_of(tmp_path / "root", "toy_vectors").key in first.uri


def test_what_was_written_is_read_back(tmp_path: Path, corpus: Path) -> None:
    run_toys(options(tmp_path / "root", corpus))
    folder = open_folder(str(tmp_path / "root"))
    takes = manifest_of(tmp_path / "root", "toy_ingest")
    assert read_entry_document(folder, takes, "toy.html") == b"<p>toy</p>"
    assert read_entry_table(folder, takes, "toy_takes").column("take_id").to_pylist() == [f"take{k}" for k in range(4)]
    vectors = read_entry_table(folder, manifest_of(tmp_path / "root", "toy_vectors"), "toy_vectors")
    assert vectors.column("number").to_pylist() == [0, 1, 2, 100, 101, 102, 200, 201, 202, 300, 301, 302]


def test_opening_what_was_not_declared_fails(tmp_path: Path, corpus: Path) -> None:
    def nosy(work: Work) -> None:
        work.inputs.table("toy_takes")

    stages = toys_with(toy.SUM, run=nosy)
    with pytest.raises(StoreError, match=r"stage toy_sum opens 'toy_takes' but declares only"):
        run_toys(options(tmp_path / "root", corpus), stages)


def test_an_input_that_was_never_made_names_the_stage_to_run(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(StoreError, match="run toy_ingest first"):
        execute(VECTOR, PipelineConfig(), options(tmp_path / "root", corpus), TOYS)


def test_an_input_that_nobody_writes_is_refused(tmp_path: Path, corpus: Path) -> None:
    lost = replace(VECTOR, reads=("toy_talks",))
    with pytest.raises(StoreError, match="which no stage writes"):
        execute(lost, PipelineConfig(), options(tmp_path / "root", corpus), TOYS)


def test_a_stage_that_breaks_its_declaration_is_refused(tmp_path: Path, corpus: Path) -> None:
    for write, message in (
        (lambda sink: sink.count(3, 2), "row count mismatch: 3 in, 2 out"),
        (lambda sink: sink.table("other", pa.table({"a": [1]})), "declares only"),
        (lambda sink: sink.table("toy_takes", pa.table({"a": [1]})), "writes 'toy_takes' twice"),
        (lambda sink: sink.shard("take0", pa.table({"a": [1]}), [], 1), "which is not pending"),
    ):

        def broken(work: Work, write=write) -> None:
            toy.read_takes(work)
            write(work.sink)

        with pytest.raises(StoreError, match=message):
            run_toys(options(tmp_path / "root", corpus), toys_with(INGEST, run=broken))
        assert current_manifest(open_folder(str(tmp_path / "root")), "toy_ingest") is None


def test_a_stage_that_writes_too_little_is_refused(tmp_path: Path, corpus: Path) -> None:
    with pytest.raises(StoreError, match=r"without writing toy_takes, toy_model, toy\.html"):
        run_toys(options(tmp_path / "root", corpus), toys_with(INGEST, run=lambda work: None))


def test_a_shard_that_was_not_delivered_is_named(tmp_path: Path, corpus: Path) -> None:
    def lazy(work: Work) -> None:
        toy.read_vectors_of_takes(replace(work, pending=work.pending[:-1]))

    with pytest.raises(StoreError, match=r"1 of 4 shards: 'take3'"):
        run_toys(options(tmp_path / "root", corpus), toys_with(VECTOR, run=lazy))


def test_a_shard_whose_rows_vanish_is_refused(tmp_path: Path, corpus: Path) -> None:
    def leaky(work: Work) -> None:
        for source in work.pending:
            table, rejects, n_in = toy.vectors_of(source, work.runtime.data_root)
            work.sink.shard(source.shard, table.slice(1), rejects, n_in)

    with pytest.raises(StoreError, match="every dropped row needs a reject"):
        run_toys(options(tmp_path / "root", corpus), toys_with(VECTOR, run=leaky))


def test_a_crash_keeps_the_finished_shards_and_the_scratch_folder(run: RunOptions, tmp_path: Path) -> None:
    def crash(work: Work) -> None:
        (work.runtime.scratch / "checkpoint").write_text("epoch 1")
        toy.read_vectors_of_takes(replace(work, pending=work.pending[:3]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_toys(run, toys_with(VECTOR, run=crash))
    (kept,) = (tmp_path / "root" / "scratch").glob("toy_vectors-*")
    assert (kept / "checkpoint").read_text() == "epoch 1"
    assert run_toys(run)["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"
    assert not kept.exists()


def test_too_many_rejects_fail_the_stage_and_name_the_codes(tmp_path: Path, corpus: Path) -> None:
    (corpus / "take0.txt").write_text("bad bad bad")
    run = options(tmp_path / "root", corpus, max_reject_ratio=0.2)
    with pytest.raises(InputError, match=r"3 of 12 rows \(25%\), but at most 20% are allowed: DECODE_FAILED 3"):
        run_toys(run)
    assert current_manifest(open_folder(run.root), "toy_vectors") is None
    assert run_toys(options(tmp_path / "root", corpus))["toy_vectors"].reused == 4


def test_rejects_of_all_shards_form_one_table(tmp_path: Path, corpus: Path) -> None:
    (corpus / "take3.txt").write_text("bad 1")
    (corpus / "take1.txt").write_text("2 bad")
    run_toys(options(tmp_path / "root", corpus))
    folder = open_folder(str(tmp_path / "root"))
    table = read_entry_table(folder, manifest_of(tmp_path / "root", "toy_vectors"), "toy_vectors.rejects")
    assert table.column("take").to_pylist() == ["take1", "take3"]
    assert table.column_names == list(Reject.model_fields)


def test_a_file_that_changes_while_a_shard_is_computed_is_rejected_and_tried_again(
    run: RunOptions, corpus: Path
) -> None:
    def disturbed(work: Work) -> None:
        toy.read_vectors_of_takes(replace(work, pending=work.pending[:1]))
        (corpus / "take1.txt").write_text("4 4 4 4")
        toy.read_vectors_of_takes(replace(work, pending=work.pending[1:]))

    done = run_toys(run, toys_with(VECTOR, run=disturbed))["toy_vectors"]
    assert done.rejected == {"INPUT_UNSTABLE": 4}
    assert done.n_out == 9
    again = run_toys(run)["toy_vectors"]
    assert again.message() == "reused 3, computed 1, removed 0, rejected 0"
    write_corpus(corpus)
    assert run_toys(run)["toy_vectors"].rejected == {}  # not even under the key of the old content


def test_a_file_that_changes_while_a_whole_stage_runs_fails_it(tmp_path: Path, corpus: Path) -> None:
    def disturbed(work: Work) -> None:
        toy.read_takes(work)
        (corpus / "takes.txt").write_text("take0")

    with pytest.raises(InputError, match=r"takes\.txt changed while toy_ingest read it"):
        run_toys(options(tmp_path / "root", corpus), toys_with(INGEST, run=disturbed))


def test_a_missing_file_is_an_input_too(tmp_path: Path, corpus: Path) -> None:
    def tolerant(work: Work) -> None:
        for source in work.pending:
            there = (corpus / source.files[0]).exists()
            made = toy.vectors_of(source, str(corpus)) if there else (toy.VECTORS.empty_table(), [], 0)
            work.sink.shard(source.shard, *made)

    stages, run = toys_with(VECTOR, run=tolerant), options(tmp_path / "root", corpus)
    (corpus / "take3.txt").unlink()
    assert run_toys(run, stages)["toy_vectors"].n_out == 9
    (corpus / "take3.txt").write_text("1")
    assert run_toys(run, stages)["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"


def test_200_hostile_shard_names_are_data_and_never_paths(tmp_path: Path) -> None:
    names = sorted(
        {name for name in hostile_names() if name.isprintable() or "\0" in name} | {"\0" * k for k in range(60)}
    )

    def run_it(work: Work) -> None:
        for source in work.pending:
            work.sink.shard(source.shard, toy.VECTORS.empty_table(), [], 0)

    stage = replace(VECTOR, reads=(), sources=lambda *_: [Source(name) for name in names], run=run_it)
    root = tmp_path / "deep" / "root"
    outcome = execute(stage, PipelineConfig(), options(root, tmp_path), {stage.name: stage})
    assert outcome.computed == len(names) > 190
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    written = [path.name for path in root.rglob("*") if path.is_file()]
    own = r"data-[0-9a-f]{64}\.parquet|(record|manifest|run_record|sources)\.json|current|\.in-use|\.lock-toy_vectors"
    assert all(re.fullmatch(own, name) for name in written)


def test_200_hostile_entry_names_are_refused_even_where_a_stage_declares_them(tmp_path: Path) -> None:
    written = {"table": (toy.VECTORS.empty_table(),), "model": ("key", {}), "models": ({},), "document": (b"evil",)}
    folder = open_folder(str(tmp_path / "deep" / "root"))
    declaring = replace(INGEST, writes=tuple(hostile_names()))
    for name in hostile_names():
        for write, arguments in written.items():
            with pytest.raises(StoreError):
                getattr(StageSink(folder, INGEST, "key"), write)(name, *arguments)
        with pytest.raises(StoreError):
            StageSink(folder, declaring, "key").document(name, b"evil")
    assert not list(tmp_path.iterdir())


def test_shards_that_cannot_be_told_apart_or_written_down_are_refused(tmp_path: Path) -> None:
    for names in (["same", "same"], ["\ud800"]):
        stage = replace(VECTOR, reads=(), sources=lambda *_, names=names: [Source(name) for name in names])
        with pytest.raises(InputError):
            execute(stage, PipelineConfig(), options(tmp_path / "root", tmp_path), {stage.name: stage})


def test_a_damaged_or_lost_output_is_computed_again(run: RunOptions, tmp_path: Path) -> None:
    first = run_toys(run)
    root = tmp_path / "root"
    before = tree_bytes(root)
    manifest = manifest_of(root, "toy_vectors")
    shard = root / "artifacts/toy_vectors" / manifest.entries["toy_vectors"].files[1].name
    shard.unlink()
    assert run_toys(run)["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"
    path = Path(first["toy_ingest"].ref.uri)
    path.write_bytes(path.read_bytes().replace(b'"n_in": 4', b'"n_in": 5'))
    assert not run_toys(run)["toy_ingest"].cached
    (root / "artifacts/toy_sum/current").write_text("{}")
    run_toys(run)
    assert tree_bytes(root) == before


def test_touching_a_file_reads_it_once_more_and_recomputes_nothing(run: RunOptions, corpus: Path) -> None:
    run_toys(run)
    os.utime(corpus / "take0.txt", (1, 1))
    assert run_toys(run)["toy_vectors"].cached


def test_a_change_that_keeps_size_and_time_is_seen_by_rehash_only(
    run: RunOptions, tmp_path: Path, corpus: Path
) -> None:
    run_toys(run)
    old = (corpus / "take0.txt").stat()
    (corpus / "take0.txt").write_text("5 1 2")
    os.utime(corpus / "take0.txt", ns=(old.st_atime_ns, old.st_mtime_ns))
    assert run_toys(run)["toy_vectors"].cached
    assert run_toys(options(tmp_path / "root", corpus, rehash=True))["toy_vectors"].computed == 1


def test_a_write_right_after_hashing_is_seen(run: RunOptions, corpus: Path) -> None:
    for number in range(5):
        (corpus / "take0.txt").write_text(f"{number} 0 0")
        assert run_toys(run, until="toy_vectors")["toy_vectors"].computed == (4 if number == 0 else 1)


def test_executor_and_plan_import_neither_torch_nor_prefect() -> None:
    code = (
        "import sys, importlib; [importlib.import_module('trajpilot_core.' + m) for m in ('stages', 'store.garbage', "
        "'engine.execution.execute', 'engine.planning.plan')]; "
        "print([m for m in ('torch', 'prefect') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
