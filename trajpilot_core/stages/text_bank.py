"""Text bank: one unit vector per answer of the open vocabulary (paper, 3.2; docs/decisions/paper-gaps.md, D 22, 23)."""

import numpy as np
import pyarrow as pa

from schemas.annotation import descriptions_schema, text_bank_schema
from schemas.config import TextConfig
from trajpilot_core.encoders.text.base import TextEncoder
from trajpilot_core.encoders.text.descriptions import SENTENCES, describe, descriptions_file
from trajpilot_core.encoders.text.registry import encoder_files, load_text_encoder
from trajpilot_core.engine.stage import Output, Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.store.reading import Inputs

VERSION = 2  # raise when the numbers that this module writes change


def run(work: Work[TextConfig]) -> None:
    """Embed the text of every label, of all splits, in order of label_id."""
    cfg = work.config
    labels = work.inputs.table("labels", ["label_id", "label"]).sort_by("label_id")
    if labels.num_rows == 0:
        raise InputError("the labels table is empty: no segment was kept; see the rejects of ingest")
    work.runtime.progress(0, labels.num_rows, f"labels; loading the encoder {cfg.encoder}")
    encoder = load_text_encoder(cfg, work.runtime.device)
    texts = labels["label"].to_pylist()
    bank = encoder.embed(texts)
    column = pa.FixedSizeListArray.from_arrays(pa.array(bank.reshape(-1)), bank.shape[1])
    names = pa.array([encoder.digest] * labels.num_rows, pa.string())
    columns = [labels["label_id"], labels["label"], names, column]
    work.sink.table("text_bank", pa.table(columns, schema=text_bank_schema(bank.shape[1])))
    work.sink.table("descriptions", descriptions_table(labels, describe(texts, cfg), encoder, bank.shape[1], cfg.batch))
    work.sink.count(labels.num_rows, labels.num_rows)


def descriptions_table(
    labels: pa.Table, described: dict[str, tuple[str, ...]] | None, encoder: TextEncoder, width: int, batch: int
) -> pa.Table:
    """Return the sentences of all labels and their (N, E) unit vectors, label by label; empty without descriptions."""
    schema = descriptions_schema(width)
    if described is None:
        return schema.empty_table()
    texts = [text for label in labels["label"].to_pylist() for text in described[label]]
    vectors = np.concatenate([encoder.embed(texts[at : at + batch]) for at in range(0, len(texts), batch)])
    each = 2 * SENTENCES
    columns = [
        pa.array(np.repeat(np.array(labels["label_id"].to_pylist(), dtype=object), each), pa.string()),
        pa.array(np.tile(np.arange(each), labels.num_rows)),
        pa.array(texts, pa.string()),
        pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), width),
    ]
    return pa.table(columns, schema=schema)


def sources(inputs: Inputs, cfg: TextConfig, data_root: str) -> list[Source]:
    """Return the local files of the encoder and of the descriptions, which determine the numbers."""
    files = (str(descriptions_file(cfg)),) if cfg.descriptions == "file" else ()
    return [Source(shard="", files=tuple(sorted((*encoder_files(cfg), *files))))]


STAGE = Stage(
    name="text_bank",
    reads=("labels",),
    writes=("text_bank", "descriptions"),
    config=TextConfig,
    run=run,
    version=VERSION,
    summary="Labels -> unit vectors of a frozen text encoder",
    sources=sources,
    lowers=("text_bank.batch",),
    uses_gpu=lambda cfg: cfg.encoder != "bag_of_words",
    output=Output("labels", "text_bank", ("label_id",)),
)
