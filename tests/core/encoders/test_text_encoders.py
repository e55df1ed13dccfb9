"""Text encoders: unit vectors, no foreign code is run, and the layout of the released EgoVLPv2 checkpoint."""

import argparse
import json
import os
import sys
import types
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_world import Memory, WorldSize, planning_world, run_stage
from torch import Tensor, nn

from schemas.config import TextConfig
from trajpilot_core.encoders.text import egovlp
from trajpilot_core.encoders.text.bag_of_words import BagOfWords
from trajpilot_core.encoders.text.base import CHECKPOINT, unit_rows, weights_file
from trajpilot_core.encoders.text.egovlp import INERT, Inert, read_checkpoint
from trajpilot_core.encoders.text.registry import load_text_encoder
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.stages import text_bank

if TYPE_CHECKING:
    from transformers import PreTrainedModel, RobertaModel

WIDTH = 64
TEXTS = ["cut the carrot", "cut the onion", "open the fridge door"]


def byte_tokenizer(folder: Path) -> None:
    """A byte-level BPE without merges, in the files of roberta-base."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {b: chr(b) for b in printable}
    letters |= {b: chr(256 + i) for i, b in enumerate(b for b in range(256) if b not in printable)}
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", *(letters[b] for b in range(256))]
    (folder / "vocab.json").write_text(json.dumps({word: i for i, word in enumerate(words)}))
    (folder / "merges.txt").write_text("#version: 0.2\n")


def roberta(width: int = WIDTH) -> "RobertaModel":
    from transformers import RobertaConfig, RobertaModel

    torch.manual_seed(0)
    sizes = {"hidden_size": width, "intermediate_size": 96, "num_attention_heads": 1, "num_hidden_layers": 12}
    return RobertaModel(
        RobertaConfig(vocab_size=261, max_position_embeddings=90, type_vocab_size=1, pad_token_id=1, **sizes),
        add_pooling_layer=False,
    ).eval()


def released_layout(tower: "RobertaModel") -> dict[str, Tensor]:
    """The keys of the released checkpoint: distributed prefix, fusion layers, projections, video tower."""
    state = {f"text_model.{k}": v for k, v in tower.state_dict().items()}
    state["text_model.embeddings.position_ids"] = torch.arange(90)[None]
    for layer in range(6, 12):
        place = f"text_model.encoder.layer.{layer}"
        state[f"{place}.alpha_t2i"] = torch.zeros(1)
        for part in ("self.query", "self.key", "self.value", "output.dense"):
            state[f"{place}.crossattention_t2i.{part}.weight"] = torch.randn(WIDTH, WIDTH)
            state[f"{place}.crossattention_t2i.{part}.bias"] = torch.randn(WIDTH)
    state |= {"txt_proj.0.weight": torch.randn(24, WIDTH), "vid_proj.0.weight": torch.randn(4, 4)}
    state |= {"txt_proj.2.weight": torch.randn(24, 24), "txt_proj.2.bias": torch.randn(24)}
    state |= {"txt_proj.4.weight": torch.randn(24, 24), "txt_proj.4.bias": torch.randn(24)}
    return {f"module.{k}": v for k, v in state.items()}


def write_checkpoint(folder: Path, state: dict[str, Tensor], config: Any = None) -> None:
    """Save as the authors' trainer does: its own options, paths and best value lie next to the weights."""
    module = types.ModuleType("parse_config")
    module.ConfigParser = type("ConfigParser", (), {"__module__": "parse_config"})  # type: ignore[attr-defined]
    sys.modules["parse_config"] = module
    try:
        own = module.ConfigParser()
        own.resume, own._save_dir = None, Path("/somewhere/models")
        own.args = argparse.Namespace(config="configs/pt/egoclip.json", device=None)
        own._config, own.log_levels = OrderedDict(name="EgoClip_4f", n_gpu=8), {0: 30}
        best = np.float64(1.25)
        torch.save(
            {"arch": "FrozenInTime", "epoch": 3, "state_dict": state, "monitor_best": best, "config": config or own},
            folder / CHECKPOINT,
        )
    finally:
        del sys.modules["parse_config"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    byte_tokenizer(tmp_path)
    write_checkpoint(tmp_path, released_layout(roberta()))
    return tmp_path


def config(folder: Path, **changes: Any) -> TextConfig:
    return TextConfig(encoder="egovlpv2", model=str(folder), **changes)


def test_the_released_layout_loads_and_gives_the_state_of_the_first_token(folder: Path) -> None:
    encoder = load_text_encoder(config(folder), "cpu")
    got = encoder.embed(TEXTS)
    assert got.shape == (3, WIDTH)
    assert got.dtype == np.float32
    assert encoder.digest.startswith("egovlpv2:cls:")
    tokens = encoder.tokenizer(TEXTS, padding=True, return_tensors="pt")  # type: ignore[attr-defined]
    with torch.no_grad():
        own = roberta()(**tokens).last_hidden_state[:, 0]
    np.testing.assert_allclose(got, unit_rows(own.numpy()), atol=1e-5)
    assert (tokens["input_ids"][:, 0] == 0).all()


def test_the_projection_is_applied_where_it_is_asked_for(folder: Path) -> None:
    state = read_checkpoint(folder / CHECKPOINT)
    plain = load_text_encoder(config(folder), "cpu")
    got = load_text_encoder(config(folder, embedding="projected"), "cpu").embed(TEXTS)
    tokens = plain.tokenizer(TEXTS, padding=True, return_tensors="pt")  # type: ignore[attr-defined]
    with torch.no_grad():
        x = roberta()(**tokens).last_hidden_state[:, 0] @ state["txt_proj.0.weight"].T
        x = x.relu() @ state["txt_proj.2.weight"].T + state["txt_proj.2.bias"]
        x = x.relu() @ state["txt_proj.4.weight"].T + state["txt_proj.4.bias"]
    np.testing.assert_allclose(got, unit_rows(x.numpy()), atol=1e-5)


def test_what_the_trainer_saved_beside_the_weights_stays_inert(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: a list of allowed names that lacks the options, paths and numbers which that trainer writes."""
    path = folder / CHECKPOINT
    asked = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    assert {"parse_config.ConfigParser", "argparse.Namespace", "pathlib.PosixPath", "numpy.dtype"} < set(asked)
    assert len(read_checkpoint(path)) == len(released_layout(roberta()))
    with torch.serialization.safe_globals([(Inert, name) for name in INERT]):
        content = torch.load(path, weights_only=True)
    assert type(content["config"]) is Inert
    assert type(content["monitor_best"]) is Inert
    assert not any(Inert in entry for entry in torch.serialization.get_safe_globals() if isinstance(entry, tuple))
    assert "parse_config" not in sys.modules
    monkeypatch.setattr(egovlp, "INERT", ("parse_config.ConfigParser",))
    with pytest.raises(CheckpointError, match=r"cannot be read safely: .*GLOBAL \w+\.\w+"):
        read_checkpoint(path)


def test_a_refusal_names_what_is_not_allowed(tmp_path: Path) -> None:
    """That nothing in a checkpoint is executed: tests/core/store/test_hostile_pickles.py."""

    class Odd:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.getenv, ("HOME",)

    own = {"odd": Odd(), "path": Path("/x"), "options": argparse.Namespace(a=1)}
    write_checkpoint(tmp_path, released_layout(roberta()), config=own)
    with pytest.raises(CheckpointError, match=r"os\.getenv"):
        read_checkpoint(tmp_path / CHECKPOINT)


def test_a_folder_with_two_files_of_weights_is_refused(folder: Path) -> None:
    assert weights_file(folder).name == CHECKPOINT
    (folder / "EgoVLPv2_smallproj.pth").write_bytes(b"")
    with pytest.raises(InputError, match=r"EgoVLPv2\.pth, EgoVLPv2_smallproj\.pth; keep one"):
        weights_file(folder)


def test_what_is_no_encoder_is_refused_and_named(folder: Path) -> None:
    from trajpilot_core.encoders.text.egovlp import text_tower

    state = read_checkpoint(folder / CHECKPOINT)
    unknown = state | {"text_model.encoder.layer.3.adapter.weight": torch.zeros(2)}
    del state["text_model.encoder.layer.3.output.dense.weight"]
    for fault, keys in (("missing", state), ("unknown", unknown)):
        with pytest.raises(CheckpointError, match=fault):
            text_tower(keys)
    (folder / CHECKPOINT).write_bytes(b"<html>please log in</html>")
    with pytest.raises(CheckpointError, match="cannot be read safely"):
        load_text_encoder(config(folder), "cpu")
    (folder / "vocab.json").unlink()
    with pytest.raises(InputError, match=r"vocab\.json"):
        load_text_encoder(config(folder), "cpu")
    with pytest.raises(InputError, match=r"text_bank\.model"):
        load_text_encoder(TextConfig(), "cpu")
    with pytest.raises(InputError, match="needs a folder"):
        load_text_encoder(TextConfig(encoder="transformers", model="somebody/model"), "cpu")


def tiny_models() -> dict[str, "PreTrainedModel"]:
    """An encoder, a decoder, an encoder with its decoder, a text tower beside one for pictures; random weights."""
    from transformers import BertConfig, BertModel, CLIPConfig, CLIPModel, GPT2Config, GPT2Model, T5Config, T5Model

    torch.manual_seed(0)
    small = {"vocab_size": 261, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**small, "intermediate_size": 32, "max_position_embeddings": 90, "eos_token_id": 2, "projection_dim": 8}
    vision = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    return {
        "bert": BertModel(BertConfig(**small, intermediate_size=32)),
        "gpt2": GPT2Model(GPT2Config(vocab_size=261, n_embd=16, n_layer=2, n_head=2, n_positions=90)),
        "t5": T5Model(T5Config(vocab_size=261, d_model=16, d_kv=8, d_ff=32, num_layers=2, num_heads=2)),
        "clip": CLIPModel(
            CLIPConfig(text_config=text, vision_config={**vision, "image_size": 32, "patch_size": 16}, projection_dim=8)
        ),
    }


KINDS = (
    ("roberta", "cls"), ("roberta", "mean"), ("bert", "mean"), ("bert", "cls"), ("gpt2", "last"), ("t5", "mean"),
    ("clip", "last")
)  # fmt: skip


def test_text_models_of_every_kind_work(tmp_path: Path) -> None:
    """Saved as safetensors; a vector does not depend on the padding that its batch brings."""
    models = {**tiny_models(), "roberta": roberta()}
    for name, embedding in KINDS:
        model, folder = models[name], tmp_path / name
        folder.mkdir(exist_ok=True)
        byte_tokenizer(folder)
        (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "RobertaTokenizer"}')
        model.save_pretrained(folder)
        cfg = TextConfig(encoder="transformers", model=str(folder), embedding=embedding)
        encoder = load_text_encoder(cfg, "cpu")
        together = encoder.embed(TEXTS)
        assert together.shape == (3, WIDTH if name == "roberta" else 16)
        one_by_one = np.concatenate([encoder.embed([text]) for text in TEXTS])
        np.testing.assert_allclose(together, one_by_one, atol=1e-5)
        own, loaded = model.state_dict(), encoder.tower.state_dict()  # type: ignore[attr-defined]
        known = [value for key, value in loaded.items() if not key.startswith("pooler.") or name != "roberta"]
        assert all(any(torch.equal(value, other) for other in own.values()) for value in known)
        assert text_bank.sources(Memory(), cfg, "")[0].files


def test_the_last_token_is_found_on_either_side_of_the_padding() -> None:
    from trajpilot_core.encoders.text.transformers_text import POOLS

    states = torch.arange(10.0).view(2, 5, 1)
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 0, 1, 1, 1]])
    assert POOLS["last"](states, mask).flatten().tolist() == [2.0, 9.0]
    with pytest.raises(InputError, match="no valid vector for text 1 of 2"):
        unit_rows(np.array([[1.0, 0.0], [0.0, 0.0]]))


def test_the_bank_has_one_unit_vector_per_label_in_order_and_says_who_made_it(tmp_path: Path) -> None:
    memory = planning_world(WorldSize(tasks=2, steps=3, alternatives=2))
    memory.tables["labels"] = memory.tables["labels"].take([3, 1, 2, 0, *range(4, 12)])
    run_stage(text_bank.STAGE, TextConfig(encoder="bag_of_words", bag_width=48), memory, tmp_path)
    bank = memory.tables["text_bank"].to_pylist()
    assert [r["label_id"] for r in bank] == sorted(memory.tables["labels"]["label_id"].to_pylist())
    assert {r["encoder"] for r in bank} == {"bag_of_words:v1:48"}
    np.testing.assert_allclose([np.linalg.norm(r["vector"]) for r in bank], 1, atol=1e-6)
    assert memory.counts == (12, 12)


def test_the_projection_of_the_small_variant_is_found() -> None:
    from trajpilot_core.encoders.text.egovlp import text_projection

    small = text_projection({"txt_proj.1.weight": torch.randn(5, 4), "txt_proj.1.bias": torch.zeros(5)})
    assert isinstance(small[0], nn.ReLU)
    with pytest.raises(CheckpointError, match="layers"):
        text_projection({"vid_proj.0.weight": torch.zeros(1)})


@settings(max_examples=25)
@given(st.lists(st.text(min_size=1, max_size=40), min_size=1, max_size=5), st.integers(8, 200))
def test_bag_of_words_gives_unit_vectors_for_any_text(texts: list[str], width: int) -> None:
    vectors = BagOfWords(width).embed(texts)
    assert vectors.shape == (len(texts), width)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)


def test_bag_of_words_knows_shared_words_and_their_order() -> None:
    a, b, c, d = BagOfWords(512).embed(["cut the carrot", "cut the onion", "open a fridge", "carrot the cut"])
    assert a @ b > 0.3 > a @ c
    assert a @ b < a @ d < 0.99


def test_bag_of_words_is_the_same_everywhere() -> None:
    """Golden: renew by printing the same expression; a change means every demo number changes (raise VERSION)."""
    vector = BagOfWords(8).embed(["pour water into cup"])[0]
    assert np.round(vector.astype(float), 4).tolist() == GOLDEN


GOLDEN = [-0.0707, -0.2121, 0.0707, -0.6364, 0.6364, -0.0707, 0.0707, 0.3536]
