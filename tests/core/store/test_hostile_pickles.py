"""A file that runs code when it is unpickled, put in the place of every kind of file that is read back, is refused."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile import Marker

from schemas.artifacts import Manifest, RunRecord, ShardRecord
from schemas.config import TextConfig
from trajpilot_core.encoders.text.base import CHECKPOINT
from trajpilot_core.encoders.text.egovlp import read_checkpoint
from trajpilot_core.encoders.video.vjepa_checkpoint import load_encoder
from trajpilot_core.engine.settings import NAME as LAST
from trajpilot_core.engine.settings import recall_run
from trajpilot_core.errors import CheckpointError, StoreError
from trajpilot_core.store.files import LocalFolder
from trajpilot_core.store.inventory import INVENTORY, load_inventory
from trajpilot_core.store.manifest import Pointer, unseal
from trajpilot_core.store.parquet import read_table
from trajpilot_core.store.tensors import parse_tensors
from trajpilot_core.training.checkpoint import NAME as PROGRESS
from trajpilot_core.training.checkpoint import read_progress

FORMS = ("pickle 0", "pickle 2", "pickle 5", "torch zip", "torch legacy", "numpy")


def hostile(form: str, marker: Path) -> bytes:
    """A file that makes `marker` when it is unpickled."""
    out, (kind, _, detail) = io.BytesIO(), form.partition(" ")
    if kind == "pickle":
        pickle.dump({"state_dict": Marker(marker)}, out, protocol=int(detail))
    elif kind == "torch":
        torch.save({"target_encoder": Marker(marker)}, out, _use_new_zipfile_serialization=detail == "zip")
    else:
        np.save(out, np.array([Marker(marker)], dtype=object), allow_pickle=True)
    return out.getvalue()


def run_it(form: str, content: bytes) -> None:
    """Read a form as code that trusts it would."""
    if form.startswith("torch"):
        torch.load(io.BytesIO(content), weights_only=False)
    elif form == "numpy":
        np.load(io.BytesIO(content), allow_pickle=True)
    else:
        pickle.loads(content)


def put(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


REFUSING: dict[str, Callable[[Path, bytes], object]] = {
    "table": lambda folder, content: read_table(content),
    "tensors": lambda folder, content: parse_tensors(content),
    **{
        kind.__name__: lambda folder, content, kind=kind: unseal(kind, content, "here")
        for kind in (Manifest, ShardRecord, Pointer, RunRecord)
    },
    "checkpoint of a training": lambda folder, content: read_progress(put(folder, PROGRESS, content).parent),
    **{
        f"V-JEPA {name}": lambda folder, content, name=name: load_encoder(str(put(folder, name, content)), "tiny", True)
        for name in ("w.pt", "w.safetensors")
    },
    "EgoVLPv2.pth": lambda folder, content: read_checkpoint(put(folder, CHECKPOINT, content)),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_hostile_file_is_refused_by_name_or_forgotten_where_it_can_be_made_again_and_not_run(
    form: str, tmp_path: Path
) -> None:
    marker, root = tmp_path / "marker", tmp_path / "root"
    content = hostile(form, marker)
    for place, read in REFUSING.items():
        with pytest.raises((StoreError, CheckpointError)):
            pytest.fail(f"read as a {place}: {read(tmp_path / place, content)}")
    for name in (INVENTORY, LAST):
        put(root, name, content)
    assert load_inventory(LocalFolder(str(root)), "").seen == {}
    assert recall_run(str(root)) is None
    assert not marker.exists()
    run_it(form, content)
    assert marker.exists(), "it is hostile indeed"


def test_a_model_folder_runs_none_of_its_code_and_none_of_its_pickles(tmp_path: Path) -> None:
    """Code named by `auto_map`, pickled weights, pickled tokenizers: none of them is run."""
    import json

    from transformers import RobertaConfig, RobertaModel

    from trajpilot_core.encoders.text.transformers_text import load_transformers

    marker, folder = tmp_path / "marker", tmp_path / "model"
    sizes = {"vocab_size": 300, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
    RobertaModel(RobertaConfig(num_hidden_layers=1, **sizes)).save_pretrained(folder)
    stated = json.loads((folder / "config.json").read_text())
    auto = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    (folder / "config.json").write_text(json.dumps(stated | {"auto_map": auto}))
    tokenizer = {"tokenizer_class": "Code", "auto_map": {"AutoTokenizer": ["code.Code", None]}}
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    (folder / "code.py").write_text(f"open({str(marker)!r}, 'w')\n")
    for name in ("vocab.pkl", "tokenizer.pkl", "pytorch_model.bin", "training_args.bin", "optimizer.pt"):
        (folder / name).write_bytes(hostile("pickle 2", marker))
    cfg = TextConfig(encoder="transformers", model=str(folder), embedding="mean")
    for _ in range(2):
        with pytest.raises(CheckpointError, match="was refused"):
            load_transformers(cfg, "cpu")
        assert not marker.exists()
        (folder / "model.safetensors").unlink(missing_ok=True)
