"""Training data of the recogniser: a conversation per training segment, in the trainer's format, and no leak."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
import yaml
from vlm_fixture import Shards, made_up_frames, settings, text_of, world

from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import InputError, LeakError
from trajpilot_core.vlm.material import TakeFrames
from trajpilot_core.vlm.requests import load_asking, segment_request
from trajpilot_core.vlm.training import Exported, check_training, write_training


@pytest.fixture(autouse=True)
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trajpilot_core.vlm.training.take_frames", made_up_frames)


def export(folder: Path, memory: Shards | None = None, **changes: object) -> Exported:
    memory = world() if memory is None else memory
    cfg = settings(folder, rows=("qwen_zs", "qwen_sft_llm"), **changes)
    return write_training(Work(memory, cfg, (), memory, Runtime("", "cpu", 1, folder)), folder / "sft")


def lines(folder: Path) -> list[dict[str, list[dict[str, str]]]]:
    parts = sorted((folder / "sft" / "segments").glob("*.jsonl"))
    return [json.loads(line) for part in parts for line in part.read_text().splitlines()]


def test_every_training_segment_is_a_conversation_and_no_other_is(tmp_path: Path) -> None:
    memory = world()
    made = export(tmp_path, memory)
    takes = memory.tables["takes"]
    train = set(takes.filter(pc.equal(takes["split"], "train"))["take_id"].to_pylist())
    segments = [row for row in memory.tables["segments"].to_pylist() if row["take_id"] in train]
    assert made.n_segments == made.n_conversations == len(segments) == len(lines(tmp_path))
    label_of = text_of(memory)
    answers = sorted(line["messages"][1]["content"] for line in lines(tmp_path))
    assert answers == sorted(label_of[row["segment_id"]] for row in segments)
    written = {path.stem.replace("_", ":", 1) for path in (tmp_path / "sft" / "segments").iterdir()}
    assert written == train
    for line in lines(tmp_path):
        asked, told = line["messages"]
        assert (asked["role"], told["role"]) == ("user", "assistant")
        assert asked["content"].count("<image>") == len(line["images"]) == 2
        assert all((tmp_path / "sft" / name).read_bytes()[:2] == b"\xff\xd8" for name in line["images"])


def test_the_trainer_has_the_papers_values_and_the_list_of_data_sets_names_the_folder(tmp_path: Path) -> None:
    export(tmp_path)
    trainer = yaml.safe_load((tmp_path / "sft" / "lora.yaml").read_text())
    names = ("lora_rank", "lora_alpha", "lora_dropout", "learning_rate", "num_train_epochs", "seed", "train_on_prompt")
    assert [trainer[name] for name in names] == [8, 32, 0.05, 2e-5, 1, 7, False]
    assert len(trainer["lora_target"].split(",")) == 7
    assert 4 * trainer["per_device_train_batch_size"] * trainer["gradient_accumulation_steps"] == 16
    listed = json.loads((tmp_path / "sft" / "dataset_info.json").read_text())
    assert (Path(trainer["dataset_dir"]) / listed[trainer["dataset"]]["file_name"]).is_dir()


def test_a_broken_export_goes_on_and_one_of_other_settings_is_refused(tmp_path: Path) -> None:
    export(tmp_path)
    first, *others = sorted((tmp_path / "sft" / "segments").iterdir())
    content, times = first.read_bytes(), [path.stat().st_mtime_ns for path in others]
    first.rename(first.with_suffix(".part"))  # killed before its name was given
    export(tmp_path)
    assert first.read_bytes() == content
    assert [path.stat().st_mtime_ns for path in others] == times
    with pytest.raises(InputError, match="other settings or other takes"):
        export(tmp_path, exemplars=3)


def test_segments_without_frames_are_rejects_and_rows_balance(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_is_lost(video, fps, segments, *more) -> TakeFrames:
        return made_up_frames(video, fps, segments[1:], *more)

    monkeypatch.setattr("trajpilot_core.vlm.training.take_frames", first_is_lost)
    made = export(tmp_path)
    assert made.n_segments == made.n_conversations + sum(row.n_units for row in made.rejects)
    assert len(made.rejects) == 6
    memory = world()
    memory.tables["takes"] = memory.tables["takes"].set_column(
        memory.tables["takes"].schema.get_field_index("split"), "split", pa.array(["test"] * 10)
    )
    with pytest.raises(InputError, match="no training take"):
        export(tmp_path / "empty", memory)


def test_a_test_take_an_example_of_the_own_scenario_and_the_answer_in_the_prompt_are_refused(tmp_path: Path) -> None:
    """The three planted leaks, each in a conversation that is sound without it."""
    memory = world()
    asking = load_asking(memory, settings(tmp_path))
    take = next(row for row in memory.tables["takes"].to_pylist() if row["split"] == "train")
    segment = next(row for row in memory.tables["segments"].to_pylist() if row["take_id"] == take["take_id"])
    answer = text_of(memory)[segment["segment_id"]]
    request = segment_request(asking, segment["segment_id"], take["scenario"], ("0" * 64,))
    check_training(request, answer, take, asking)
    for split in ("dev", "test"):
        with pytest.raises(LeakError, match=f"is a take of {split}"):
            check_training(request, answer, take | {"split": split}, asking)
    (other,) = set(asking.material.labels_of) - {take["scenario"]}
    leaky = segment_request(asking, segment["segment_id"], other, ("0" * 64,))
    with pytest.raises(LeakError, match="is of no other scenario"):
        check_training(leaky, answer, take, asking)
    (message,) = request.messages
    told = [p.replace(text=f"{p.text} {answer}") if p.section == "instruction" else p for p in message.parts]
    with pytest.raises(LeakError, match="contains the hidden label"):
        check_training(request.replace(messages=(message.replace(parts=(*told,)),)), answer, take, asking)
