"""Tuning of the recogniser on a tiny random model: it learns pairs, touches language layers alone, and resumes."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_qwen import save_qwen
from vlm_fixture import Shards, made_up_frames, settings, world

from schemas.config import PipelineConfig
from schemas.training import TrainConfig
from schemas.vlm import VlmTuning
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import CheckpointError, InputError, LeakError, TrainingError
from trajpilot_core.stages import vlm
from trajpilot_core.vlm.local.folder import SEEING, model_folder
from trajpilot_core.vlm.local.model import LocalModel, load_model
from trajpilot_core.vlm.material import load_material
from trajpilot_core.vlm.prompts import load_prompts
from trajpilot_core.vlm.requests import Asking
from trajpilot_core.vlm.take import first_round
from trajpilot_core.vlm.tuning import pairs
from trajpilot_core.vlm.tuning.adapter import adapter_tensors, check_adapter, save_adapter
from trajpilot_core.vlm.tuning.fit import TuningTask, answer_loss, answered_inputs, next_batches, tune, tuning_of
from trajpilot_core.vlm.tuning.low_rank import TunedModel, language_projections, require_language
from trajpilot_core.vlm.tuning.pairs import TuningPair, pairs_of, question_of, require_split
from trajpilot_core.vlm.tuning.run import tune_recogniser

SMALL = VlmTuning(
    rounds=2,
    passes=2,
    train=TrainConfig(epochs=1, patience=None, batch=4, lr=1e-2, min_lr=0.0, weight_decay=0.0, precision="fp32"),
)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_qwen(tmp_path_factory.mktemp("qwen3_vl"), "qwen3_vl")


@pytest.fixture(scope="module")
def memory() -> Shards:
    return world()


def load(base: Path) -> LocalModel:
    return load_model(model_folder("vlm.model", str(base), SEEING), None, "cpu")


def shown(pair: TuningPair):
    return made_up_frames(pair.video, pair.fps, [(pair.segment_id, pair.start_s, pair.end_s)])


def task_of(base: Path, memory: Shards, n: int = 8) -> TuningTask:
    asking = Asking(settings(base, exemplars=1), load_prompts(None), load_material(memory))
    train, dev = pairs_of(memory, "train")[:n], pairs_of(memory, "dev")[:2]
    return TuningTask(load(base), asking, shown, train, dev)


def lost(task: TuningTask, pairs) -> float:
    with torch.no_grad():
        network = task.local.network.eval()
        return sum(float(answer_loss(network, *answered_inputs(task, one))) for one in pairs) / len(pairs)


def bytes_of(state) -> dict[str, bytes]:
    return {name: value.numpy().tobytes() for name, value in state.items()}


def test_it_learns_eight_pairs_and_changes_nothing_but_added_weights_of_language_layers(base, memory) -> None:
    task = task_of(base, memory)
    network = task.local.network
    before = {name: value.clone() for name, value in network.state_dict().items()}
    at_first = lost(task, task.train)
    done = tune(task, SMALL.replace(passes=15, dropout=0.0), None)
    assert lost(task, task.train) < 0.3 * at_first
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert all(not value.requires_grad and value.grad is None for value in network.parameters())
    assert len(adapter_tensors(done.state)) == 2 * 2 * 7, "two factors of seven projections of two layers"
    assert any(name.endswith("lora_B.weight") and value.any() for name, value in adapter_tensors(done.state).items())


def test_at_its_start_it_answers_as_the_model_without_it(base, memory) -> None:
    task = task_of(base, memory)
    inputs, _ = answered_inputs(task, task.train[0])
    with torch.no_grad():
        plain = task.local.network(**inputs).logits
        TunedModel(task.local.network, SMALL)
        assert torch.equal(task.local.network(**inputs).logits, plain)


def test_the_loss_is_that_of_the_answer_and_a_loss_on_the_question_differs(base, memory) -> None:
    task = task_of(base, memory)
    inputs, answer = answered_inputs(task, task.train[0])
    assert task.local.tokenizer.decode(answer) == f"{task.train[0].label}<|im_end|>"
    labels = inputs["input_ids"].clone()
    labels[:, : -len(answer)] = -100
    with torch.no_grad():
        own = answer_loss(task.local.network, inputs, answer)
        theirs = task.local.network(**inputs, labels=labels).loss
        on_all = task.local.network(**inputs, labels=inputs["input_ids"]).loss
    torch.testing.assert_close(own, theirs)
    assert abs(float(own) - float(on_all)) > 1e-2, "the comparison would see a loss on the question"


def test_accumulated_gradients_are_those_of_the_mean_loss(base, memory) -> None:
    task = task_of(base, memory)
    training, _ = tuning_of(task, SMALL.replace(dropout=0.0))
    training.loss([0, 1, 2]).backward()
    own = [value.grad.clone() for value in training.model.parameters() if value.grad is not None]
    training.model.zero_grad(set_to_none=True)
    network = task.local.network
    (sum(answer_loss(network, *answered_inputs(task, task.train[row])) for row in range(3)) / 3).backward()
    whole = [value.grad for value in training.model.parameters() if value.grad is not None]
    assert own
    torch.testing.assert_close(own, whole)


def test_a_tuning_that_was_killed_ends_with_the_weights_of_one_that_was_not(base, memory, tmp_path: Path) -> None:
    whole = tune(task_of(base, memory), SMALL, tmp_path / "whole")

    def killed(epoch: int, epochs: int, line: str) -> None:
        if epoch == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune(task_of(base, memory), SMALL, tmp_path / "killed", killed)
    resumed = tune(task_of(base, memory), SMALL, tmp_path / "killed")
    assert bytes_of(resumed.state) == bytes_of(whole.state)
    assert resumed.curve == whole.curve
    other = tune(task_of(base, memory), SMALL.replace(seed=8), None)
    assert bytes_of(other.state) != bytes_of(whole.state), "the comparison would see another order"


def test_a_pass_shows_every_pair_and_rounds_have_equally_many_steps(base, memory) -> None:
    task = task_of(base, memory)
    tuned, cfg = TunedModel(task.local.network, SMALL), SMALL.replace(rounds=3)
    rounds = [next_batches(tuned, 17, cfg) for _ in range(6)]
    assert {len(batches) for batches in rounds} == {2}
    for one_pass in (rounds[:3], rounds[3:]):
        assert {row for batches in one_pass for batch in batches for row in batch} == set(range(17))
    assert rounds[:3] != rounds[3:]


def test_questions_are_those_that_test_segments_are_asked(base, memory, tmp_path: Path) -> None:
    """The same segment, asked as one of test and as one to tune on."""
    cfg = settings(tmp_path, rows=("qwen_sft_llm",), adapter=None)
    asking = Asking(cfg, load_prompts(None), load_material(memory))
    source = vlm.STAGE.sources(memory, cfg, "")[0]
    spans = [(str(one), float(start), float(end)) for one, start, end in source.facts["segments"]]
    from trajpilot_core.vlm.material import AskedWindow
    from trajpilot_core.vlm.take import TakeToAsk

    windows = [AskedWindow(one, horizon, tuple(ids)) for one, horizon, ids in source.facts["windows"]]
    pairs = {one.segment_id: one for one in pairs_of(memory, "test")}
    labels = {name: one.label for name, one in pairs.items()}
    asked = first_round(asking, TakeToAsk(source.shard, windows, labels, made_up_frames("", 30, spans).of_segment))
    assert asked
    for one in asked:
        assert question_of(pairs[one.unit], asking, shown)[0] == one.request


def test_a_pair_of_another_split_is_a_leak(memory) -> None:
    train, test = pairs_of(memory, "train"), pairs_of(memory, "test")
    assert {one.take_id for one in train} & {one.take_id for one in test} == set()
    require_split(memory, train, "train")
    with pytest.raises(LeakError, match=r"is of test; nothing was tuned"):
        require_split(memory, [*train, test[0]], "train")
    with pytest.raises(TrainingError, match="no segment of a train take"):
        require_split(memory, [], "train")


def test_weights_outside_of_language_layers_are_refused(base, memory, tmp_path: Path) -> None:
    names = [name for name, _ in load(base).network.named_modules()]
    seen = next(name for name in names if name.endswith("visual.blocks.0.attn.qkv"))
    with pytest.raises(CheckpointError, match=r"visual\.blocks\.0\.attn\.qkv would be tuned"):
        require_language([seen])
    planted = {f"added.{seen.replace('.', '/')}.down_RI": torch.zeros(2, 2)}
    with pytest.raises(CheckpointError, match="no projection of a language layer"):
        save_adapter(tmp_path / "planted", planted, SMALL, "base", {})
    moe = load(save_qwen(_made(tmp_path / "moe"), "qwen3_vl_moe"))
    with pytest.raises(InputError, match="must be of the kind qwen3_vl"):
        language_projections(moe.network)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_frames_that_cannot_be_decoded_stop_the_tuning_by_the_segments_name(base, memory) -> None:
    task = replace(task_of(base, memory), frames_of=lambda pair: made_up_frames("", 30, []))
    with pytest.raises(TrainingError, match=r"no frame came back .*run features again"):
        answered_inputs(task, task.train[0])


def test_the_command_leaves_a_folder_of_peft_and_goes_on_where_it_was(base, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("trajpilot_core.vlm.frames.take_frames", made_up_frames)
    memory = world()
    cfg = settings(tmp_path, backend="transformers", model=str(base), tuning=SMALL, exemplars=1)
    work = Work(memory, cfg, (), memory, Runtime("", "cpu", 1, tmp_path))
    lines: list[str] = []
    done = tune_recogniser(work, tmp_path / "mine", lines.append)
    assert done.n_rounds == len(lines) - 1
    check_adapter(tmp_path / "mine")
    held = load_file(tmp_path / "mine" / "adapter_model.safetensors")
    assert "base_model.model.model.language_model.layers.0.self_attn.q_proj.lora_A.weight" in held
    with pytest.raises(InputError, match="holds an adapter; name a new folder"):
        tune_recogniser(work, tmp_path / "mine", lines.append)
    monkeypatch.setattr(pairs, "sample_of", lambda pairs, n, seed: pairs_of(memory, "test"))
    with pytest.raises(LeakError):
        tune_recogniser(work, tmp_path / "leak", lines.append)
    changed = shutil.copytree(tmp_path / "mine", tmp_path / "changed")
    save_file({name: value + 1 for name, value in held.items()}, changed / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="it was changed or damaged"):
        check_adapter(changed)


def test_the_folder_answers_in_peft_as_the_tuned_model_does(base, memory, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    task = task_of(base, memory)
    training, _ = tuning_of(task, SMALL)
    for added in training.model.added.values():
        torch.nn.init.normal_(added.up_OR, std=0.1)
    save_adapter(tmp_path / "mine", training.model.state_dict(), SMALL, "base", {})
    inputs, _ = answered_inputs(task, task.train[0])
    tuned = load_model(model_folder("vlm.model", str(base), SEEING), tmp_path / "mine", "cpu")
    training.model.eval()
    with torch.no_grad():
        own, theirs = task.local.network(**inputs).logits, tuned.network(**inputs).logits
        plain = load(base).network(**inputs).logits
    torch.testing.assert_close(own, theirs)
    assert not torch.allclose(own, plain)


def test_settings_of_tuning_leave_keys_as_they_were() -> None:
    assert "tuning" not in PipelineConfig().vlm.content()
    assert "tuning" in vlm.STAGE.outside_shards
