"""Why a stage is stale: every cause is named, with old and new, and a bounded list of takes."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
import toy_stages as toy
from test_execute_plan import planned
from toy_stages import INGEST, SUM, TOYS, VECTOR, features_config, options, run_toys, toys_with, write_corpus

from schemas.config import EvaluationConfig, FeatureConfig, PipelineConfig, RunOptions
from trajpilot_core.engine.planning.staleness import changed_settings
from trajpilot_core.engine.stage import Source


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", takes=5)


@pytest.fixture
def run(tmp_path: Path, corpus: Path) -> RunOptions:
    run = options(tmp_path / "root", corpus)
    run_toys(run)
    return run


def why(run: RunOptions, stage: str, stages=TOYS, config: PipelineConfig | None = None) -> str:
    return planned(run, stages, config)[stage].why


def sources_with(file: str):
    """The sources of the vectors, each with one more file."""
    return lambda *given: [replace(s, files=(*s.files, file)) for s in toy.vector_sources(*given)]


def test_settings_are_named_with_their_dots_old_and_new_and_counted_after_the_third(run: RunOptions) -> None:
    old, new = {"batch": 8, "train": {"lr": 0.1, "wd": 0}}, {"batch": 3, "train": {"lr": 0.5, "wd": 0}}
    assert changed_settings(old, new) == {"batch": ("8", "3"), "train.lr": ("0.1", "0.5")}
    assert changed_settings({"a": 1}, {"b": "x" * 99})["b"] == ("-", "'" + "x" * 56 + "...")
    assert changed_settings({"a": "0" * 64}, {"a": "f" * 64})["a"] == ("0" * 12, "f" * 12)
    changed = FeatureConfig(batch=3, size_px=256, n_frames=8, decode_timeout_s=1.0, backend="decord")
    text = why(run, "toy_vectors", config=PipelineConfig(features=changed))
    assert text.endswith("and 2 more settings")
    assert text.count(" -> ") == 3


def test_changed_new_and_gone_takes_are_named_with_the_file_that_changed(run: RunOptions, corpus: Path) -> None:
    (corpus / "takes.txt").write_text("take0 take1 take2 take9")
    (corpus / "take9.txt").write_text("1")
    run_toys(run, until="toy_ingest")
    (corpus / "take1.txt").write_text("4 4")
    text = why(run, "toy_vectors")
    assert "1 take touched: take1 (take1.txt)" in text
    assert "1 take new: take9" in text
    assert "2 takes gone: take3, take4" in text
    assert text.endswith("1 input changed: toy_takes")


def test_of_many_takes_the_first_are_named_and_a_cause_of_all_is_named_once(run: RunOptions, corpus: Path) -> None:
    for take in range(5):
        os.utime(corpus / f"take{take}.txt")
    assert why(run, "toy_vectors").startswith(
        "5 takes touched: take0 (take0.txt), take1 (take1.txt), take2 (take2.txt), ..."
    )

    (corpus / "weights.pt").write_text("1")
    stages = toys_with(VECTOR, sources=sources_with("weights.pt"))
    run_toys(run, stages)
    (corpus / "weights.pt").write_text("2")
    assert why(run, "toy_vectors", stages) == "5 takes touched: take0, take1, take2, ... (weights.pt)"


def test_a_fact_that_changed_is_named_of_a_take_and_of_a_whole_stage(run: RunOptions) -> None:
    def moved(inputs, config, root) -> list[Source]:
        found = toy.vector_sources(inputs, config, root)
        return [replace(s, facts={**s.facts, "take": "other"}) if s.shard == "take3" else s for s in found]

    assert why(run, "toy_vectors", toys_with(VECTOR, sources=moved)) == "1 take changed: take3 (take)"
    there = toys_with(INGEST, sources=lambda *_: [Source("", ("takes.txt",), {"present": 4})])
    assert why(run, "toy_ingest", there) == "source metadata changed (present)"


def test_an_input_that_nobody_can_read_leaves_an_output_fresh(run: RunOptions, corpus: Path) -> None:
    (corpus / "folder.csv").mkdir()
    stages = toys_with(INGEST, sources=lambda *_: [Source("", ("takes.txt", "folder.csv"))])
    run_toys(run, stages)
    assert planned(run, stages)["toy_ingest"].state == "fresh"


def test_without_notes_the_takes_are_still_named(run: RunOptions, corpus: Path) -> None:
    """Outputs of an older version have none; damaged ones count as none."""
    (corpus / "take1.txt").write_text("4 4")
    (notes,) = Path(run.root).glob("artifacts/toy_vectors/*/sources.json")
    for spoil in (notes.unlink, lambda: notes.write_bytes(b"{}")):
        spoil()
        assert why(run, "toy_vectors") == "1 take touched: take1 (take1.txt)"


def test_an_input_from_a_stage_is_named(run: RunOptions, corpus: Path) -> None:
    (corpus / "take1.txt").write_text("4 4")
    run_toys(run, until="toy_vectors")
    assert why(run, "toy_sum") == "1 input changed: toy_vectors"


def test_a_missing_and_a_damaged_output_are_named(run: RunOptions) -> None:
    folder = Path(run.root) / "artifacts/toy_sum"
    file = next(folder.glob("*/data-*.parquet"))
    kept = file.read_bytes()
    file.write_bytes(kept[:-1])
    row = planned(run)["toy_sum"]
    missing = f"1 output file missing: {file.parent.name}/{file.name}"
    assert (row.state, row.work(), row.why) == ("stale", "exactly 1", missing)
    file.write_bytes(kept)
    (folder / "current").write_text("{}")
    row = planned(run)["toy_sum"]
    assert (row.state, row.work()) == ("stale", "exactly 0"), "what the pointer should name is whole"
    assert "current is damaged" in row.why


def test_a_stage_that_waits_says_what_is_sure_already(run: RunOptions, corpus: Path) -> None:
    (corpus / "takes.txt").write_text("take0")
    config = PipelineConfig(evaluation=EvaluationConfig(seed=3))
    rows = planned(run, toys_with(SUM, version=2), config)
    assert (rows["toy_vectors"].state, rows["toy_vectors"].work()) == ("unknown", "unknown")
    assert (rows["toy_sum"].state, rows["toy_sum"].work()) == ("stale", "at most 1")
    assert rows["toy_sum"].why == "version 1 -> 2; seed 0 -> 3; unknown until toy_vectors has run"


def test_a_forced_stage_that_waits_is_computed_for_sure_and_how_much_a_sharded_one_loses_is_unknown(
    run: RunOptions, corpus: Path
) -> None:
    rows = planned(run.replace(force=("toy_ingest", "toy_vectors", "toy_sum")))
    assert rows["toy_sum"].why == "forced; unknown until toy_vectors has run"
    assert (rows["toy_sum"].state, rows["toy_sum"].work(), rows["toy_sum"].removed) == ("stale", "exactly 1", 0)
    assert rows["toy_vectors"].why == "forced; unknown until toy_ingest has run"
    (corpus / "takes.txt").write_text("take0")
    assert planned(run)["toy_vectors"].removed is None
    assert run_toys(run)["toy_vectors"].removed == 4


def test_a_stage_that_waits_names_the_files_of_its_takes_that_changed(run: RunOptions, corpus: Path) -> None:
    (corpus / "takes.txt").write_text("take0 take1 take2 take3 take4 take5")
    (corpus / "take1.txt").write_text("4 4")
    (corpus / "take3.txt").unlink()
    row = planned(run)["toy_vectors"]
    told = "1 take changed: take3 (take3.txt missing); 1 take touched: take1 (take1.txt)"
    assert (row.state, row.why) == ("stale", f"{told}; unknown until toy_ingest has run")


def test_a_stage_that_waits_names_the_inputs_that_changed_already(run: RunOptions, corpus: Path) -> None:
    both = toys_with(SUM, reads=(*SUM.reads, "toy_takes"))
    run_toys(run, both)
    (corpus / "takes.txt").write_text("take0 take1 take2 take3 longer")
    (corpus / "longer.txt").write_text("1")
    run_toys(run, both, until="toy_ingest")
    row = planned(run, both)["toy_sum"]
    told = "1 input changed: toy_takes"
    assert (row.state, row.why) == ("stale", f"{told}; unknown until toy_vectors has run")


def test_a_file_that_is_missing_and_one_that_came_are_called_so(run: RunOptions, corpus: Path) -> None:
    kept = (corpus / "take3.txt").read_text()
    (corpus / "take3.txt").unlink()
    assert why(run, "toy_vectors") == "1 take changed: take3 (take3.txt missing)"
    listed = toys_with(INGEST, sources=lambda *_: [Source("", ("takes.txt", "take3.txt"))])
    run_toys(run, listed, until="toy_ingest")
    (corpus / "take3.txt").write_text(kept)
    assert why(run, "toy_ingest", listed) == "1 file new: take3.txt"
    (corpus / "takes.txt").unlink()
    assert why(run, "toy_ingest", listed) == "1 file missing: takes.txt; 1 file new: take3.txt"


def test_takes_that_all_changed_are_named_beside_a_setting_and_files_that_the_setting_chooses_are_not(
    run: RunOptions, corpus: Path
) -> None:
    for take in range(5):
        (corpus / f"take{take}.txt").unlink()
    text = why(run, "toy_vectors", config=features_config(batch=3))
    assert text.startswith("batch 8 -> 3; 5 takes changed: take0 (take0.txt missing), ")

    write_corpus(corpus, takes=5)
    run_toys(run)
    more = toys_with(VECTOR, sources=sources_with("takes.txt"))
    assert why(run, "toy_vectors", more, features_config(batch=3)) == "batch 8 -> 3"


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
    assert (row.state, row.work(), row.reused) == ("stale", "exactly 0", 5)
    assert row.why == "batch 3 -> 8; all shards exist, only the manifest is rewritten"
    run_toys(run, config=PipelineConfig(evaluation=EvaluationConfig(seed=3)))
    run_toys(run)
    row = planned(run, config=PipelineConfig(evaluation=EvaluationConfig(seed=3)))["toy_sum"]
    assert row.work() == "exactly 0"
    assert row.why.endswith("an earlier output matches")


def test_reused_computed_removed_and_rejected_are_counted(run: RunOptions, corpus: Path) -> None:
    (corpus / "take0.txt").write_text("1 bad bad")
    run_toys(run)
    assert planned(run)["toy_vectors"].rejected == 2
    (corpus / "take1.txt").write_text("5")
    row = planned(run)["toy_vectors"]
    assert (row.reused, row.work(), row.removed, row.rejected) == (4, "at most 1", 0, 2)
    (corpus / "take0.txt").write_text("1")
    assert planned(run)["toy_vectors"].rejected == 0


PURE = replace(VECTOR, pure_sources=True)


def test_a_stage_with_pure_sources_is_fresh_without_a_second_look_and_stale_for_every_cause(
    tmp_path: Path, corpus: Path
) -> None:
    stages, run = toys_with(PURE), options(tmp_path / "root", corpus)
    run_toys(run, stages)
    blind = toys_with(replace(PURE, sources=lambda *_: pytest.fail("the sources were computed again")))
    assert planned(run, blind)["toy_vectors"].state == "fresh"
    assert planned(run, toys_with(replace(PURE, version=2)))["toy_vectors"].state == "stale"
    assert planned(run, stages, features_config(batch=3))["toy_vectors"].state == "stale"
    assert planned(run.replace(force=("toy_vectors",)), stages)["toy_vectors"].state == "stale"
    os.utime(corpus / "take1.txt")
    assert planned(run, stages)["toy_vectors"].state == "stale"
    run_toys(run, stages)
    next(Path(run.root).glob("artifacts/toy_vectors/shards/*/data-*")).unlink()
    assert planned(run, stages)["toy_vectors"].state == "stale"


def test_pure_sources_see_no_data_root_and_a_file_that_no_setting_spells_is_looked_for_anew(
    tmp_path: Path, corpus: Path
) -> None:
    seen: list[str] = []

    def noting(inputs, config, root) -> list[Source]:
        seen.append(root)
        return sources_with(str(corpus / "weights.pt"))(inputs, config, root)

    (corpus / "weights.pt").write_text("1")
    stages = toys_with(replace(PURE, sources=noting))
    run = options(tmp_path / "root", corpus)
    run_toys(run, stages)
    assert set(seen) == {""}
    seen.clear()
    assert planned(run, stages)["toy_vectors"].state == "fresh"
    assert seen == [""]  # where a relative setting leads depends on the folder that one stands in
