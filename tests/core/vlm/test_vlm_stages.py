"""Vision-language rows on a small world: right answers score 100, unreadable ones 0, and nothing is asked twice."""

import json
from pathlib import Path

import pyarrow.compute as pc
import pytest
import torch
import vlm_fixture
from planning_world import fit_tables
from right_predictions import predictions_of
from vlm_fixture import TUNED, FakeClient, ask, knows_all, made_up_frames, settings, world

from deployments.recipes import recipe
from schemas.arrow import rows_of
from schemas.config import CompletedEvaluation, EvaluationConfig, PipelineConfig
from schemas.rejects import RejectCode, reject
from schemas.vlm import FAILED, EndpointScore, VlmCount
from trajpilot_core.data.planning import load_planning_data
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.predictions import on_subset
from trajpilot_core.evaluation.tables import metric_rows
from trajpilot_core.methods import method, with_role
from trajpilot_core.report.build import answer_tables
from trajpilot_core.stages import evaluation, stages_of, vlm
from trajpilot_core.studies.paper_tables.labels.planning import ATOMIC_ROWS, GOAL_FREE_ROWS
from trajpilot_core.vlm.material import TakeFrames

BOTH = ("qwen_zs", "qwen_sft_llm")


def scores(memory) -> dict[tuple[str, int | None, str], float]:
    """(row, horizon, metric) -> value, of every metric that the row is scored on."""
    found = predictions_of(memory.tables["vlm_predictions"])
    rows = metric_rows(found, "test", EvaluationConfig(bootstrap=100))
    return {
        (row.variant, row.horizon, row.metric): row.value for row in rows if row.seed is None and row.reference is None
    }


def test_right_answers_score_100_on_every_metric_in_both_rows(tmp_path, monkeypatch) -> None:
    """With rows without a goal, too."""
    memory, cfg = world(), settings(tmp_path, rows=BOTH, adapter=TUNED, anticipates=True)
    ask(memory, cfg, tmp_path, monkeypatch, knows_all(memory, cfg, monkeypatch))
    found = scores(memory)
    assert {row for row, _, _ in found} == {*BOTH, *(f"anticipation_{row}" for row in BOTH)}
    assert {value for (_, _, metric), value in found.items() if metric != "ED"} == {100.0}
    assert {value for (_, _, metric), value in found.items() if metric == "ED"} <= {0.0}
    counts = memory.tables["vlm_counts"].to_pylist()
    assert {row["n_failed"] + row["n_projected"] + row["n_blank"] for row in counts} == {0}
    cache = {row["row"]: row for row in memory.tables["endpoint_cache"].to_pylist()}
    assert {row["adapter"] for row in cache.values()} == {TUNED}
    tables = answer_tables([], rows_of(EndpointScore, memory.tables["endpoint_cache"]))
    assert f"by the tuned model {TUNED}" in tables[0].title
    assert cache["R@1"]["percentage"] == cache["R@5"]["percentage"] == 100
    assert cache["exact_projection"]["count"] == cache["segments"]["count"] > 0


def test_a_recogniser_that_no_digest_or_no_answer_names_is_called_untuned_wherever_it_shows(tmp_path, subtests) -> None:
    """Seen before: a random model without tuned weights stood as "a tuned model"."""
    for at, adapter in enumerate((None, "recogniser", "recogniser@0123", "qwen@0123456789abcdeg", TUNED)):
        with subtests.test(str(adapter)), pytest.MonkeyPatch.context() as monkeypatch:
            memory, ahead = world(), at % 2 == 1
            cfg = settings(tmp_path / str(at), rows=BOTH, adapter=adapter, anticipates=ahead)
            client = knows_all(memory, cfg, monkeypatch)
            client.name = "Qwen/Qwen3-VL-32B-Instruct" if adapter == TUNED else ""
            ask(memory, cfg, tmp_path, monkeypatch, client)
            assert_untuned(memory, anticipates=ahead)


def assert_untuned(memory, *, anticipates: bool) -> None:
    """Names of rows, tables of the report, metrics and JSON say it, and no table of the paper has the row."""
    untuned = ["qwen_llm_untuned", *(["anticipation_qwen_llm_untuned"] if anticipates else [])]
    shown = {row for row, _, _ in scores(memory)}
    assert shown & set(untuned) == set(untuned)
    assert not {row for row in shown if "sft" in row}
    for row in untuned:
        assert "UNTUNED" in method(row).name
        assert "SFT" not in method(row).name
        assert "a tuned" not in method(row).knows
        assert row not in (*with_role("main"), *ATOMIC_ROWS, *GOAL_FREE_ROWS)
    counts, endpoints = (
        rows_of(record, memory.tables[name])
        for record, name in ((VlmCount, "vlm_counts"), (EndpointScore, "endpoint_cache"))
    )
    assert {one.adapter for one in endpoints} == {""}
    reading, recognised = answer_tables(counts, endpoints)
    names = {str(row[0]).partition(":")[0] for row in reading.rows} - {"Qwen-ZS", "Qwen-ZS, no goal"}
    assert {name.partition(",")[0] for name in names} == {"Qwen+LLM"}
    assert all("UNTUNED" in name for name in names)
    assert "by an UNTUNED model" in recognised.title


def test_answers_that_cannot_be_read_are_wrong_everywhere_and_none_is_left_out(tmp_path, monkeypatch) -> None:
    memory, cfg = world(), settings(tmp_path, rows=BOTH, seeds=(0, 1))
    noise = '\u0000 ]}, "x" ,,{{ 7f3a'
    ask(memory, cfg, tmp_path, monkeypatch, FakeClient(lambda request: noise if request.items > 1 else ""))
    found = scores(memory)
    hits = {v for (_, _, metric), v in found.items() if metric in ("M@1", "M@5", "MSeq", "F@1", "F@5", "FSeq")}
    assert hits == {0.0}
    predicted = memory.tables["vlm_predictions"]
    assert set(predicted["decoded_id"].to_pylist()) == {FAILED}
    tested = memory.tables["windows"].filter(pc.equal(memory.tables["windows"]["split"], "test"))
    assert set(predicted["window_id"].to_pylist()) == set(tested["window_id"].to_pylist())
    assert predicted.num_rows == 2 * 2 * sum(tested["horizon"].to_pylist())
    assert all(row["n_failed"] == row["n_answers"] for row in memory.tables["vlm_counts"].to_pylist())


def test_a_label_outside_the_bank_is_projected_and_a_wrong_length_repaired(tmp_path, monkeypatch) -> None:
    memory, cfg = world(), settings(tmp_path)
    known = memory.tables["labels"]["label"].to_pylist()[0]
    answer = json.dumps({"sequence": [f"{known} slowly", known.upper()]})
    ask(memory, cfg, tmp_path, monkeypatch, FakeClient(lambda request: answer))
    counted = memory.tables["vlm_counts"].to_pylist()
    assert all(row["n_repaired"] == row["n_answers"] and row["n_projected"] == row["n_answers"] for row in counted)
    first = memory.tables["vlm_predictions"].to_pylist()[:2]
    assert first[0]["decoded_id"] == first[1]["decoded_id"] == memory.tables["labels"]["label_id"].to_pylist()[0]
    assert first[1]["top_scores"][0] == pytest.approx(1)
    assert len(set(first[1]["top_ids"])) == 5
    assert first[0]["top_scores"] == sorted(first[0]["top_scores"], reverse=True)


def test_nothing_is_asked_twice_and_another_question_is(tmp_path, monkeypatch) -> None:
    memory, cfg, client = world(), settings(tmp_path, rows=BOTH), FakeClient(lambda request: '{"sequence": ["x"]}')
    ask(memory, cfg, tmp_path, monkeypatch, client)
    n_asked = len(client.asked)
    assert n_asked == len({request.digest() for request in client.asked}) > 0
    ask(world(), cfg, tmp_path, monkeypatch, client)
    assert len(client.asked) == n_asked, "answers lie there by digest"
    ask(world(), cfg.replace(model="another"), tmp_path, monkeypatch, client)
    assert len(client.asked) > n_asked


def test_without_an_answer_a_batch_names_the_request_and_what_to_do(tmp_path, monkeypatch) -> None:
    with pytest.raises(InputError, match=r"no answer yet .* `trajpilot vlm requests`"):
        ask(world(), settings(tmp_path), tmp_path, monkeypatch)


def test_a_subset_has_so_many_windows_of_each_horizon_and_every_row_is_scored_on_it(tmp_path, monkeypatch) -> None:
    memory, cfg = world(), settings(tmp_path, windows_per_horizon=2)
    client = FakeClient(lambda request: "[]")
    ask(memory, cfg, tmp_path, monkeypatch, client)
    answered = {row["unit"]: row["horizon"] for row in memory.tables["vlm_answers"].to_pylist()}
    assert sorted(answered.values()) == [3, 3, 4, 4]
    fit_tables(memory)
    data = on_subset(load_planning_data(memory, "evaluation"), 2, cfg.seed)
    tested = {id_ for one in data.windows.values() for id_, s in zip(one.window_ids, one.split, strict=True) if s == 2}
    assert tested == set(answered)
    assert all(len(one.window_ids) == len(one.segments) == len(one.take) for one in data.windows.values())
    assert torch.is_tensor(data.windows[3].segments)


def test_a_row_of_fewer_windows_is_never_differenced_against_one_of_all(tmp_path, monkeypatch) -> None:
    memory, cfg = world(), settings(tmp_path, rows=BOTH, adapter=TUNED)
    ask(memory, cfg, tmp_path, monkeypatch, knows_all(memory, cfg, monkeypatch))

    def differences() -> set[tuple[str, str]]:
        found = predictions_of(memory.tables["vlm_predictions"])
        rows = metric_rows(found, "test", EvaluationConfig(bootstrap=100))
        return {(row.variant, row.reference) for row in rows if row.reference is not None}

    assert differences() == {("qwen_sft_llm", "qwen_zs")}
    every = memory.tables["vlm_predictions"]
    lost = every.filter(pc.equal(every["variant"], "qwen_zs"))["window_id"][0].as_py()
    is_lost = pc.and_(pc.equal(every["variant"], "qwen_zs"), pc.equal(every["window_id"], lost))
    memory.tables["vlm_predictions"] = every.filter(pc.invert(is_lost))
    assert differences() == set()


def test_an_end_without_an_answer_is_wrong_and_its_window_is_kept(tmp_path, monkeypatch) -> None:
    memory, cfg = world(), settings(tmp_path, rows=("qwen_sft_llm",))
    ask(memory, cfg, tmp_path, monkeypatch, knows_all(memory, cfg, monkeypatch))
    whole = memory.tables["vlm_predictions"].num_rows
    answers = memory.tables["vlm_answers"]
    lost = answers.filter(pc.equal(answers["question"], "segment"))["unit"][0].as_py()
    memory.tables["vlm_answers"] = answers.filter(pc.not_equal(answers["unit"], lost))
    vlm.ROWS.run(Work(memory, cfg, (), memory, Runtime("", "cpu", 1, tmp_path)))
    predicted = memory.tables["vlm_predictions"].to_pylist()
    assert len(predicted) == whole
    segments = {row["window_id"]: row["segment_ids"] for row in memory.tables["windows"].to_pylist()}
    for row in predicted:
        is_lost_end = row["position"] in (0, row["horizon"] - 1) and segments[row["window_id"]][row["position"]] == lost
        assert row["decoded_id"] == (FAILED if is_lost_end else row["label_id"])
    assert any(row["decoded_id"] == FAILED for row in predicted)


def test_a_segment_whose_frames_are_lost_takes_its_windows_with_it_as_counted_rejects(tmp_path, monkeypatch) -> None:
    """The rows of the other windows are as they would be without it."""
    memory, cfg = world(), settings(tmp_path, rows=BOTH)
    client = FakeClient(lambda request: json.dumps({"sequence": ["x"] * request.items}) if request.items > 1 else "x")
    source = vlm.STAGE.sources(memory, cfg, "")[0]
    lost = source.facts["segments"][0][0]
    gone = reject("vlm", RejectCode.DECODE_FAILED, "", "damaged", n_units=0)

    def without_one(video, fps, segments, *rest) -> TakeFrames:
        whole = made_up_frames(video, fps, segments)
        kept = {name: digests for name, digests in whole.of_segment.items() if name != lost}
        return TakeFrames(kept, whole.images, (gone,) if len(kept) < len(segments) else ())

    monkeypatch.setattr(vlm_fixture, "made_up_frames", without_one)
    ask(memory, cfg, tmp_path, monkeypatch, client)
    tested = memory.tables["windows"].filter(pc.equal(memory.tables["windows"]["split"], "test")).to_pylist()
    shown = {row["window_id"] for row in tested if lost not in (row["segment_ids"][0], row["segment_ids"][-1])}
    assert set(memory.tables["vlm_predictions"]["window_id"].to_pylist()) == shown
    assert sum(row.n_units for row in memory.rejects) == len(BOTH) * (len(tested) - len(shown)) + 1 > 1


def test_runs_that_ask_for_none_have_neither_stage_nor_another_key() -> None:
    base = PipelineConfig()
    assert "vlm" not in stages_of(base)
    own = evaluation.completed(base)
    assert own == CompletedEvaluation.completing(base.evaluation)
    assert evaluation.STAGE.under(base).reads == evaluation.STAGE.reads
    asking = recipe("vlm_zero_shot")
    names = list(stages_of(asking))
    assert names.index("vlm") < names.index("vlm_rows") < names.index("evaluation")
    assert "vlm_predictions" in evaluation.STAGE.under(asking).reads
    assert evaluation.completed(asking).further_entries == ("vlm_predictions",)
    blind = recipe("atomic_anticipation")
    for name, stage in stages_of(blind).items():
        if name not in ("evaluation", "report"):
            assert stage.settings(blind) == stage.settings(asking), f"{name} of `atomic_anticipation` is reused"


def test_classes_and_runs_without_videos_are_refused(tmp_path: Path) -> None:
    asking = recipe("vlm_zero_shot")
    with pytest.raises(InputError, match=r"evaluation\.vocabulary=classes"):
        stages_of(asking.replace(evaluation=asking.evaluation.replace(vocabulary="classes")))
    with pytest.raises(InputError, match="needs the videos"):
        stages_of(asking.replace(features=recipe("laptop").features))
