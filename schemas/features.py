"""Settings of the frozen encoders, their names and sizes, and features that a corpus publishes, used instead.

Sources: as in `schemas/config.py`; docs/models.md for V-JEPA; docs/decisions/released-features.md.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

from pydantic import Field, model_validator

from schemas.base import Record
from schemas.places import Place, PluginName
from schemas.training import Precision

Release = Literal["2.0", "2.1"]
PATCH_PX, TUBELET = 16, 2
"""Pixels per side and frames that a token covers."""
HEAD_VIDEO_FPS = 30
"""Frames a second of Ego-Exo4D's head videos. Source: docs.ego-exo4d-data.org, overview of the data."""
RELEASED_NOTE = "released features, not those of the paper: not to be set next to published numbers"
"""Shown wherever results of a run on released features appear."""


VJEPA_FILES = {
    "vjepa2_1_vitb_dist_vitG_384.pt": "vit_base",
    "vjepa2_1_vitl_dist_vitG_384.pt": "vit_large",
    "vjepa2_1_vitg_384.pt": "vit_giant",
    "vjepa2_1_vitG_384.pt": "vit_gigantic",
    "vitl.pt": "vit_large",
    "vith.pt": "vit_huge",
    "vitg.pt": "vit_giant",
    "vitg-384.pt": "vit_giant",
}
"""Released file of weights, at `https://dl.fbaipublicfiles.com/vjepa2/` -> FeatureConfig.model."""


class VjepaSize(NamedTuple):
    """Size of one encoder."""

    width: int
    depth: int
    heads: int
    hidden: int


VJEPA_SIZES = {
    "vit_base": VjepaSize(768, 12, 12, 3072),
    "vit_large": VjepaSize(1024, 24, 16, 4096),
    "vit_huge": VjepaSize(1280, 32, 16, 5120),
    "vit_giant": VjepaSize(1408, 40, 22, 6144),
    "vit_gigantic": VjepaSize(1664, 48, 26, 8192),
    "tiny": VjepaSize(256, 2, 4, 1024),
}
"""FeatureConfig.model -> size. The first five are released ones (vit_huge in 2.0 only); tiny is the demo's."""


def n_parameters(model: str, release: Release) -> int:
    """Return the number of parameters of an encoder."""
    width, depth, _, hidden = VJEPA_SIZES[model]
    block = 4 * width * width + 2 * width * hidden + 9 * width + hidden
    video, image = (width * (3 * frames * PATCH_PX**2 + 1) for frames in (TUBELET, 1))
    rest = video + image + 10 * width if release == "2.1" else video + 2 * width
    return depth * block + rest


VjepaModel = Literal["vit_base", "vit_large", "vit_huge", "vit_giant", "vit_gigantic", "tiny"]
ReleasedName = Literal["omnivore_video", "epic_slowfast"]
"""Sets of released features that have a reader (trajpilot_core/corpora/released.py)."""
RELEASED_WIDTHS: Mapping[ReleasedName, int] = {"omnivore_video": 1536, "epic_slowfast": 2304}
"""Set -> width of a row. Source: docs/decisions/released-features.md."""
TRAINED_ON_LABELS: Mapping[ReleasedName, str] = {
    "epic_slowfast": "their network was trained on the action labels that are predicted here: to be reported apart",
}
"""Set -> additional note if the network of the set was trained on labels of the corpus."""


class FeatureSourceConfig(Record):
    """Where the appearance of a segment comes from."""

    source: Literal["encoded", "released"] = "encoded"
    """encoded: a video encoder reads frames of the videos; released: files of features that the corpus publishes,
    without weights, decoder or GPU. Settings of frames and encoder are then ignored except `tokens`: temporal keeps
    n_frames / 2 tokens from rows inside the segment."""
    released: ReleasedName = "omnivore_video"
    """Which set of released features is read."""
    released_off_s: float = Field(1.0, ge=0)
    """Largest difference between the length covered by the rows of a released file and that of the take's video,
    seconds; a file that differs more is rejected."""


def released_note(name: ReleasedName) -> str:
    """Return the note to show with results of a run on a set of released features."""
    return "; ".join((RELEASED_NOTE, *([TRAINED_ON_LABELS[name]] if name in TRAINED_ON_LABELS else ())))


class FeatureConfig(FeatureSourceConfig):
    """How a segment's frames are sampled, decoded and encoded, or which released features replace them."""

    n_frames: int = Field(16, ge=2, multiple_of=2)
    """Frames per segment. Source: paper, appendix on preprocessing."""
    size_px: int = Field(384, ge=32, multiple_of=16)
    """Frames are squashed to this square, pixels. Source: paper, appendix on preprocessing."""
    backend: Literal["pyav", "decord"] = "pyav"
    """Video decoder; decord refuses some files (docs/decisions/video-backend.md)."""
    decode_timeout_s: float = Field(120.0, gt=0)
    """A take whose decoder does not respond for longer is rejected."""
    checkpoint: Place | None = None
    """V-JEPA 2.1 or 2.0 .pt or .safetensors file; None: the demo's tiny random checkpoint."""
    checkpoint_sha256: str | None = None
    """Expected digest of the checkpoint."""
    model: VjepaModel | PluginName = "vit_gigantic"
    """Encoder size; vit_gigantic is the paper's ViT-G (1,664 wide); `plugin:NAME` is an encoder of an installed package
    (docs/plugins.md)."""
    tokens: Literal["pooled", "temporal"] = "pooled"
    """Mean over all tokens, or one mean per tubelet (D 4)."""
    ahead_tubelets: int | None = Field(None, ge=0, le=64)
    """One token in addition to temporal tokens: the mean prediction of V-JEPA's predictor, which is in the same file,
    for the tubelet this many tubelets after the clip; 4 is 1 s ahead for 32 frames at 8 a second. None: no such token.
    Only for V-JEPA 2.1 with the files of ViT-g and ViT-G (docs/decisions/epic-probe.md)."""
    interpolate_rope: bool = True
    """Scale positions to the pretraining grid, as in the published hub builders."""
    batch: int = Field(8, ge=1)
    """Segments per encoder call."""
    precision: Precision = "auto"
    """Arithmetic of the encoder; auto: bf16 on a GPU, fp32 on a CPU."""
    resize: Literal["swscale", "antialiased", "centre_crop"] = "antialiased"
    """How frames become squares. antialiased: squashed in RGB with the bilinear filter of Pillow; swscale: faster,
    chroma is shrunk before the conversion to RGB (docs/decisions/vjepa.md); centre_crop: scaled bilinearly to 8/7 of
    `size_px` on the short side, then the centre, as V-JEPA 2's probes are evaluated."""
    max_off_s: float | None = Field(None, gt=0, le=1)
    """Largest offset of a frame from its time, seconds; None: half a frame of the usual rate. A video of uneven
    rate, as from phones, needs about 0.05 (docs/decisions/video-backend.md)."""

    @model_validator(mode="after")
    def _predicts_tokens(self) -> Self:
        if self.ahead_tubelets is not None and self.tokens != "temporal":
            raise ValueError("ahead_tubelets adds a token to those of the tubelets: set tokens to temporal")
        return self

    @property
    def token_shape(self) -> tuple[int, int]:
        """Width of a token and number of tokens of a segment's feature; unknown here for the encoder of a plugin."""
        tokens = self.n_frames // TUBELET if self.tokens == "temporal" else 1
        if self.source == "released":
            return RELEASED_WIDTHS[self.released], tokens
        tokens += self.ahead_tubelets is not None
        return VJEPA_SIZES[self.model].width, tokens


class TextConfig(Record):
    """How labels become unit vectors. Source: paper, 3.2; docs/decisions/paper-gaps.md."""

    encoder: Literal["bag_of_words", "egovlpv2", "transformers"] | PluginName = "egovlpv2"
    """bag_of_words is the demo's offline projection; `plugin:NAME`: of an installed package (docs/plugins.md)."""
    model: Place | None = None
    """Folder: of EgoVLPv2.pth and the RoBERTa tokenizer; of a model of transformers."""
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
    """Sentences about the state before and after each label, for the planners SCHEMA and ViterbiPlanNet: from a
    template, or from a language model, in `descriptions_file`."""
    descriptions_file: Place | None = None
    """JSON: label -> {"before": [three sentences], "after": [three sentences]}."""
