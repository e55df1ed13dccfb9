"""Models in this process: random tiny ones of the paper's kinds load, see, answer, and are refused where they must."""

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_qwen import IMAGES, save_qwen, save_tokenizer
from vlm_fixture import ask, settings, world

from schemas.vlm import FAILED, VlmConfig, VlmMessage, VlmPart, VlmReply, VlmRequest
from trajpilot_core.arrays import Image
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.stages import vlm
from trajpilot_core.vlm.answers import AnswerFolder
from trajpilot_core.vlm.clients.in_process import InProcessClient
from trajpilot_core.vlm.local import model as local_model
from trajpilot_core.vlm.local.folder import READING, SEEING, ModelFolder, model_folder, named_by_content
from trajpilot_core.vlm.local.inputs import chat_template, model_inputs, patches
from trajpilot_core.vlm.local.model import LocalModel, load_model, require_memory
from trajpilot_core.vlm.local.rules import fitted, image_rules

KINDS = {"qwen3_vl": SEEING, "qwen3_vl_moe": SEEING, "qwen3_moe": READING}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A random model of each kind. Tests that change files change a copy."""
    place = tmp_path_factory.mktemp("hub")
    return {kind: save_qwen(place / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def models(folders) -> dict[str, LocalModel]:
    return {kind: load_model(folder_of(folders[kind], kind), None, "cpu") for kind in KINDS}


def folder_of(place: Path, kind: str) -> ModelFolder:
    return model_folder("vlm.model", str(place), KINDS[kind])


def frame(seed: int, size: int = 32) -> Image:
    return np.random.default_rng(seed).integers(0, 255, (size, size, 3), dtype=np.uint8)


FRAMES = {"a": frame(0), "b": frame(1)}


def request_of(kind: str, shown: tuple[str, ...] = ("a", "b"), **changes: object) -> VlmRequest:
    """A question with frames, or, to a text model, without."""
    parts = [VlmPart(section="bank", text="cut\nstir")]
    if KINDS[kind] is SEEING:
        parts.append(VlmPart(section="frames", text="START:", frames=shown))
    own: dict[str, object] = {
        "question": "plan" if KINDS[kind] is SEEING else "fill",
        "model": kind,
        "messages": (VlmMessage(role="user", parts=tuple(parts)),),
        "items": 3,
        "max_tokens": 8,
    }
    return VlmRequest.model_validate(own | changes)


def logits(model: LocalModel, request: VlmRequest, frames: Mapping[str, Image]) -> torch.Tensor:
    inputs = model_inputs(request, frames, model.tokenizer, model.template, model.rules, model.image_id)
    with torch.inference_mode():
        return model.network(**inputs).logits[0, -1]


@pytest.mark.parametrize("size", [(32, 32), (64, 96), (48, 48), (20, 33), (336, 336)])
def test_patches_are_those_of_the_models_own_image_processor(folders, size: tuple[int, int]) -> None:
    pytest.importorskip("PIL")
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

    wide = {**IMAGES, "size": {"shortest_edge": 32 * 32, "longest_edge": 512 * 512}}
    theirs = Qwen2VLImageProcessorPil(**wide)
    y, x = np.mgrid[0 : size[0], 0 : size[1]]
    seen = np.stack([(x * 3 + y) % 256, (y * 2) % 256, 255 - (x + y) % 256], axis=-1).astype(np.uint8)
    rules = image_rules(folders["qwen3_vl"])
    rules = type(rules)(**{**vars(rules), "most_px": 512 * 512})
    ours, grid = patches(seen, rules)
    held = theirs(images=[seen], return_tensors="np")
    assert held["image_grid_thw"].tolist() == [list(grid)]
    is_resized = fitted(*size, rules) != size
    allowed = 1.01 * 2 / 255 if is_resized else 1e-6  # of a resized image, one of 256 levels
    assert np.abs(ours.numpy() - held["pixel_values"]).max() <= allowed
    assert np.abs(ours.numpy() - held["pixel_values"]).mean() <= allowed / 4


def test_sizes_are_those_of_the_models_own_image_processor(folders) -> None:
    pytest.importorskip("PIL")
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    rules = image_rules(folders["qwen3_vl"])
    for height in range(16, 200, 7):
        for width in range(16, 200, 11):
            least, most = rules.least_px, rules.most_px
            assert fitted(height, width, rules) == smart_resize(height, width, 32, least, most), (height, width)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_writes_the_likeliest_tokens_and_the_same_after_it_is_loaded_again(folders, models, kind) -> None:
    model, request = models[kind], request_of(kind)
    inputs = model_inputs(request, FRAMES, model.tokenizer, model.template, model.rules, model.image_id)
    n_in = inputs["input_ids"].shape[1]
    with torch.inference_mode():
        for _ in range(request.max_tokens):  # the whole text again for every token: no cache, no search
            new = model.network(**inputs).logits[:, -1].argmax(-1, keepdim=True)
            if int(new) == model.tokenizer.eos_token_id:
                break
            inputs["input_ids"] = torch.cat([inputs["input_ids"], new], dim=1)
            inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
            if "mm_token_type_ids" in inputs:
                inputs["mm_token_type_ids"] = (inputs["input_ids"] == model.image_id).int()
    by_hand = model.tokenizer.decode(inputs["input_ids"][0, n_in:], skip_special_tokens=True)
    reply = model.answer(request, FRAMES)
    assert (reply.text, reply.request, reply.tokens_in) == (by_hand, request.digest(), n_in)
    assert reply.text
    assert (
        reply
        == model.answer(request, FRAMES)
        == load_model(folder_of(folders[kind], kind), None, "cpu").answer(request, FRAMES)
    )


def test_what_the_folder_says_of_sampling_is_ignored(folders, models, tmp_path: Path) -> None:
    folder = shutil.copytree(folders["qwen3_moe"], tmp_path / "own")
    path = folder / "generation_config.json"
    own = {"do_sample": True, "temperature": 5.0, "repetition_penalty": 9.0, "no_repeat_ngram_size": 1}
    path.write_text(json.dumps(json.loads(path.read_text()) | own))
    request = request_of("qwen3_moe", max_tokens=24)
    told = load_model(folder_of(folder, "qwen3_moe"), None, "cpu").answer(request, {})
    assert told.text == models["qwen3_moe"].answer(request, {}).text


@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_vl_moe"])
def test_frames_decide_what_is_answered_and_so_does_their_order(models, kind: str) -> None:
    model, request = models[kind], request_of(kind)
    plain = logits(model, request, FRAMES)
    torch.testing.assert_close(logits(model, request, {name: one.copy() for name, one in FRAMES.items()}), plain)
    for other in ({"a": FRAMES["a"], "b": frame(2)}, {"a": FRAMES["b"], "b": FRAMES["a"]}):
        assert (logits(model, request, other) - plain).abs().max() > 1e-3
    same = {"a": FRAMES["a"], "b": FRAMES["a"]}
    torch.testing.assert_close(logits(model, request, same), logits(model, request_of(kind, ("a", "a")), FRAMES))


def test_a_conversation_has_a_place_for_each_token_of_a_frame_and_no_thinking(models) -> None:
    model = models["qwen3_vl"]
    request = request_of("qwen3_vl", ("a", "large"))
    inputs = model_inputs(
        request, {"a": frame(0), "large": frame(1, 64)}, model.tokenizer, model.template, model.rules, model.image_id
    )
    text = model.tokenizer.decode(inputs["input_ids"][0])
    seen = [f"<|vision_start|>{'<|image_pad|>' * n}<|vision_end|>" for n in (1, 4)]
    assert text == f"<|im_start|>user\ncut\nstirSTART:{''.join(seen)}<|im_end|>\n<|im_start|>assistant\n<think></think>"
    assert inputs["image_grid_thw"].tolist() == [[1, 2, 2], [1, 4, 4]]
    assert int(inputs["mm_token_type_ids"].sum()) == 5
    assert inputs["pixel_values"].shape == (20, 3 * 2 * 16 * 16)
    model = models["qwen3_moe"]
    plain = model_inputs(request_of("qwen3_moe"), {}, model.tokenizer, model.template, None, None)
    assert set(plain) == {"input_ids", "attention_mask"}


def test_a_template_may_lie_next_to_the_tokenizer_and_has_to_be_somewhere(tmp_path: Path) -> None:
    tokenizer = save_tokenizer(tmp_path, template=None)
    with pytest.raises(InputError, match=r"no template of conversations: .* chat_template\.json"):
        chat_template(tokenizer, tmp_path)
    (tmp_path / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    assert chat_template(tokenizer, tmp_path) == "{{ messages }}"


def test_requests_that_a_model_cannot_read_are_refused(models) -> None:
    seeing, reading = models["qwen3_vl"], models["qwen3_moe"]
    with pytest.raises(InputError, match="shows 2 frames to a model that reads text alone"):
        reading.answer(request_of("qwen3_vl"), FRAMES)
    with pytest.raises(InputError, match=r"may be answered with 9000, but .* reads 8,192"):
        seeing.answer(request_of("qwen3_vl", max_tokens=9000), FRAMES)
    with pytest.raises(InputError, match=r"temperature 0\.7"):
        seeing.answer(request_of("qwen3_vl", temperature=0.7), FRAMES)
    marked = VlmMessage(role="user", parts=(VlmPart(section="bank", text="cut <|image_pad|>"),))
    with pytest.raises(InputError, match=r"leaves 1 places .* for 0 frames"):
        seeing.answer(request_of("qwen3_vl", messages=(marked,)), {})


def no_file(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def index_of_two(folder: Path) -> None:
    mapped = {"x": "model.safetensors", "y": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": mapped}))


def cut_weights(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (shutil.rmtree, "is no folder here; .* downloads nothing"),
        (no_file("config.json"), r"no config\.json in"),
        (lambda folder: (folder / "config.json").write_text("{"), r"config\.json is no JSON"),
        (no_file("tokenizer.json"), r"no tokenizer\.json and no vocab\.json with merges\.txt in"),
        (no_file("model.safetensors"), r"no model\.safetensors and no .*index\.json in .*; only safetensors"),
        (no_file("preprocessor_config.json"), r"no preprocessor_config\.json in"),
        (index_of_two, r"lists 2 files, and model-00002-of-00002\.safetensors is missing"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused_by_what_is_missing(folders, tmp_path, fault, message: str) -> None:
    folder = shutil.copytree(folders["qwen3_vl"], tmp_path / "own")
    folder_of(folder, "qwen3_vl")
    fault(folder)
    with pytest.raises(InputError, match=message):
        folder_of(folder, "qwen3_vl")


def test_weights_of_another_kind_or_cut_off_are_refused(folders, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model_type qwen3_moe; what can answer there is qwen3_vl, qwen3_vl_moe"):
        folder_of(folders["qwen3_moe"], "qwen3_vl")
    with pytest.raises(InputError, match=r"model_type qwen3_vl; what can answer there is qwen3, qwen3_moe"):
        folder_of(folders["qwen3_vl"], "qwen3_moe")
    mixed = shutil.copytree(folders["qwen3_moe"], tmp_path / "mixed")
    shutil.copy(folders["qwen3_vl"] / "model.safetensors", mixed)
    with pytest.raises(CheckpointError, match=r"lacks \d+ tensors of Qwen3MoeForCausalLM"):
        load_model(folder_of(mixed, "qwen3_moe"), None, "cpu")
    cut = shutil.copytree(folders["qwen3_moe"], tmp_path / "cut")
    cut_weights(cut)
    with pytest.raises(InputError, match="bytes, but its header states"):
        load_model(folder_of(cut, "qwen3_moe"), None, "cpu")
    rules = cut / "preprocessor_config.json"
    rules.write_text(json.dumps({**IMAGES, "size": {"height": 32, "width": 32}}))
    with pytest.raises(InputError, match=r"KeyError\('shortest_edge'\); needed are"):
        image_rules(cut)


def test_a_model_that_cannot_fit_is_refused_with_the_numbers_before_anything_is_loaded(folders, monkeypatch) -> None:
    folder = folder_of(folders["qwen3_moe"], "qwen3_moe")
    held = load_model(folder, None, "cpu").network
    stated = sum(one.numel() * one.element_size() for one in held.parameters())
    assert folder.weight_bytes == stated, "by the headers alone"
    require_memory(folder, "cpu")
    monkeypatch.setattr(local_model, "free_bytes", lambda device: stated - 1)
    require_memory(folder, "cpu")
    with pytest.raises(InputError, match=rf"{stated:,} bytes, but cuda:0 has {stated - 1:,} free"):
        require_memory(folder, "cuda:0")
    monkeypatch.setattr(local_model, "free_memory", lambda: 1000)
    monkeypatch.setattr(local_model.transformers.AutoTokenizer, "from_pretrained", pytest.fail)
    with pytest.raises(InputError, match="but the host has 1,000 free"):
        load_model(folder, None, "cpu")


def own_settings(folders: Mapping[str, Path], folder: Path, **changes: object) -> VlmConfig:
    own = {"model": str(folders["qwen3_vl"]), "filler": str(folders["qwen3_moe"]), "new_tokens": 8, "segment_tokens": 4}
    return settings(folder, **({"backend": "transformers", "windows_per_horizon": 2} | own | changes))


def test_random_weights_answer_every_question_and_score_nothing(folders, tmp_path, monkeypatch) -> None:
    """The weights are random by seed 0; were an answer readable by chance, the counts below would say so."""
    clients: list[InProcessClient] = []
    monkeypatch.setattr(InProcessClient, "ask", remembered(InProcessClient.ask, clients))
    cfg = own_settings(folders, tmp_path, rows=("qwen_zs", "qwen_sft_llm"))
    memory = ask(world(), cfg, tmp_path, monkeypatch)
    counted = memory.tables["vlm_counts"].to_pylist()
    windows = [row for row in counted if row["horizon"] > 1]
    assert all(row["n_failed"] == row["n_answers"] > 0 and not row["is_stub"] for row in windows)
    predicted = memory.tables["vlm_predictions"]
    zero_shot = [row["decoded_id"] for row in predicted.to_pylist() if row["variant"] == "qwen_zs"]
    assert set(zero_shot) == {FAILED}
    assert {row["answered_by"].split("@")[0] for row in memory.tables["vlm_answers"].to_pylist()} == {
        "qwen3_vl",
        "qwen3_moe",
    }
    assert len(memory.shards) > 1
    (client,) = {id(one): one for one in clients}.values()
    assert client.loaded == [str(folders["qwen3_vl"]), str(folders["qwen3_moe"])], "each once, although takes alternate"
    monkeypatch.setattr(InProcessClient, "ask", lambda *_: pytest.fail("asked again"))
    again = ask(world(), cfg, tmp_path, monkeypatch)
    assert again.tables["vlm_predictions"].equals(predicted)


def remembered(plain: Callable, clients: list[InProcessClient]) -> Callable:
    def asked(self: InProcessClient, *rest: object) -> object:
        clients.append(self)
        return plain(self, *rest)

    return asked


def test_a_kill_loses_no_answer(folders, tmp_path, monkeypatch) -> None:
    cfg = own_settings(folders, tmp_path)
    plain, n_asked = LocalModel.answer, []

    def killed(self: LocalModel, request: VlmRequest, frames: Mapping[str, Image]) -> VlmReply:
        n_asked.append(request.digest())
        if len(n_asked) == 3:
            raise KeyboardInterrupt
        return plain(self, request, frames)

    monkeypatch.setattr(LocalModel, "answer", killed)
    with pytest.raises(KeyboardInterrupt):
        ask(world(), cfg, tmp_path, monkeypatch)
    assert AnswerFolder(cfg.answers).missing(n_asked) == n_asked[2:]
    ask(world(), cfg, tmp_path, monkeypatch)
    assert len(n_asked) == len(set(n_asked)) + 1, "only the one that was interrupted is asked twice"


def test_models_are_named_by_their_content_and_their_files_enter_the_key(folders, tmp_path: Path) -> None:
    cfg = own_settings(folders, tmp_path, rows=("qwen_zs", "qwen_sft_llm"))
    named = named_by_content(cfg)
    moved = shutil.copytree(folders["qwen3_vl"], tmp_path / "qwen3_vl")
    assert named_by_content(cfg.replace(model=str(moved))).model == named.model, "the same weights elsewhere"
    save_qwen(moved, "qwen3_vl", seed=1)
    assert named_by_content(cfg.replace(model=str(moved))).model != named.model, "other weights there"
    assert named_by_content(cfg.replace(backend="batch_file")).model == str(folders["qwen3_vl"])
    (source, *_) = vlm.STAGE.sources(world(), cfg, "")
    assert {Path(path).parent.name for path in source.files[1:]} == {"qwen3_vl", "qwen3_moe"}
    assert vlm.STAGE.on_gpu(cfg)
    assert not vlm.STAGE.on_gpu(cfg.replace(backend="batch_file"))
    (alone, *_) = vlm.STAGE.sources(world(), cfg.replace(rows=("qwen_zs",), filler="nowhere"), "")
    assert {Path(path).parent.name for path in alone.files[1:]} == {"qwen3_vl"}


def test_tuned_weights_without_peft_are_refused_by_the_name_of_the_extra(folders, tmp_path, monkeypatch) -> None:
    cfg = own_settings(folders, tmp_path, rows=("qwen_sft_llm",), adapter=str(tmp_path))
    with pytest.raises(InputError, match=r"no adapter_config\.json and no adapter_model\.safetensors in"):
        ask(world(), cfg, tmp_path, monkeypatch)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setattr(local_model, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"vlm\.adapter needs peft, .*`pip install -e \.\[vlm\]`"):
        ask(world(), cfg, tmp_path, monkeypatch)


def test_tuned_weights_answer_requests_that_name_them_and_no_others(folders, models, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    base = load_model(folder_of(folders["qwen3_vl"], "qwen3_vl"), None, "cpu").network
    torch.manual_seed(0)
    lora = peft.LoraConfig(r=2, target_modules=r".*language_model.*(q_proj|v_proj)", init_lora_weights=False)
    peft.get_peft_model(base, lora).save_pretrained(tmp_path)
    tuned = load_model(folder_of(folders["qwen3_vl"], "qwen3_vl"), tmp_path, "cpu")
    plain = request_of("qwen3_vl", max_tokens=16)
    own = plain.replace(adapter="mine")
    assert tuned.answer(plain, FRAMES) == models["qwen3_vl"].answer(plain, FRAMES)
    assert tuned.answer(own, FRAMES).text != models["qwen3_vl"].answer(plain, FRAMES).text
    assert tuned.answer(own, FRAMES).answered_by == "qwen3_vl with mine"
    from safetensors.torch import load_file, save_file

    path = tmp_path / "adapter_model.safetensors"
    held = load_file(path)
    save_file(dict(list(held.items())[1:]), path)
    with pytest.raises(CheckpointError, match="lacks 1 of its own"):
        load_model(folder_of(folders["qwen3_vl"], "qwen3_vl"), tmp_path, "cpu")
