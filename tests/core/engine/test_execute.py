"""The executor: what is recomputed, reused and refused, and what an outcome counts."""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
import toy_stages as toy
from toy_stages import INGEST, TOYS, VECTOR, hostile_names, options, run_toys, toys_with, tree_bytes, write_corpus

from schemas.annotation import CorpusCount
from schemas.artifacts import ArtifactRef, Manifest
from schemas.config import IngestConfig, PipelineConfig, RunOptions
from schemas.rejects import Reject
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.execution.outcome import Outcome, check_ratio
from trajpilot_core.engine.sink import Sink
from trajpilot_core.engine.stage import AnyStage, Source, Work
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.store import inventory
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_document, read_entry_table


def manifest_of(root: Path | str, stage: str):
    return current_manifest(open_folder(str(root)), stage)


def test_a_second_run_computes_nothing_and_says_so(run: RunOptions) -> None:
    first, second = run_toys(run), run_toys(run)
    assert first["toy_vectors"].message() == "reused 0, computed 4, removed 0, rejected 0"
    assert second["toy_vectors"].message() == "reused 4, computed 0, removed 0, rejected 0"
    assert {outcome.cached for outcome in first.values()} == {False}
    assert {outcome.cached for outcome in second.values()} == {True}
    assert [o.ref for o in first.values()] == [o.ref for o in second.values()]
    folder, takes = open_folder(run.root), manifest_of(run.root, "toy_ingest")
    assert read_entry_document(folder, takes, "toy.html") == b"<p>toy</p>"
    assert read_entry_table(folder, takes, "toy_takes").column("take_id").to_pylist() == [f"take{k}" for k in range(4)]
    vectors = read_entry_table(folder, manifest_of(run.root, "toy_vectors"), "toy_vectors")
    assert vectors.column("number").to_pylist() == [100 * take + row for take in range(4) for row in range(3)]


def test_equal_inputs_give_equal_bytes_whatever_the_history(tmp_path: Path, corpus: Path) -> None:
    run_toys(options(tmp_path / "a", corpus))
    elsewhere = write_corpus(tmp_path / "moved" / "corpus")
    (elsewhere / "take1.txt").write_text("9 9 9")
    run_toys(options(tmp_path / "b", elsewhere))
    write_corpus(elsewhere)
    run_toys(options(tmp_path / "b", elsewhere))
    assert all(manifest_of(tmp_path / "a", stage) == manifest_of(tmp_path / "b", stage) for stage in TOYS)
    assert set(tree_bytes(tmp_path / "a").items()) <= set(tree_bytes(tmp_path / "b").items())


def test_changing_one_shards_file_recomputes_one_shard(run: RunOptions, corpus: Path) -> None:
    run_toys(run)
    (corpus / "take2.txt").write_text("7 bad 8")
    done = run_toys(run)
    assert done["toy_ingest"].cached
    assert done["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 1"
    assert done["toy_vectors"].rejected == {"DECODE_FAILED": 1}
    assert (done["toy_vectors"].n_in, done["toy_vectors"].n_out) == (12, 11)
    assert not done["toy_sum"].cached
    (corpus / "take1.txt").write_text("2 bad")
    run_toys(run)
    rejects = read_entry_table(open_folder(run.root), manifest_of(run.root, "toy_vectors"), "toy_vectors.rejects")
    assert rejects.column("take").to_pylist() == ["take1", "take2"]
    assert rejects.column_names == list(Reject.model_fields)


def test_a_stages_key_has_its_own_part_of_the_config_and_the_content_from_upstream(
    run: RunOptions, corpus: Path
) -> None:
    first = run_toys(run)["toy_vectors"].ref
    done = run_toys(run, config=toy.features_config(batch=3))
    assert [done[name].cached for name in TOYS] == [True, False, True]  # equal vectors: the sum stays fresh
    assert done["toy_vectors"].ref.uri != first.uri
    (corpus / "takes.txt").write_text("take0\n\n\ntake1\ntake2 take3")
    done = run_toys(run)
    assert [done[name].cached for name in TOYS] == [False, True, True]
    assert done["toy_vectors"].ref == first, "an older configuration moves the pointer only"
    done = run_toys(run, config=PipelineConfig(ingest=IngestConfig(min_horizon=4)))
    assert not done["toy_ingest"].cached


def test_force_recomputes_although_the_output_is_there(run: RunOptions) -> None:
    run_toys(run)
    before = tree_bytes(Path(run.root))
    done = run_toys(run.replace(force=("toy_vectors", "toy_ingest")))
    assert [outcome.computed for outcome in done.values()] == [1, 4, 0]
    assert tree_bytes(Path(run.root)) == before


def test_an_input_that_was_never_made_or_that_nobody_writes_is_refused(run: RunOptions) -> None:
    with pytest.raises(StoreError, match="run toy_ingest first"):
        execute(VECTOR, PipelineConfig(), run, TOYS)
    with pytest.raises(StoreError, match="which no stage writes"):
        execute(replace(VECTOR, reads=("toy_talks",)), PipelineConfig(), run, TOYS)


def after_its_work(write: Callable[[Sink], None]) -> Callable[[Work], None]:
    return lambda work: (toy.read_takes(work), write(work.sink))[1]


def lazy(work: Work) -> None:
    toy.read_vectors_of_takes(replace(work, pending=work.pending[:-1]))


def leaky(work: Work) -> None:
    for source in work.pending:
        table, rejects, n_in = toy.vectors_of(source, work.runtime.data_root)
        work.sink.shard(source.shard, table.slice(1), rejects, n_in)


OTHER = pa.table({"a": [1]})
BREAKS: list[tuple[AnyStage, Callable[[Work], object], str]] = [
    (toy.SUM, lambda work: work.inputs.table("toy_takes"), "stage toy_sum opens 'toy_takes' but declares only"),
    (INGEST, after_its_work(lambda sink: sink.count(3, 2)), "row count mismatch: 3 in, 2 out"),
    (INGEST, after_its_work(lambda sink: sink.table("other", OTHER)), "declares only"),
    (INGEST, after_its_work(lambda sink: sink.table("toy_takes", OTHER)), "writes 'toy_takes' twice"),
    (INGEST, after_its_work(lambda sink: sink.shard("take0", OTHER, [], 1)), "which is not pending"),
    (INGEST, lambda work: None, r"without writing toy_takes, toy_model, toy\.html"),
    (VECTOR, lazy, "1 of 4 shards: 'take3'"),
    (VECTOR, leaky, "every dropped row needs a reject"),
]


def test_a_stage_that_breaks_its_declaration_is_refused(run: RunOptions) -> None:
    for stage, broken, message in BREAKS:
        with pytest.raises(StoreError, match=message):
            run_toys(run.replace(root=f"{run.root}-{stage.name}"), toys_with(stage, run=broken))
        assert manifest_of(f"{run.root}-{stage.name}", stage.name) is None


def test_a_crash_keeps_the_finished_shards_and_the_scratch_folder(run: RunOptions) -> None:
    def crash(work: Work) -> None:
        (work.runtime.scratch / "checkpoint").write_text("epoch 1")
        toy.read_vectors_of_takes(replace(work, pending=work.pending[:3]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_toys(run, toys_with(VECTOR, run=crash))
    (kept,) = (Path(run.root) / "scratch").glob("toy_vectors-*")
    assert (kept / "checkpoint").read_text() == "epoch 1"
    assert run_toys(run)["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"
    assert not kept.exists()


def test_too_many_rejects_fail_the_stage_and_name_the_codes(run: RunOptions, corpus: Path) -> None:
    (corpus / "take0.txt").write_text("bad bad bad")
    with pytest.raises(InputError, match=r"3 of 12 rows \(25%\), but at most 20% are allowed: DECODE_FAILED 3"):
        run_toys(run.replace(max_reject_ratio=0.2))
    assert manifest_of(run.root, "toy_vectors") is None
    assert run_toys(run)["toy_vectors"].reused == 4


def test_a_file_that_changes_while_a_shard_is_computed_is_rejected_and_tried_again(
    run: RunOptions, corpus: Path
) -> None:
    def disturbed(work: Work) -> None:
        toy.read_vectors_of_takes(replace(work, pending=work.pending[:1]))
        (corpus / "take1.txt").write_text("4 4 4 4")
        toy.read_vectors_of_takes(replace(work, pending=work.pending[1:]))

    done = run_toys(run, toys_with(VECTOR, run=disturbed))["toy_vectors"]
    assert (done.rejected, done.n_out) == ({"INPUT_UNSTABLE": 4}, 9)
    assert run_toys(run)["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"
    write_corpus(corpus)
    assert run_toys(run)["toy_vectors"].rejected == {}  # not even under the key of the old content


def test_a_file_that_changes_while_a_whole_stage_runs_fails_it(run: RunOptions, corpus: Path) -> None:
    def disturbed(work: Work) -> None:
        toy.read_takes(work)
        (corpus / "takes.txt").write_text("take0")

    with pytest.raises(InputError, match=r"takes\.txt changed while toy_ingest read it"):
        run_toys(run, toys_with(INGEST, run=disturbed))


def test_hostile_shard_names_are_data_and_never_paths(tmp_path: Path) -> None:
    names = sorted({name for name in hostile_names() if name.isprintable() or "\0" in name})

    def run_it(work: Work) -> None:
        for source in work.pending:
            work.sink.shard(source.shard, toy.VECTORS.empty_table(), [], 0)

    stage = replace(VECTOR, reads=(), sources=lambda *_: [Source(name) for name in names], run=run_it)
    root = tmp_path / "deep" / "root"
    outcome = execute(stage, PipelineConfig(), options(root, tmp_path), {stage.name: stage})
    assert outcome.computed == len(names) > 100
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    written = [path.name for path in root.rglob("*") if path.is_file()]
    own = r"data-[0-9a-f]{64}\.parquet|(record|manifest|run_record|sources)\.json|current|\.in-use|\.lock-toy_vectors"
    assert all(re.fullmatch(own, name) for name in written)
    for names in (["same", "same"], ["\ud800"]):  # cannot be told apart, or written down
        wrong = replace(stage, sources=lambda *_, names=names: [Source(name) for name in names])
        with pytest.raises(InputError):
            execute(wrong, PipelineConfig(), options(tmp_path / "other", tmp_path), {stage.name: wrong})


def test_200_hostile_entry_names_are_refused_even_where_a_stage_declares_them(tmp_path: Path) -> None:
    written = {"table": (toy.VECTORS.empty_table(),), "model": ("key", {}), "models": ({},), "document": (b"evil",)}
    folder = open_folder(str(tmp_path / "deep" / "root"))
    declaring = replace(INGEST, writes=tuple(hostile_names()))
    for name in hostile_names():
        for write, arguments in written.items():
            with pytest.raises(StoreError):
                getattr(Sink(folder, INGEST.name, INGEST.writes, "key"), write)(name, *arguments)
        with pytest.raises(StoreError):
            Sink(folder, declaring.name, declaring.writes, "key").document(name, b"evil")
    assert not list(tmp_path.iterdir())


def test_a_damaged_or_lost_output_is_computed_again(run: RunOptions, tmp_path: Path) -> None:
    first = run_toys(run)
    root = tmp_path / "root"
    before = tree_bytes(root)
    shard = manifest_of(root, "toy_vectors").entries["toy_vectors"].files[1].name
    (root / "artifacts/toy_vectors" / shard).unlink()
    assert run_toys(run)["toy_vectors"].message() == "reused 3, computed 1, removed 0, rejected 0"
    path = Path(first["toy_ingest"].ref.uri)
    path.write_bytes(path.read_bytes().replace(b'"n_in": 4', b'"n_in": 5'))
    assert not run_toys(run)["toy_ingest"].cached
    (root / "artifacts/toy_sum/current").write_text("{}")
    run_toys(run)
    assert tree_bytes(root) == before


def test_a_change_that_keeps_size_and_time_is_seen_without_the_inventory_only(run: RunOptions, corpus: Path) -> None:
    run_toys(run)
    take = corpus / "take0.txt"
    os.utime(take, (1, 1))
    assert run_toys(run)["toy_vectors"].cached, "a file that is touched is read once more"
    old = take.stat()
    take.write_text("5 1 2")
    os.utime(take, ns=(old.st_atime_ns, old.st_mtime_ns))
    assert run_toys(run)["toy_vectors"].cached
    (Path(run.root) / "inventory.json").unlink()
    assert run_toys(run)["toy_vectors"].computed == 1


def test_a_write_right_after_hashing_is_seen(run: RunOptions, corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventory, "SETTLE_S", 0.1)  # as it is outside of these tests
    for number in range(3):
        (corpus / "take0.txt").write_text(f"{number} 0 0")
        assert run_toys(run, until="toy_vectors")["toy_vectors"].computed == (4 if number == 0 else 1)


def with_rejects(n_in: int, rejected: dict[str, int]) -> Manifest:
    counts = {"n_in": n_in, "n_out": n_in - sum(rejected.values()), "rejected": rejected}
    return Manifest(format=1, stage="s", version=1, key="k", config={}, inputs={}, entries={}, libraries={}, **counts)


def test_damage_is_measured_against_what_the_filters_leave() -> None:
    check_ratio(with_rejects(100, {"ANNOTATOR_NOT_CHOSEN": 60, "UNSURE": 20, "VIDEO_MISSING": 2}), 0.1)
    with pytest.raises(InputError, match=r"3 of 20 rows \(15%\).*VIDEO_MISSING 3"):
        check_ratio(with_rejects(100, {"ANNOTATOR_NOT_CHOSEN": 80, "VIDEO_MISSING": 3}), 0.1)


def test_counts_are_shown_next_to_the_papers_and_the_message_counts_the_equal_ones() -> None:
    rows = (
        CorpusCount(what="labels", ours=375, paper=375, setting="x"),
        CorpusCount(what="scenarios", ours=17, paper=16, setting="ingest.keystep.skip_scenarios"),
        CorpusCount(what="own", ours=4, paper=None, setting=""),
    )
    ref = ArtifactRef(stage="ingest", uri="x", fingerprint="x", rows=1)
    outcome = Outcome(ref, 0, 1, 0, {}, n_in=1, n_out=1, seconds=1.0, cached=False, unit=None, counts=rows)
    told = {row["figure"]: (row["count"], row["meaning"]) for row in outcome.summary()}
    assert told["labels"] == (375, "as in the paper")
    assert told["scenarios"] == (17, "the paper has 16; ours depends on ingest.keystep.skip_scenarios")
    assert told["own"] == (4, "not stated in the paper")
    assert outcome.message().endswith("rejected 0; 1 of 2 counts equal the paper's")
    assert "paper" not in replace(outcome, counts=rows[2:]).message()
    nothing = replace(outcome, computed=0, unit="take", counts=())
    assert nothing.message() == "no take to compute"
    assert replace(nothing, rejected={"DECODE_FAILED": 1}).message().endswith("rejected 1")
