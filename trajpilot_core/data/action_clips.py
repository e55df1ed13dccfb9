"""The clips of EPIC-KITCHENS-100 with their tokens and the action after each. Does not import torch.

Shapes: N clips, T tokens, D width of a token.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trajpilot_core.arrays import Array, Codes
from trajpilot_core.errors import InputError
from trajpilot_core.metrics.epic_kitchens import ActionClips, pair_codes
from trajpilot_core.store.reading import Inputs

COLUMNS = ("verb_class", "noun_class", "annotated_start_s", "is_unseen", "is_tail_verb", "is_tail_noun")
SPLITS = ("train", "dev", "test")


@dataclass(frozen=True)
class ClipData:
    """All clips that have features, in the order of the features."""

    segment_ids: tuple[str, ...]
    take_ids: tuple[str, ...]
    """(N,) video of each clip."""
    split: Codes
    """(N,) index into `SPLITS`."""
    tokens: NDArray[np.float16]
    """(N, T, D)."""
    last_frame_s: Array
    """(N,) time of the last encoded frame."""
    action_s: Array
    """(N,) start of the action."""
    clips: ActionClips
    """True classes; pairs in dev count as known from training, as in the released training file."""

    def rows(self, split: str) -> Codes:
        """Return the numbers of the clips of a split, ascending."""
        rows: Codes = np.flatnonzero(self.split == SPLITS.index(split))
        return rows


def load_clips(inputs: Inputs, encoded_width: int | None = None) -> ClipData:
    """Join features, segments and details.

    Args:
        encoded_width: D if patches are encoded when they are read: only the list of clips is read from the features;
            None: their tokens are read, too.

    Raises InputError: the corpus has no verbs and nouns, a split has no clips, or features are pooled.
    """
    order = inputs.table("features", ["segment_id", "frame_times_s"])
    ids = order["segment_id"].to_pylist()
    segments = inputs.table("segments", ["segment_id", "take_id", "split"]).to_pylist()
    row_of = {row["segment_id"]: row for row in segments}
    details = {row["segment_id"]: row for row in inputs.table("details", ["segment_id", *COLUMNS]).to_pylist()}
    split = np.array([SPLITS.index(row_of[segment]["split"]) for segment in ids], dtype=np.int64)
    column = {name: [details[segment][name] for segment in ids] for name in COLUMNS}
    if any(value is None for name in COLUMNS for value in column[name]):
        raise InputError(
            "the segments have no verb and noun classes; a probe anticipates actions of EPIC-KITCHENS-100: "
            "use the recipe epic_kitchens, or --set probe.tokens=null"
        )
    empty = [name for name in SPLITS if not (split == SPLITS.index(name)).any()]
    if empty:
        raise InputError(f"{', '.join(empty)} has no clip with features; look at the rejects of ingest and features")
    verbs, nouns = (np.array(column[name], dtype=np.int64) for name in ("verb_class", "noun_class"))
    pairs = pair_codes(verbs, nouns)
    known = np.isin(pairs, pairs[split != SPLITS.index("test")])
    unseen, tail_verb, tail_noun = (np.array(column[name], dtype=bool) for name in COLUMNS[3:])
    tokens = np.empty((len(ids), 0, encoded_width or 0), np.float16)
    if encoded_width is None:
        parts = int((order.schema.metadata or {}).get(b"tokens", b"1"))
        if parts == 1:
            raise InputError(
                "the features are pooled to one vector per clip, so that a probe has no tokens to attend to; use "
                "--set features.tokens=temporal"
            )
        tokens = np.asarray(inputs.vectors("features", "vector"), dtype=np.float16).reshape(len(ids), parts, -1)
    return ClipData(
        tuple(ids),
        tuple(row_of[segment]["take_id"] for segment in ids),
        split,
        tokens,
        np.array([times[-1] for times in order["frame_times_s"].to_pylist()], dtype=np.float64),
        np.array(column["annotated_start_s"], dtype=np.float64),
        ActionClips(verbs, nouns, unseen, tail_verb, tail_noun, known),
    )
