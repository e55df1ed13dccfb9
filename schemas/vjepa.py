"""Names and sizes of the released V-JEPA encoders. Source: docs/models.md."""

from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator

from schemas.base import Record

Release = Literal["2.0", "2.1"]
PATCH_PX, TUBELET = 16, 2
"""Pixels per side and frames that a token covers."""


class VjepaFile(Record):
    """One released file of weights; its stem is its name at `https://dl.fbaipublicfiles.com/vjepa2/`."""

    file: str
    """File name with suffix."""
    hub: str
    """Name of its entry in torch.hub."""
    model: str
    """FeatureConfig.model."""
    release: Release
    size_px: int
    """Side of the pictures in the last phase of its training, pixels."""
    transformers: str | None = None
    """Id of the same weights in transformers' layout."""


VJEPA_FILES = (
    VjepaFile(
        file="vjepa2_1_vitb_dist_vitG_384.pt", hub="vjepa2_1_vit_base_384", model="vit_base", release="2.1", size_px=384
    ),
    VjepaFile(
        file="vjepa2_1_vitl_dist_vitG_384.pt",
        hub="vjepa2_1_vit_large_384",
        model="vit_large",
        release="2.1",
        size_px=384,
    ),
    VjepaFile(file="vjepa2_1_vitg_384.pt", hub="vjepa2_1_vit_giant_384", model="vit_giant", release="2.1", size_px=384),
    VjepaFile(
        file="vjepa2_1_vitG_384.pt", hub="vjepa2_1_vit_gigantic_384", model="vit_gigantic", release="2.1", size_px=384
    ),
    VjepaFile(
        file="vitl.pt",
        hub="vjepa2_vit_large",
        model="vit_large",
        release="2.0",
        size_px=256,
        transformers="facebook/vjepa2-vitl-fpc64-256",
    ),
    VjepaFile(
        file="vith.pt",
        hub="vjepa2_vit_huge",
        model="vit_huge",
        release="2.0",
        size_px=256,
        transformers="facebook/vjepa2-vith-fpc64-256",
    ),
    VjepaFile(
        file="vitg.pt",
        hub="vjepa2_vit_giant",
        model="vit_giant",
        release="2.0",
        size_px=256,
        transformers="facebook/vjepa2-vitg-fpc64-256",
    ),
    VjepaFile(
        file="vitg-384.pt",
        hub="vjepa2_vit_giant_384",
        model="vit_giant",
        release="2.0",
        size_px=384,
        transformers="facebook/vjepa2-vitg-fpc64-384",
    ),
)


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


LETTERS = {
    "ViT-B": "vit_base",
    "ViT-L": "vit_large",
    "ViT-H": "vit_huge",
    "ViT-g": "vit_giant",
    "ViT-G": "vit_gigantic",
}
"""Names used in papers; g and G are two sizes."""


def size_of(name: object) -> object:
    """Return the size for any known name of a released encoder; anything else is returned unchanged.

    Names are those of torch.hub, of the file (with or without its suffix), of transformers, and as in papers.
    """
    if not isinstance(name, str):
        return name
    known = LETTERS | {f"{letter}/16": model for letter, model in LETTERS.items()}
    for one in VJEPA_FILES:
        names = [one.hub, one.file, one.file.rsplit(".", 1)[0], *([one.transformers] if one.transformers else [])]
        known |= dict.fromkeys(names, one.model)
    return known.get(name, name)


VjepaModel = Annotated[
    Literal["vit_base", "vit_large", "vit_huge", "vit_giant", "vit_gigantic", "tiny"], BeforeValidator(size_of)
]
