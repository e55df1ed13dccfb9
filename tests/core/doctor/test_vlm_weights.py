"""Vision-language models are looked at, and what asking them costs is stated, before anything is asked."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_qwen import save_qwen
from typer.testing import CliRunner
from vlm_fixture import made_up_frames, settings, world

from deployments.cli import vlm as commands
from deployments.cli.main import app
from schemas.config import PipelineConfig, RunOptions, TextConfig
from schemas.training import TrainConfig
from schemas.vlm import VlmConfig, VlmMachine, VlmTuning
from trajpilot_core.doctor import vlm_weights
from trajpilot_core.doctor.preflight import preflight, require_outside
from trajpilot_core.doctor.vlm_weights import check_vlm, findings
from trajpilot_core.engine.needs import GB, NeedsMachine
from trajpilot_core.engine.sizes import paper_sizes
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.errors import InputError
from trajpilot_core.stages import vlm, vlm_rows
from trajpilot_core.vlm.cost.asked import assumed_kinds, counted_kinds
from trajpilot_core.vlm.cost.statement import hours, model_memory, stated
from trajpilot_core.vlm.local.adapters import require_base
from trajpilot_core.vlm.local.folder import READING, SEEING, model_folder
from trajpilot_core.vlm.local.model import load_model
from trajpilot_core.vlm.local.prefix import computed
from trajpilot_core.vlm.local.shape import ModelShape, model_shape
from trajpilot_core.vlm.take import first_round, second_round
from trajpilot_core.vlm.tuning.adapter import save_adapter
from trajpilot_core.vlm.tuning.low_rank import TunedModel

BOTH = ("qwen_zs", "qwen_sft_llm")
SMALL = VlmTuning(train=TrainConfig(epochs=1, patience=None, batch=4, precision="fp32"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("hub")
    return {kind: save_qwen(place / kind, kind) for kind in ("qwen3_vl", "qwen3_vl_moe", "qwen3_moe")}


@pytest.fixture(scope="module")
def adapter(folders, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Weights that were tuned for the tiny model, as `trajpilot vlm tune` leaves them."""
    network = load_model(model_folder("x", str(folders["qwen3_vl"]), SEEING), None, "cpu").network
    folder = tmp_path_factory.mktemp("adapter")
    save_adapter(folder, TunedModel(network, SMALL).state_dict(), SMALL, "qwen3_vl@1234", {})
    return folder


@pytest.fixture(autouse=True)
def with_peft(monkeypatch: pytest.MonkeyPatch) -> None:
    """The extra counts as installed, whether it is or not."""
    monkeypatch.setattr(vlm_weights.importlib.util, "find_spec", lambda name: object())


def asked(folders: dict[str, Path], folder: Path, **changes: object) -> VlmConfig:
    own = {"model": str(folders["qwen3_vl"]), "filler": str(folders["qwen3_moe"]), "backend": "transformers"}
    return settings(folder, **({"rows": BOTH, "new_tokens": 8} | own | changes))


def verdicts(cfg: VlmConfig, inputs=None) -> dict[str, str]:
    return {one.what: one.verdict for one in findings(cfg, "cpu", inputs or world(), None)}


def bad(cfg: VlmConfig) -> dict[str, str]:
    return {one.what: one.found for one in findings(cfg, "cpu", world(), None) if one.verdict == "bad"}


def test_whole_folders_pass_and_everything_is_stated(folders, adapter: Path, tmp_path: Path) -> None:
    said = findings(asked(folders, tmp_path, adapter=str(adapter)), "cpu", world(), None)
    assert {one.what: one.verdict for one in said} == {
        "weights of vlm.model": "ok",
        "weights of vlm.adapter": "ok",
        "weights of vlm.filler": "ok",
        "questions of vlm": "ok",
        "longest prompt of vlm.model": "ok",
        "memory of vlm.model": "ok",
        "hours of vlm.model": "note",
        "longest prompt of vlm.filler": "ok",
        "memory of vlm.filler": "ok",
        "hours of vlm.filler": "note",
    }
    hours_said = next(one.found for one in said if one.what == "hours of vlm.model")
    assert hours_said.startswith("an estimate, nothing was measured")
    assert "400 TFLOP/s and 2400 GB/s (vlm.assumed)" in hours_said


def without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def shard_lost(folder: Path) -> None:
    mapped = {"x": "model.safetensors", "y": "model-00002-of-00002.safetensors"}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": mapped}))


def index_with_a_stranger(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"weight_map": {"model.language_model.gone": "model.safetensors"}})
    )


def tensor_lost(part: str) -> Callable[[Path], object]:
    def lost(folder: Path) -> None:
        path = folder / "model.safetensors"
        save_file({name: value for name, value in load_file(path).items() if part not in name}, path)

    return lost


def config_without(key: str) -> Callable[[Path], object]:
    def lost(folder: Path) -> None:
        held = json.loads((folder / "config.json").read_text())
        del held["text_config"][key]
        (folder / "config.json").write_text(json.dumps(held))

    return lost


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (shutil.rmtree, "is no folder here"),
        (shard_lost, "model-00002-of-00002.safetensors is missing"),
        (index_with_a_stranger, "1 tensors are missing, model.language_model.gone for one"),
        (tensor_lost("layers.1.self_attn.k_proj"), "1 tensors are missing, layers.1.self_attn.k_proj.weight for one"),
        (tensor_lost("layers.1."), "tensors are missing, layers.1.input_layernorm.weight for one"),
        (tensor_lost("embed_tokens"), "embed_tokens for one"),
        (tensor_lost(".visual."), "the part that sees for one"),
        (without("tokenizer.json"), "no tokenizer.json"),
        (without("preprocessor_config.json"), "no preprocessor_config.json"),
        (lambda folder: (folder / "preprocessor_config.json").write_text("{}"), "KeyError('patch_size')"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"12345678{"), "but its header states"),
        (config_without("num_hidden_layers"), "KeyError('num_hidden_layers')"),
    ],
)
def test_a_folder_that_is_not_whole_stops_a_run_by_what_is_missing(folders, tmp_path, fault, found: str) -> None:
    own = shutil.copytree(folders["qwen3_vl"], tmp_path / "own")
    cfg = asked(folders, tmp_path, model=str(own))
    assert not bad(cfg)
    fault(own)
    assert found in bad(cfg)["weights of vlm.model"]


def test_models_of_another_kind_stop_a_run(folders, tmp_path: Path) -> None:
    swapped = asked(folders, tmp_path, model=str(folders["qwen3_moe"]), filler=str(folders["qwen3_vl"]))
    found = bad(swapped)
    assert "model_type qwen3_moe; what can answer there is qwen3_vl" in found["weights of vlm.model"]
    assert "model_type qwen3_vl; what can answer there is qwen3, qwen3_moe" in found["weights of vlm.filler"]
    assert "weights of vlm.filler" not in verdicts(swapped.replace(rows=("qwen_zs",))), "it is not asked"


def no_lora(folder: Path) -> None:
    (folder / "adapter_config.json").write_text('{"peft_type": "IA3"}')


def changed(folder: Path) -> None:
    path = folder / "adapter_model.safetensors"
    save_file({name: value + 1 for name, value in load_file(path).items()}, path)


def wider(folder: Path) -> None:
    (folder / "tuning.json").unlink()
    path = folder / "adapter_model.safetensors"
    save_file({k: torch.zeros(8, 77) if "lora_A" in k else v for k, v in load_file(path).items()}, path)


def one_more_layer(folder: Path) -> None:
    (folder / "tuning.json").unlink()
    path = folder / "adapter_model.safetensors"
    save_file({k.replace("layers.1.", "layers.7."): v for k, v in load_file(path).items()}, path)


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (without("adapter_model.safetensors"), "no adapter_model.safetensors in"),
        (no_lora, "peft_type IA3"),
        (changed, "was changed or damaged"),
        (wider, "14 of 28 tensors do not fit"),
        (one_more_layer, "14 of 28 tensors do not fit"),
        (lambda folder: (folder / "adapter_config.json").write_text("{"), "cannot be read as JSON"),
    ],
)
def test_an_adapter_that_is_damaged_or_another_models_stops_a_run(folders, adapter, tmp_path, fault, found) -> None:
    own = shutil.copytree(adapter, tmp_path / "own")
    cfg = asked(folders, tmp_path, adapter=str(own))
    assert not bad(cfg)
    fault(own)
    assert found in bad(cfg)["weights of vlm.adapter"]


def test_an_adapter_without_peft_and_one_of_a_model_with_other_weights_are_refused(
    folders, adapter, tmp_path, monkeypatch
) -> None:
    cfg = asked(folders, tmp_path, adapter=str(adapter))
    moe = cfg.replace(model=str(folders["qwen3_vl_moe"]))
    assert "tensors do not fit" in bad(moe)["weights of vlm.adapter"]
    require_base(adapter, "elsewhere@1234")
    with pytest.raises(InputError, match=r"was tuned for qwen3_vl@1234, and vlm\.model is qwen3_vl@9999"):
        require_base(adapter, "qwen3_vl@9999")
    with pytest.raises(InputError, match="was tuned for qwen3_vl@1234"):
        vlm.asking_of(world(), cfg)
    monkeypatch.setattr(vlm_weights.importlib.util, "find_spec", lambda name: None)
    assert "peft is not installed" in bad(cfg)["weights of vlm.adapter"]


def test_a_prompt_that_is_longer_than_the_model_reads_stops_a_run_with_both_figures(folders, tmp_path: Path) -> None:
    own = shutil.copytree(folders["qwen3_vl"], tmp_path / "own")
    held = json.loads((own / "config.json").read_text())
    held["text_config"]["max_position_embeddings"] = 300
    (own / "config.json").write_text(json.dumps(held))
    cfg = asked(folders, tmp_path, model=str(own))
    (found,) = [one for one in findings(cfg, "cpu", world(), None) if one.verdict == "bad"]
    longest = max(one.longest + one.most_new for one in counted_kinds(world(), cfg) if not one.fills)
    assert found.what == "longest prompt of vlm.model"
    assert (found.expected, found.found) == ("<= 300 tokens with its answer", f"{longest:,}")
    assert longest > 300


def test_too_little_memory_stops_a_run_with_figures_and_can_be_ignored(folders, tmp_path, monkeypatch) -> None:
    cfg = asked(folders, tmp_path)
    monkeypatch.setattr(vlm_weights, "free_memory", lambda: 900_000_000)
    (found, _) = [one for one in findings(cfg, "cpu", world(), None) if one.verdict == "bad"]
    assert found.what == "memory of vlm.model"
    assert found.expected.startswith(">= 1.0 GB, an estimate: weights 1 MB, keys and values")
    assert found.found == "900 MB"
    monkeypatch.setattr(vlm_weights, "resolve_device", lambda device: "cuda")
    monkeypatch.setattr(vlm_weights, "gpu_memory", lambda device: 500_000_000)
    assert set(bad(cfg)) == {"GPU memory of vlm.model", "GPU memory of vlm.filler"}, "the host holds the weights alone"
    monkeypatch.setattr(vlm_weights, "known_of", lambda config, run: (world(), None))
    config = PipelineConfig(vlm=cfg, text_bank=TextConfig(encoder="bag_of_words"))
    run = RunOptions(root=str(tmp_path / "root"), data_root=str(tmp_path), device="cpu")
    assert [one.verdict for one in check_vlm(config, run)].count("bad") == 2
    assert "bad" not in [one.verdict for one in check_vlm(config, run.replace(ignore_needs=True))]


def test_the_preflight_looks_at_them_before_there_are_windows_and_stops_the_run(folders, tmp_path: Path) -> None:
    config = PipelineConfig(vlm=asked(folders, tmp_path), text_bank=TextConfig(encoder="bag_of_words"))
    run = RunOptions(root=str(tmp_path / "root"), data_root=str(tmp_path), device="cpu")
    found = {one.what: one for one in preflight(config, run, ["vlm"])}
    assert "plan 60,186" in found["questions of vlm"].found
    assert found["questions of vlm"].found.endswith("at the paper's sizes")
    assert found["longest prompt of vlm.model"].verdict == "note", "these sizes are not the run's own"
    require_outside(config, run, ["vlm"])
    swapped = config.replace(vlm=config.vlm.replace(model=str(folders["qwen3_moe"])))
    with pytest.raises(InputError, match=r"nothing was begun, .*weights of vlm\.model: .*model_type qwen3_moe"):
        require_outside(swapped, run, ["vlm"])
    require_outside(swapped, run, ["vlm_rows"])
    assert preflight(config.replace(vlm=VlmConfig()), run, ["vlm"]) == []


def test_other_programs_are_told_of_by_name_with_bytes_and_what_is_assumed(tmp_path: Path) -> None:
    said = {one.what: one for one in findings(settings(tmp_path, rows=BOTH), "cpu", world(), None)}
    assert {one.verdict for one in said.values()} <= {"ok", "note"}
    assert "only that program finds out" in said["weights of vlm.model"].found
    assert "as requests, an estimate" in said["bytes of vlm"].found
    assert "unverified" in said["memory of vlm.model"].expected
    assert "unverified" in said["hours of vlm.model"].found


def test_questions_are_counted_as_they_are_asked(folders, tmp_path, monkeypatch) -> None:
    """Of every kind as many, and as long as the model's own conversation, but for what its template writes."""
    monkeypatch.setattr("trajpilot_core.vlm.frames.take_frames", made_up_frames)
    cfg, memory = asked(folders, tmp_path, anticipates=True, exemplars=2), world()
    model = load_model(model_folder("x", cfg.model, SEEING), None, "cpu")
    asking, real = vlm.asking_of(memory, cfg), []
    pending = tuple(vlm.STAGE.sources(memory, cfg, ""))
    work = Work(memory, cfg, pending, memory, Runtime("", "cpu", 1, tmp_path))
    for source in pending:
        take, images, _ = vlm.take_of(source, work)
        units = first_round(asking, take)
        units += second_round(asking, take, dict.fromkeys(take.frames_of, asking.material.bank[0]))
        real += [(one.request, images) for one in units]
    kinds = {one.question: one for one in counted_kinds(memory, cfg)}
    from trajpilot_core.vlm.local.inputs import model_inputs

    for question, kind in kinds.items():
        own = [(one, images) for one, images in real if one.question == question]
        assert kind.n == len(own)
        if not kind.fills:
            told = (model.tokenizer, model.template, model.rules, model.image_id)
            lengths = [model_inputs(one, images, *told)["input_ids"].shape[1] for one, images in own[:3]]
            assert all(abs(kind.tokens - length) < 40 for length in lengths), "of a template, a token a byte"
    assert set(kinds) == {one.question for one, _ in real}


@pytest.mark.parametrize("kind", ["qwen3_vl", "qwen3_moe"])
def test_bytes_of_weights_and_keys_are_those_that_the_model_has(folders, kind: str) -> None:
    folder = model_folder("x", str(folders[kind]), SEEING | READING)
    shape, network = model_shape(folder, "x"), load_model(folder, None, "cpu").network
    assert shape.weight_bytes == sum(one.numel() * one.element_size() for one in network.parameters())
    with torch.inference_mode():
        cache = computed(network, torch.arange(50))
    held = sum(one.keys.nbytes + one.values.nbytes for one in cache.layers)
    assert shape.kv_bytes(50) == held
    experts = sum(value.numel() for name, value in network.named_parameters() if ".experts." in name)
    assert shape.active == sum(one.numel() for one in network.parameters()) - experts // 2


def test_hours_and_memory_follow_from_the_stated_formula(tmp_path: Path) -> None:
    shape = ModelShape(2, 4, 2, 8, 32, 64, 1000, 2, 2_000_000, 1_000_000)
    assert shape.prompt_flops(10) == 2 * 1e6 * 10 + 4 * 2 * 4 * 8 * 10 * 5
    assert shape.prompt_flops(10, 90) == 2 * 1e6 * 10 + 4 * 2 * 4 * 8 * 10 * 95
    cfg = VlmConfig(rows=("qwen_zs",))
    kinds = assumed_kinds(paper_sizes(PipelineConfig()), cfg)
    first, last = hours(shape, kinds, cfg), hours(shape, kinds, cfg.replace(bank_first=False))
    assert last[0] > 5 * first[0]
    assert last[1] == first[1]
    fast = cfg.replace(assumed=VlmMachine(tflops=800, gb_per_s=4800))
    assert hours(shape, kinds, fast) == (first[0] / 2, first[1] / 2)
    both = assumed_kinds(paper_sizes(PipelineConfig()), cfg.replace(rows=BOTH))
    (plan,) = kinds
    keys = shape.kv_bytes(plan.longest + plan.most_new)
    assert model_memory(shape, kinds).keys == keys + keys // 2
    assert model_memory(shape, [one for one in both if not one.fills]).keys >= keys, "a bank is kept beside segments"


def test_the_stage_needs_the_largest_model_and_says_what_lowers_it(folders, tmp_path: Path) -> None:
    sizes, cfg = paper_sizes(PipelineConfig()), asked(folders, tmp_path)
    alone = vlm.STAGE.needs(sizes, cfg.replace(backend="http"), NeedsMachine("cpu", 1))
    here, there = (vlm.STAGE.needs(sizes, cfg, NeedsMachine(device, 1)) for device in ("cpu", "cuda"))
    assert here.host.bytes > alone.host.bytes + GB
    assert there.device.bytes == here.host.bytes - alone.host.bytes > GB
    assert "vlm.model" in there.device.lower
    gone = vlm.STAGE.needs(sizes, cfg.replace(model="nowhere"), NeedsMachine("cpu", 1))
    assert gone == alone, "the pre-flight names the folder"


def test_requests_are_stated_before_the_first_is_written_and_refused_for_a_model_that_cannot(
    folders, tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr("trajpilot_core.vlm.frames.take_frames", made_up_frames)
    memory, cfg = world(), settings(tmp_path, windows_per_horizon=1)
    work = Work(memory, cfg, tuple(vlm.STAGE.sources(memory, cfg, "")), memory, Runtime("", "cpu", 1, tmp_path))
    monkeypatch.setattr(commands, "asked", lambda *_: (PipelineConfig(), {"data_root": "", "device": "cpu"}))
    monkeypatch.setattr(commands, "work_of", lambda *_: work)
    done = CliRunner().invoke(app, ["vlm", "requests", "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert [line.split(":")[0].split(" of ")[0] for line in lines[:4]] == ["questions", "bytes", "memory", "hours"]
    assert lines[4].startswith("2 requests")
    assert lines[:4] == stated(memory, cfg)
    short = asked(folders, tmp_path, rows=("qwen_zs",), windows_per_horizon=1, new_tokens=9000)
    sources = tuple(vlm.STAGE.sources(memory, short, ""))
    work = Work(memory, short, sources, memory, Runtime("", "cpu", 1, tmp_path))
    done = CliRunner().invoke(app, ["vlm", "requests", "--out", str(tmp_path / "none")])
    assert done.exit_code != 0
    assert "nothing was written: longest prompt of vlm.model" in f"{done.output}{done.exception}"
    assert not (tmp_path / "none").exists()


def test_what_is_assumed_of_a_machine_is_in_no_key() -> None:
    asked = VlmConfig(rows=("qwen_zs",))
    assert "assumed" not in asked.content()
    assert "assumed" in vlm.STAGE.outside_shards
    fast = PipelineConfig(vlm=asked.replace(assumed=VlmMachine(tflops=1)))
    assert vlm_rows.completed(fast) == vlm_rows.completed(PipelineConfig(vlm=asked))


def test_none_of_it_imports_torch() -> None:
    looked = "import sys, trajpilot_core.doctor.vlm_weights; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", looked], check=False).returncode == 0
