"""How labels become unit vectors: settings of the text encoder. Source: paper, 3.2; docs/decisions/paper-gaps.md."""

from typing import Literal

from pydantic import Field

from schemas.base import Record
from schemas.places import Place
from schemas.plugins import PluginName


class TextConfig(Record):
    """How labels become unit vectors."""

    encoder: Literal["bag_of_words", "egovlpv2", "transformers"] | PluginName = "egovlpv2"
    """bag_of_words is the demo's offline projection; `plugin:NAME` is one of an installed package (docs/plugins.md)."""
    model: Place | None = None
    """egovlpv2: folder with EgoVLPv2.safetensors or EgoVLPv2.pth, and the RoBERTa tokenizer; transformers: folder or
    hub id."""
    revision: str | None = None
    """Pinned commit of a hub model."""
    embedding: Literal["cls", "mean", "last", "projected"] = "cls"
    """Which sentence vector (D 22): state of the first token, mean over the tokens, state of the last token (decoders),
    or EgoVLPv2's projection of the first."""
    max_tokens: int = Field(77, ge=4)
    """Longer texts are cut."""
    bag_width: int = Field(128, ge=8)
    """Width of the bag-of-words projection."""
    batch: int = Field(64, ge=1)
    """Texts per encoder call."""
    descriptions: Literal["none", "template", "file"] = "none"
    """Sentences about the state before and after each label, which the planners SCHEMA and ViterbiPlanNet read: made by
    a template, or those of a language model in `descriptions_file`."""
    descriptions_file: Place | None = None
    """JSON: label -> {"before": [three sentences], "after": [three sentences]}."""
