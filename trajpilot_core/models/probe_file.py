"""Load the heads that V-JEPA 2 released for EPIC-KITCHENS-100: safe, strict, every column named.

Layout of the file: a dictionary whose `classifiers` is a list of states, one a probe of their grid, each with the
prefix `module.` of the distributed training. Source: facebookresearch/vjepa2 at c2963a47; docs/decisions/epic-probe.md.
"""

from pathlib import Path
from typing import Any

from torch import Tensor

from trajpilot_core.corpora.epic_kitchens.head_classes import HeadClasses, check_order
from trajpilot_core.encoders.video.vjepa_checkpoint import frozen_with, read_checkpoint
from trajpilot_core.errors import CheckpointError
from trajpilot_core.models.attentive_probe import AttentiveProbe, ProbeShape

LIST, PREFIX = "classifiers", "module."
QUERIES = "pooler.query_tokens"


def load_probes(path: str, classes: HeadClasses, heads: int) -> list[AttentiveProbe]:
    """Build every probe of a released file, in eval mode, float32, in the order of the file.

    Args:
        path: of the file, a .pt.
        classes: by column, of the training file that the heads were trained with.
        heads: of the attention; shapes do not say it.

    Raises:
        CheckpointError: no such file or layout, heads of other sizes than `classes`, or this Python cannot name their
            columns.
    """
    check_order()
    if not Path(path).is_file():
        raise CheckpointError(f"there is no file {path}; give the released heads (docs/models.md)")
    states: Any = read_checkpoint(path).get(LIST)
    if not isinstance(states, list) or not states:
        raise CheckpointError(f"{path} holds no list {LIST!r}; give the released heads, such as ek100-vitg-384.pt")
    return [_probe(state, f"{path}, {LIST}[{at}]", classes, heads) for at, state in enumerate(states)]


def _probe(content: Any, where: str, classes: HeadClasses, heads: int) -> AttentiveProbe:
    """Build one probe of its state."""
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise CheckpointError(f"{where} is no dictionary of tensors")
    state = {name.removeprefix(PREFIX): value for name, value in content.items()}
    if QUERIES not in state or state[QUERIES].ndim != 3:
        raise CheckpointError(f"{where} is no attentive probe: it lacks {QUERIES}; it has {sorted(state)[:5]}")
    blocks = {name.split(".")[2] for name in state if name.startswith("pooler.blocks.")}
    n_classes = (len(classes.verbs), len(classes.nouns), len(classes.actions))
    shape = ProbeShape(state[QUERIES].shape[-1], *n_classes, heads=heads, blocks=len(blocks))
    fault = (
        f"{where} does not fit heads of {n_classes} verbs, nouns, actions; give the training file that they were "
        "trained with"
    )
    return frozen_with(lambda: AttentiveProbe(shape), state, fault)
