"""A file that runs code when it is unpickled, put in the place of every kind of file that is read back, is refused."""

import io
import pickle
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from hostile import Marker

from schemas.artifacts import Entry, FileEntry, Manifest, RunRecord, ShardRecord
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
from trajpilot_core.store.reading import Pack, pack_label, pack_of
from trajpilot_core.store.tensors import parse_tensors
from trajpilot_core.training.checkpoint import NAME as PROGRESS
from trajpilot_core.training.checkpoint import read_progress


def as_pickle(marker: Path, protocol: int) -> bytes:
    return pickle.dumps({"state_dict": Marker(marker)}, protocol=protocol)


def as_torch(marker: Path, zipped: bool) -> bytes:
    out = io.BytesIO()
    torch.save({"target_encoder": Marker(marker)}, out, _use_new_zipfile_serialization=zipped)
    return out.getvalue()


def as_numpy(marker: Path) -> bytes:
    out = io.BytesIO()
    np.save(out, np.array([Marker(marker)], dtype=object), allow_pickle=True)
    return out.getvalue()


FORMS: dict[str, Callable[[Path], bytes]] = {
    **{f"pickle {n}": lambda marker, n=n: as_pickle(marker, n) for n in (0, 2, 5)},
    "torch zip": lambda marker: as_torch(marker, True),
    "torch legacy": lambda marker: as_torch(marker, False),
    "numpy": as_numpy,
}


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


def read_pack(folder: Path, content: bytes) -> None:
    """The label of a pack is removed where it is damaged; then its shards are missed."""
    shard = FileEntry(name="shards/x/data.parquet", sha256="0" * 64, bytes=1, rows=1)
    entry = Entry(kind="table", files=(shard,), fingerprint="f" * 64, rows=1)
    put(folder, pack_label("features", entry), content)
    pack_of(LocalFolder(str(folder)), "features", entry)


REFUSING: dict[str, Callable[[Path, bytes], object]] = {
    "table": lambda folder, content: read_table(content),
    "tensors": lambda folder, content: parse_tensors(content),
    "pack": read_pack,
    **{
        kind.__name__: lambda folder, content, kind=kind: unseal(kind, content, "here")
        for kind in (Manifest, ShardRecord, Pointer, RunRecord, Pack)
    },
    "checkpoint of a training": lambda folder, content: read_progress(put(folder, PROGRESS, content).parent),
    "V-JEPA .pt": lambda folder, content: load_encoder(str(put(folder, "w.pt", content)), "tiny", True),
    "V-JEPA .safetensors": lambda folder, content: load_encoder(
        str(put(folder, "w.safetensors", content)), "tiny", True
    ),
    "EgoVLPv2.pth": lambda folder, content: read_checkpoint(put(folder, CHECKPOINT, content)),
}


def test_a_hostile_file_is_refused_by_name_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for (form, hostile), (place, read) in product(FORMS.items(), REFUSING.items()):
        try:
            read(tmp_path / f"{form}-{place}", hostile(marker))
        except (StoreError, CheckpointError):
            assert not marker.exists(), (form, place)
        else:
            pytest.fail(f"{form} was read as a {place}")


def test_what_can_be_made_again_is_forgotten_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    for form, hostile in FORMS.items():
        for name in (INVENTORY, LAST):
            put(tmp_path / "root", name, hostile(marker))
        assert load_inventory(LocalFolder(str(tmp_path / "root")), "", ("file",)).seen == {}, form
        assert recall_run(str(tmp_path / "root")) is None, form
        assert not marker.exists(), form


def test_each_form_is_hostile_indeed(tmp_path: Path) -> None:
    for form, hostile in FORMS.items():
        run_it(form, hostile(tmp_path / form))
        assert (tmp_path / form).exists()


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
        (folder / name).write_bytes(as_pickle(marker, 2))
    cfg = TextConfig(encoder="transformers", model=str(folder), embedding="mean")
    for missing in ((), ("model.safetensors",)):
        for name in missing:
            (folder / name).unlink()
        with pytest.raises(CheckpointError, match="was refused"):
            load_transformers(cfg, "cpu")
        assert not marker.exists()
