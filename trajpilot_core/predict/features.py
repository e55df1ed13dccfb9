"""The appearance of the query's two clips, by the very code of the stage `features`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.config import RunOptions
from schemas.rejects import Reject
from trajpilot_core.engine.resolve import resolve_device
from trajpilot_core.engine.stage import Runtime, Sink, Source, Work
from trajpilot_core.errors import CheckpointError, InputError
from trajpilot_core.predict.footage import Footage
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.stages import features

CLIPS = ("query:start", "query:goal")
"""Segment ids of the two clips."""


@dataclass
class CaughtShard:
    """The one way into the store that the stage `features` uses, but nothing is written: the shard is kept."""

    tables: list[pa.Table] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)

    def shard(self, shard: str, table: pa.Table, rejects: Sequence[Reject], n_in: int) -> None:
        """Keep a shard."""
        self.tables.append(table)
        self.rejects += rejects


def clip_features(
    footage: Footage, root: TrainedRoot, run: RunOptions, scratch: Path
) -> tuple[NDArray[np.float16], str]:
    """Return (2, width) float16 of the Start and the Goal clip, and the digest of the encoder.

    Args:
        footage: the video.
        root: whose encoder settings and weights are used.
        run: device and decoders.
        scratch: private folder.

    Raises:
        InputError: the frames of a clip cannot be had.
        CheckpointError: the encoder is not the one that the models were trained with.
    """
    spans: JsonValue = [[name, *span] for name, span in zip(CLIPS, (footage.start_s, footage.goal_s), strict=True)]
    source = Source("query", (footage.path.name,), {"fps": footage.probe.fps, "segments": spans})
    sink = CaughtShard()
    runtime = Runtime(str(footage.path.parent), resolve_device(run.device), run.workers, scratch)
    features.run(Work(root.inputs, root.features, (source,), cast(Sink, sink), runtime))
    table = pa.concat_tables(sink.tables)
    if table.num_rows != len(CLIPS):
        why = "; ".join(f"{row.code}: {row.detail}" for row in sink.rejects) or "no vector came back"
        raise InputError(f"the clips of {footage.path} cannot be encoded: {why}")
    digest = str(table["encoder"][0].as_py())
    check_encoder(digest, root)
    row_of = {name: i for i, name in enumerate(table["segment_id"].to_pylist())}
    flat = np.array(table["vector"].to_pylist(), dtype=np.float16)
    return flat[[row_of[name] for name in CLIPS]], digest


def check_encoder(digest: str, root: TrainedRoot) -> None:
    """Refuse an encoder that is not the one of the features table.

    Raises:
        CheckpointError: it is another one.
    """
    known = set(root.inputs.table("features", ("encoder",))["encoder"].to_pylist())
    if known != {digest}:
        raise CheckpointError(
            f"the video encoder here is {digest[:12]}, but the models under {root.folder.url} were trained on features "
            f"of {', '.join(sorted(name[:12] for name in known))}: other weights or another preprocessing; put the "
            f"checkpoint back that the root was made with ({root.features.checkpoint or 'the one of the demo'})"
        )
