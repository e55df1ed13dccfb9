"""Plan and status: what a run would do, and why a stage is stale: every cause, old and new, a bounded list of takes."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import toy_stages as toy
from toy_stages import (
    INGEST,
    SUM,
    TOYS,
    VECTOR,
    features_config,
    options,
    run_toys,
    toys_with,
    tree_bytes,
    write_corpus,
)

from schemas.config import EvaluationConfig, FeatureConfig, PipelineConfig, RunOptions
from trajpilot_core.engine.planning.plan import PlanRow, plan, status
from trajpilot_core.engine.planning.staleness import changed_settings
from trajpilot_core.engine.stage import AnyStage, Source, Work
from trajpilot_core.store import inventory
from trajpilot_core.store.files import LocalFolder

OTHER_SEED = PipelineConfig(evaluation=EvaluationConfig(seed=3))


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", takes=5)


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> RunOptions:
    run = options(tmp_path / "root", corpus)
    run_toys(run)
    return run


def planned(
    run: RunOptions, stages: Mapping[str, AnyStage] = TOYS, config: PipelineConfig | None = None
) -> dict[str, PlanRow]:
    return {row.stage: row for row in plan(stages, config or PipelineConfig(), run)}


def why(run: RunOptions, stage: str, *given: object) -> str:
    return planned(run, *given)[stage].why


def told(row: PlanRow) -> tuple[str, str, str]:
    return row.state, row.work(), row.why


def test_plan_of_an_empty_root_knows_the_first_stage_only(tmp_path: Path, corpus: Path) -> None:
    empty = options(tmp_path / "empty", corpus)
    first, *rest = planned(empty).values()
    assert (first.state, first.why) == ("missing", "never ran")
    assert [told(row) for row in rest] == [
        ("missing", "unknown", "unknown until toy_ingest has run"),
        ("missing", "at most 1", "unknown until toy_vectors has run"),
    ]
    assert all(row.rows is None for row in status(TOYS, PipelineConfig(), empty))
    assert not Path(empty.root).exists()


def test_a_look_reads_no_input_file_and_as_many_others_whatever_the_number_of_takes(
    tmp_path: Path, run: RunOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = options(tmp_path / "many", write_corpus(tmp_path / "more", takes=40))
    run_toys(many)
    reads, kept = [], LocalFolder.read
    monkeypatch.setattr(inventory.Inventory, "hash", lambda *_: pytest.fail("plan read an input file"))
    monkeypatch.setattr(LocalFolder, "read", lambda *given: (reads.append(given[1]), kept(*given))[1])
    n = []
    for one in (run, many):
        reads.clear()
        rows = {row.plan.stage: row for row in status(TOYS, PipelineConfig(), one)}
        assert [row.plan.state for row in rows.values()] == ["fresh"] * 3
        n.append(len(reads))
    assert n[0] == n[1]
    assert (rows["toy_vectors"].rows, rows["toy_vectors"].uri is None) == (120, False)


def test_settings_are_named_with_their_dots_old_and_new_and_counted_after_the_third(run: RunOptions) -> None:
    old, new = {"batch": 8, "train": {"lr": 0.1, "wd": 0}}, {"batch": 3, "train": {"lr": 0.5, "wd": 0}}
    assert changed_settings(old, new) == {"batch": ("8", "3"), "train.lr": ("0.1", "0.5")}
    assert changed_settings({"a": 1}, {"b": "x" * 99})["b"] == ("-", "'" + "x" * 56 + "...")
    assert changed_settings({"a": "0" * 64}, {"a": "f" * 64})["a"] == ("0" * 12, "f" * 12)
    changed = FeatureConfig(batch=3, size_px=256, n_frames=8, decode_timeout_s=1.0, backend="decord")
    text = why(run, "toy_vectors", TOYS, PipelineConfig(features=changed))
    assert text.endswith("and 2 more settings")
    assert text.count(" -> ") == 3
    row = planned(run, toys_with(VECTOR, version=2), features_config(batch=3))["toy_vectors"]
    assert (row.work(), row.why) == ("exactly 5", "version 1 -> 2; batch 8 -> 3")


def test_changed_new_and_gone_takes_and_inputs_are_named_with_the_file_that_changed(
    run: RunOptions, corpus: Path
) -> None:
    (corpus / "takes.txt").write_text("take0 take1 take2 take9")
    (corpus / "take9.txt").write_text("1")
    run_toys(run, until="toy_ingest")
    (corpus / "take1.txt").write_text("4 4")
    text = why(run, "toy_vectors")
    for part in ("1 take touched: take1 (take1.txt)", "1 take new: take9", "2 takes gone: take3, take4"):
        assert part in text
    assert text.endswith("1 input changed: toy_takes")


def test_of_many_takes_the_first_are_named(run: RunOptions, corpus: Path) -> None:
    for take in range(5):
        os.utime(corpus / f"take{take}.txt")
    named = "5 takes touched: take0 (take0.txt), take1 (take1.txt), take2 (take2.txt), ..."
    assert why(run, "toy_vectors").startswith(named)


def test_a_fact_that_changed_is_a_changed_take_and_changed_metadata_of_a_whole_stage(run: RunOptions) -> None:
    def moved(inputs, config, root) -> list[Source]:
        found = toy.vector_sources(inputs, config, root)
        return [replace(s, facts={**s.facts, "take": "other"}) if s.shard == "take3" else s for s in found]

    assert why(run, "toy_vectors", toys_with(VECTOR, sources=moved)) == "1 take changed: take3"
    there = toys_with(INGEST, sources=lambda *_: [Source("", ("takes.txt",), {"present": 4})])
    assert why(run, "toy_ingest", there) == "source metadata changed"


def test_a_missing_and_a_damaged_output_are_named(run: RunOptions) -> None:
    folder = Path(run.root) / "artifacts/toy_sum"
    file = next(folder.glob("*/data-*.parquet"))
    kept = file.read_bytes()
    file.write_bytes(kept[:-1])
    missing = f"1 output file missing: {file.parent.name}/{file.name}"
    assert told(planned(run)["toy_sum"]) == ("stale", "exactly 1", missing)
    file.write_bytes(kept)
    (folder / "current").write_text("{}")
    row = planned(run)["toy_sum"]
    assert (row.state, row.work()) == ("stale", "exactly 0"), "what the pointer should name is whole"
    assert "current is damaged" in row.why


def test_a_stage_that_waits_says_what_is_sure_already(run: RunOptions, corpus: Path) -> None:
    rows = planned(run.replace(force=("toy_ingest", "toy_vectors", "toy_sum")))
    assert told(rows["toy_sum"]) == ("stale", "exactly 1", "forced; unknown until toy_vectors has run")
    assert rows["toy_vectors"].why == "forced; unknown until toy_ingest has run"

    (corpus / "takes.txt").write_text("take0")
    rows = planned(run, toys_with(SUM, version=2), OTHER_SEED)
    assert rows["toy_vectors"].state == "unknown"
    known = "version 1 -> 2; seed 0 -> 3; unknown until toy_vectors has run"
    assert told(rows["toy_sum"]) == ("stale", "at most 1", known)
    assert run_toys(run)["toy_vectors"].removed == 4

    both = toys_with(SUM, reads=(*SUM.reads, "toy_takes"))
    (corpus / "takes.txt").write_text("take0 take1 take3")
    run_toys(run, both)
    (corpus / "takes.txt").write_text("take0 take1 take3 take4")
    assert told(planned(run)["toy_vectors"]) == ("unknown", "unknown", "unknown until toy_ingest has run")
    run_toys(run, both, until="toy_ingest")
    assert why(run, "toy_sum", both) == "1 input changed: toy_takes; unknown until toy_vectors has run"


def test_a_missing_file_is_a_change(run: RunOptions, corpus: Path) -> None:
    (corpus / "take3.txt").unlink()
    assert why(run, "toy_vectors") == "1 take changed: take3"
    (corpus / "takes.txt").unlink()
    assert why(run, "toy_ingest") == "1 file changed: takes.txt"


def test_plan_of_some_stages_takes_the_others_as_they_are(run: RunOptions, corpus: Path) -> None:
    (corpus / "takes.txt").write_text("take0")
    rows = planned(run.replace(only=("toy_vectors",)))
    assert [row.asked for row in rows.values()] == [False, True, False]
    assert rows["toy_vectors"].state == "fresh"  # ingest is stale, and the run would not touch it
    rows = planned(run.replace(from_stage="toy_vectors"))
    assert [row.asked for row in rows.values()] == [False, True, True]


def test_an_earlier_output_that_matches_again_costs_nothing(run: RunOptions) -> None:
    run_toys(run, config=features_config(batch=3))
    row = planned(run)["toy_vectors"]
    known = "batch 3 -> 8; all shards exist, only the manifest is rewritten"
    assert (told(row), row.reused) == (("stale", "exactly 0", known), 5)
    run_toys(run, config=OTHER_SEED)
    run_toys(run)
    row = planned(run, TOYS, OTHER_SEED)["toy_sum"]
    assert row.work() == "exactly 0"
    assert row.why.endswith("an earlier output matches")


def test_a_touched_take_is_at_most_one_to_compute(run: RunOptions, corpus: Path) -> None:
    (corpus / "take1.txt").write_text("5")
    rows = planned(run)
    assert told(rows["toy_vectors"]) == ("stale", "at most 1", "1 take touched: take1 (take1.txt)")
    assert rows["toy_vectors"].reused == 4
    assert told(rows["toy_sum"]) == ("unknown", "at most 1", "unknown until toy_vectors has run")


def test_an_output_of_before_a_stage_wrote_an_entry_is_made_again_and_nothing_after_it_is(
    tmp_path: Path, corpus: Path
) -> None:
    def without_the_document(work: Work) -> None:
        work.sink.document = lambda name, content: None
        toy.read_takes(work)

    run = options(tmp_path / "root", corpus)
    before = toys_with(INGEST, writes=("toy_takes", "toy_model"), run=without_the_document)
    run_toys(run, before)
    old = tree_bytes(Path(run.root), lambda path: path.name == "manifest.json")
    missing = "1 entry missing from the output: toy.html"
    assert told(planned(run)["toy_ingest"]) == ("stale", "exactly 1", missing)
    assert [outcome.cached for outcome in run_toys(run).values()] == [False, True, True]
    assert old.items() <= tree_bytes(Path(run.root)).items(), "what was written before stays byte for byte"
    assert all(outcome.cached for outcome in run_toys(run, before).values())
