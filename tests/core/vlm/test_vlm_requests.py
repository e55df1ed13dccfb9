"""Requests, and files of them for another program; what is said, what the linter refuses, how answers are read."""

import base64
import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np
import pytest
from vlm_fixture import TUNED, ask, knows_all, made_up_frames, settings, text_of, world

from schemas.vlm import VlmPart, VlmReply, VlmRequest
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import InputError, LeakError, StoreError
from trajpilot_core.stages import vlm
from trajpilot_core.stages.vlm import collect, write_requests
from trajpilot_core.vlm.linter import check_request
from trajpilot_core.vlm.material import AskedWindow, sampled
from trajpilot_core.vlm.parsing import parse_label, parse_sequence
from trajpilot_core.vlm.payload import AnswerFolder, line, replies_in
from trajpilot_core.vlm.requests import (
    Asking,
    fill_request,
    load_asking,
    prompt,
    segment_request,
    window_request,
)

BOTH = ("qwen_zs", "qwen_sft_llm")


@pytest.fixture
def asking(tmp_path: Path) -> Asking:
    return load_asking(world(), settings(tmp_path))


@pytest.fixture
def window() -> AskedWindow:
    memory = world()
    row = next(row for row in memory.tables["windows"].to_pylist() if row["split"] == "test" and row["horizon"] == 4)
    return AskedWindow(row["window_id"], row["horizon"], tuple(row["segment_ids"]))


def truth_of(window: AskedWindow) -> list[str]:
    return [text_of(world())[one] for one in window.segment_ids]


def request_of(asking: Asking, window: AskedWindow, start: str | None = None, goal: str | None = None) -> VlmRequest:
    scenario = next(iter(asking.material.labels_of))
    return fill_request(asking, window, scenario, start, goal, has_goal=True)


def with_part(request: VlmRequest, section: str, text: str) -> VlmRequest:
    """The request with other words in the last part of that section."""
    message = request.messages[-1]
    parts = tuple(part.replace(text=text) if part.section == section else part for part in message.parts)
    return request.replace(messages=(*request.messages[:-1], message.replace(parts=parts)))


def test_the_bank_comes_first_or_last_as_a_setting_says_and_none_of_its_labels_runs_into_what_is_next_to_it(
    asking: Asking,
) -> None:
    first = window_request(asking, 4, ("a",), ("b",))
    last = window_request(replace(asking, config=asking.config.replace(bank_first=False)), 4, ("a",), ("b",))
    assert [part.section for part in first.messages[0].parts] == ["bank", "frames", "frames", "instruction"]
    assert [part.section for part in last.messages[0].parts] == ["frames", "frames", "instruction", "bank"]
    assert first.digest() != last.digest()
    for bank_first in (True, False):
        asked = replace(asking, config=asking.config.replace(bank_first=bank_first))
        window = AskedWindow("w", 4, ("a", "b", "c", "d"))
        for request in (window_request(asked, 4, ("a",), ("b",)), request_of(asked, window)):
            lines = "".join(part.text for part in request.messages[-1].parts).splitlines()
            assert set(asking.material.bank) <= set(lines)
    alone = window_request(asking, 4, ("a",), None)
    assert [part.frames for part in alone.messages[0].parts if part.frames] == [("a",)]
    assert "GOAL" not in "".join(part.text for part in alone.messages[0].parts if part.section == "frames")


def test_examples_are_labels_of_other_scenarios_and_sequences_are_of_training_takes_of_its_own(asking: Asking) -> None:
    scenario = sorted(asking.material.labels_of)[0]
    request = segment_request(asking, "a segment", scenario, ("a",))
    lines = next(part.text for part in request.messages[0].parts if part.section == "exemplars").splitlines()[1:]
    assert len(lines) == 4 == len(set(lines))
    assert not set(lines) & set(asking.material.labels_of[scenario])
    window = AskedWindow("w", 3, ("a", "b", "c"))
    held = asking.material.sequences(window, scenario, 8, 7)
    assert len(held) == min(8, len(asking.material.sequences_of[scenario, 3])) > 0
    tables, label_of = world().tables, text_of(world())
    its = {
        row["take_id"] for row in tables["takes"].to_pylist() if (row["split"], row["scenario"]) == ("train", scenario)
    }
    windows = [row["segment_ids"] for row in tables["windows"].to_pylist() if row["take_id"] in its]
    assert set(held) <= {tuple(label_of[segment] for segment in segments) for segments in windows}


def test_what_is_sampled_follows_from_the_name_alone() -> None:
    assert sampled("7:x", 100, 8) == sampled("7:x", 100, 8) != sampled("7:y", 100, 8)
    assert sorted(sampled("7:x", 5, 8)) == [0, 1, 2, 3, 4]
    assert sampled("7:x", 0, 8) == []


def test_a_middle_label_outside_of_bank_and_sequences_is_refused(asking, window, subtests: pytest.Subtests) -> None:
    """A goal that was not recognised, an order of the bank that tells frequency, and strangers' labels, too."""
    truth, said, bank = truth_of(window), prompt, asking.material.bank
    ends = (truth[0], truth[-1])
    told, blank = request_of(asking, window, *ends), request_of(asking, window)
    shown = window_request(asking, 4, ("a",), ("b",))
    own = segment_request(asking, "a segment", "elsewhere", ("a",))
    middle = json.dumps([truth[0], truth[1], -1, truth[-1]])
    strangers = json.dumps(["never", "seen", "in", "training"])
    faults = [
        (told, "instruction", f"{said('fill', 4)} Perhaps {truth[1]}.", ends, "section instruction of"),
        (told, "incomplete", f"{said('incomplete')}\n{middle}", ends, "section incomplete of"),
        (told, "", "", ends[:1], "section incomplete"),
        (shown, "frames", f"START: {truth[2]}", (), "section frames"),
        (shown, "bank", "\n".join([said("bank"), *reversed(bank)]), (), "alphabetical order"),
        (shown, "bank", "\n".join([said("bank"), *bank[:2]]), (), "2 labels listed"),
        (blank, "sequences", f"{said('sequences')}\n{strangers}", (), "not from a training take"),
        (own, "exemplars", f"{said('exemplars')}\nnever seen in training", (), "not a label of a training take"),
    ]
    for sound, given in ((told, ends), (shown, ())):
        check_request(sound, truth, given, asking.material)
    for request, section, planted, given, words in faults:
        with subtests.test(words), pytest.raises(LeakError, match=words):
            check_request(with_part(request, section, planted), truth, given, asking.material)


def test_a_line_of_a_batch_file_carries_digest_frames_and_greedy_settings(asking: Asking) -> None:
    frame = np.random.default_rng(0).integers(0, 255, (32, 32, 3), dtype=np.uint8)
    request = window_request(asking, 4, ("a",), ("a",))
    row = json.loads(line(request, {"a": frame}))
    assert row["custom_id"] == request.digest()
    body = row["body"]
    assert (body["temperature"], body["top_p"], body["max_tokens"], body["model"]) == (0, 1, 256, asking.config.model)
    urls = [one["image_url"]["url"] for one in body["messages"][0]["content"] if one["type"] == "image_url"]
    assert len(urls) == 2
    held = cv2.imdecode(np.frombuffer(base64.b64decode(urls[0].split(",")[1]), np.uint8), cv2.IMREAD_COLOR)
    assert (cv2.cvtColor(held, cv2.COLOR_BGR2RGB) == frame).all(), "PNG loses nothing"


def work(memory, cfg, folder: Path) -> Work:
    pending = tuple(vlm.STAGE.sources(memory, cfg, ""))
    return Work(memory, cfg, pending, memory, Runtime("", "cpu", 1, folder))


def answered(files: list[Path], out: Path) -> Path:
    """What `vllm run-batch` would write."""
    rows = []
    for text in (one for path in files for one in path.read_text().splitlines()):
        asked = json.loads(text)
        message = {"role": "assistant", "content": '{"sequence": ["x"]}'}
        response = {"status_code": 200, "body": {"model": asked["body"]["model"], "choices": [{"message": message}]}}
        rows.append({"id": "x", "custom_id": asked["custom_id"], "response": response, "error": None})
    out.write_text("\n".join(json.dumps(row) for row in rows))
    return out


def test_requests_go_out_in_files_and_their_answers_fill_the_rows(tmp_path: Path, monkeypatch) -> None:
    """Two rounds: fills rest on recognised endpoints. Then the stage runs without asking anybody."""
    monkeypatch.setattr("trajpilot_core.vlm.material.take_frames", made_up_frames)
    memory, cfg = world(), settings(tmp_path, rows=BOTH, adapter=TUNED)
    for number, waits in enumerate((True, False)):
        written, n_waiting = write_requests(work(memory, cfg, tmp_path), tmp_path / f"out{number}")
        assert (len(written.digests) > 0, bool(n_waiting)) == (True, waits)
        result = answered(written.paths, tmp_path / f"results{number}.jsonl")
        assert collect([result], cfg.answers) == (len(written.digests), 0, [])
        assert collect([result], cfg.answers) == (0, len(written.digests), [])
    assert not write_requests(work(memory, cfg, tmp_path), tmp_path / "out2")[0].digests
    with pytest.raises(InputError, match="already has files of requests"):
        write_requests(work(memory, cfg, tmp_path), tmp_path / "out0")
    ask(memory, cfg, tmp_path, monkeypatch)
    assert set(memory.tables["vlm_predictions"]["variant"].to_pylist()) == set(BOTH)


def test_lines_without_an_answer_are_named_and_the_others_are_read() -> None:
    good = {
        "custom_id": "a" * 64,
        "response": {"status_code": 200, "body": {"model": "m", "choices": [{"message": {"content": "x"}}]}},
    }
    bad = [
        json.dumps(good | {"error": "out of memory"}),
        json.dumps(good | {"response": {"status_code": 500, "body": {}}}),
        json.dumps(good | {"response": {"status_code": 200, "body": {"model": "m", "choices": []}}}),
        "no JSON",
        "[]",
        '{"custom_id": "b"}',
        json.dumps(good | {"custom_id": "../../" + "a" * 64}),
        "[" * 1000 + "]" * 1000,
        "9" * 5000,
    ]
    found, faults = replies_in([json.dumps(good), "", *bad], "f.jsonl")
    assert [(one.request, one.text, one.answered_by) for one in found] == [("a" * 64, "x", "m")]
    assert len(faults) == len(bad)
    assert faults[0].startswith("f.jsonl:3: the request failed: out of memory")


def test_a_damaged_answer_and_one_to_another_request_are_refused(tmp_path: Path) -> None:
    answers = AnswerFolder(str(tmp_path))
    answers.put(VlmReply(request="ab12", text="x", answered_by="m"))
    assert answers.get("ab12").text == "x"
    assert answers.missing(["ab12", "cd", "cd"]) == ["cd"]
    answers.path("ab13").write_bytes(answers.path("ab12").read_bytes())
    with pytest.raises(StoreError, match="answers the request ab12"):
        answers.get("ab13")
    answers.path("ab12").write_text("{")
    with pytest.raises(StoreError, match="is not a valid answer"):
        answers.get("ab12")


def test_a_prompt_without_goal_never_tells_the_goal(tmp_path: Path, monkeypatch) -> None:
    memory, cfg = world(), settings(tmp_path, rows=BOTH, anticipates=True)
    client = knows_all(memory, cfg, monkeypatch)
    ask(memory, cfg, tmp_path, monkeypatch, client)
    blind = [request for request in client.asked if request.question == "continue"]
    assert blind
    for request in blind:
        text = next(part.text for part in request.messages[-1].parts if part.section == "incomplete")
        assert json.loads(text.splitlines()[-1])[1:] == [-1] * (request.items - 1)
    assert VlmPart(section="frames").text == ""


# What models write is read wherever it can be; only text without JSON fails.

RIGHT = ("cut the onion", "stir", "taste")
PLAIN = '{"sequence": ["cut the onion", "stir", "taste"]}'


def test_a_sequence_is_read_out_of_whatever_stands_around_it() -> None:
    for text in (
        PLAIN,
        f"```json\n{PLAIN}\n```",
        f"Here is the plan:\n\n{PLAIN}\nI hope that it helps.",
        f'<think>First {{"sequence": ["no"]}} perhaps.</think>\n{PLAIN}',
        f"</think>{PLAIN}",
        '{"sequence": [{"action_name": "cut the onion"}, {"action_name": "stir"}, {"action_name": "taste"}]}',
        '["cut the onion", "stir", "taste"]',
        '[{"action": "cut the onion"}, {"name": "stir"}, {"label": " taste "}]',
        f"A note {{not JSON}} and [brackets], then {PLAIN}",
    ):
        parsed = parse_sequence(text, 3)
        assert (parsed.labels, parsed.is_repaired, parsed.is_failed) == (RIGHT, False, False), text


def test_a_sequence_of_another_length_is_cut_or_filled_and_counted() -> None:
    for items, labels in ((2, RIGHT[:2]), (4, (*RIGHT, "taste")), (5, (*RIGHT, "taste", "taste"))):
        parsed = parse_sequence(PLAIN, items)
        assert (parsed.labels, parsed.is_repaired) == (labels, True)


def test_what_holds_no_whole_sequence_fails() -> None:
    objects = '{"sequence": [{"action_name": "cut"}, {"action_name": "st'
    plain = ("", "I cannot see the pictures.", '["cut", "stir"', '{"sequence": []}', "}}}{{{ [[[", "[" * 5000)
    for text in (*plain, PLAIN[:-8], objects, f"<think>{PLAIN}"):
        assert parse_sequence(text, 3).is_failed, text


def test_an_open_place_is_no_label_letters_of_all_scripts_are_and_a_label_may_be_named_twice() -> None:
    found = parse_sequence('{"sequence": ["a", -1, "-1", null, "切る 🥕", "a"]}', 6)
    assert found.labels == ("a", None, None, None, "切る 🥕", "a")
    parsed = parse_sequence('{"sequence": ["stir", "stir", "taste", "stir"]}', 4)
    assert (parsed.labels, parsed.is_repaired) == (("stir", "stir", "taste", "stir"), False)


def test_the_label_of_a_segment_is_its_first_line() -> None:
    for text in ("stir", '"stir"', "stir.", "<think>hm</think>\n\nstir\nI am sure.", "```\nstir\n```", "`stir`"):
        assert parse_label(text).labels == ("stir",)
    for text in ("", "\n \n", "<think>stir", '""'):
        assert parse_label(text).is_failed
