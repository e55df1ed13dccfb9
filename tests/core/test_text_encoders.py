"""Text encoders: unit vectors, no foreign code is run, and the layout of the released EgoVLPv2 checkpoint."""

import json
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_world import Memory, WorldSize, planning_world, run_stage
from torch import Tensor, nn
from transformers import RobertaConfig, RobertaModel

from schemas.config import TextConfig
from trajpilot_core.encoders.bag_of_words import BagOfWords
from trajpilot_core.encoders.egovlp import CHECKPOINT, read_checkpoint, text_projection, text_tower
from trajpilot_core.encoders.text import load_text_encoder, unit_rows
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.stages import text_bank

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


def roberta(width: int = WIDTH) -> RobertaModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": width, "intermediate_size": 96, "num_attention_heads": 1, "num_hidden_layers": 12}
    return RobertaModel(
        RobertaConfig(vocab_size=261, max_position_embeddings=90, type_vocab_size=1, pad_token_id=1, **sizes),
        add_pooling_layer=False,
    ).eval()


def released_layout(tower: RobertaModel) -> dict[str, Tensor]:
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
    """Save as the authors' trainer did: a configuration object of a module that nobody has lies beside the weights."""
    module = types.ModuleType("parse_config")
    module.ConfigParser = type("ConfigParser", (), {"__module__": "parse_config"})  # type: ignore[attr-defined]
    sys.modules["parse_config"] = module
    try:
        own = module.ConfigParser()
        own.resume, own.text = None, "roberta-base"
        torch.save(
            {"arch": "FrozenInTime", "epoch": 3, "state_dict": state, "config": config or own}, folder / CHECKPOINT
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


def test_vectors_do_not_depend_on_what_else_is_in_the_batch(folder: Path) -> None:
    encoder = load_text_encoder(config(folder, batch=3), "cpu")
    one_by_one = np.concatenate([encoder.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.embed(TEXTS), one_by_one, atol=1e-5)


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


def test_nothing_in_a_checkpoint_is_executed(tmp_path: Path) -> None:
    class Attack:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'executed'}",)

    byte_tokenizer(tmp_path)
    write_checkpoint(tmp_path, released_layout(roberta()), config=Attack())
    with pytest.raises(CheckpointError, match="system"):
        load_text_encoder(config(tmp_path), "cpu")
    assert not (tmp_path / "executed").exists()
    assert "parse_config" not in sys.modules


@pytest.mark.parametrize("fault", ["missing", "unknown"])
def test_a_tower_with_other_keys_is_refused(folder: Path, fault: str) -> None:
    state = read_checkpoint(folder / CHECKPOINT)
    if fault == "missing":
        del state["text_model.encoder.layer.3.output.dense.weight"]
    else:
        state["text_model.encoder.layer.3.adapter.weight"] = torch.zeros(2)
    with pytest.raises(CheckpointError, match=fault):
        text_tower(state)


def test_a_file_that_is_no_checkpoint_is_refused(folder: Path) -> None:
    (folder / CHECKPOINT).write_bytes(b"<html>please log in</html>")
    with pytest.raises(CheckpointError, match="cannot be read safely"):
        load_text_encoder(config(folder), "cpu")


def test_a_folder_without_tokenizer_is_an_error_that_names_it(folder: Path) -> None:
    (folder / "vocab.json").unlink()
    with pytest.raises(InputError, match=r"vocab\.json"):
        load_text_encoder(config(folder), "cpu")


def test_no_folder_is_an_error_that_names_the_setting() -> None:
    with pytest.raises(InputError, match=r"TextConfig\.model"):
        load_text_encoder(TextConfig(), "cpu")


@pytest.mark.parametrize("embedding", ["cls", "mean"])
def test_any_local_transformers_model_works(tmp_path: Path, embedding: str) -> None:
    byte_tokenizer(tmp_path)
    roberta().save_pretrained(tmp_path)
    cfg = TextConfig(encoder="transformers", model=str(tmp_path), embedding=embedding)  # type: ignore[arg-type]
    encoder = load_text_encoder(cfg, "cpu")
    one_by_one = np.concatenate([encoder.embed([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.embed(TEXTS), one_by_one, atol=1e-5)
    assert text_bank.sources(Memory(), cfg, "")[0].files


def test_a_hub_model_needs_its_pinned_commit() -> None:
    with pytest.raises(InputError, match="commit"):
        load_text_encoder(TextConfig(encoder="transformers", model="somebody/model"), "cpu")


def test_weights_that_are_not_safetensors_are_refused(tmp_path: Path) -> None:
    byte_tokenizer(tmp_path)
    model = roberta()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"was refused: .*safetensors"):
        load_text_encoder(TextConfig(encoder="transformers", model=str(tmp_path), embedding="mean"), "cpu")


@settings(derandomize=True, deadline=None, max_examples=25)
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


def test_a_vector_without_direction_is_an_error() -> None:
    with pytest.raises(InputError, match="no direction for text 1 of 2"):
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
    small = text_projection({"txt_proj.1.weight": torch.randn(5, 4), "txt_proj.1.bias": torch.zeros(5)})
    assert isinstance(small[0], nn.ReLU)
    with pytest.raises(CheckpointError, match="layers"):
        text_projection({"vid_proj.0.weight": torch.zeros(1)})
