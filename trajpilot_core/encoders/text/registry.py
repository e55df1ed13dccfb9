"""Text encoders: the only list. Does not import torch."""

from schemas.config import TextConfig
from schemas.places import is_plugin
from trajpilot_core.encoders.text.base import TOKENIZER, TextEncoder, TextEncoderSpec, model_files, weights_file
from trajpilot_core.errors import NotBuiltError
from trajpilot_core.plugins import TEXT_ENCODERS as GROUP
from trajpilot_core.plugins import load, refuse_clash


def _load_bag_of_words(cfg: TextConfig, device: str) -> TextEncoder:
    from trajpilot_core.encoders.text.bag_of_words import BagOfWords

    return BagOfWords(cfg.bag_width)


def _load_egovlp(cfg: TextConfig, device: str) -> TextEncoder:
    from trajpilot_core.encoders.text.egovlp import load_egovlp

    return load_egovlp(cfg, device)


def _load_transformers(cfg: TextConfig, device: str) -> TextEncoder:
    from trajpilot_core.encoders.text.transformers_text import load_transformers

    return load_transformers(cfg, device)


SPECS = (
    TextEncoderSpec("bag_of_words", _load_bag_of_words, needs_model=False),
    TextEncoderSpec("egovlpv2", _load_egovlp, weights=lambda folder: [weights_file(folder)], tokenizer=TOKENIZER),
    TextEncoderSpec("transformers", _load_transformers),
)
TEXT_ENCODERS: dict[str, TextEncoderSpec] = {spec.name: spec for spec in SPECS}
"""TextConfig.encoder -> its spec."""


def text_encoder_spec(cfg: TextConfig) -> TextEncoderSpec:
    """Return the spec of an encoder. Raises NotBuiltError: there is none; InputError: a plugin cannot be used."""
    if is_plugin(cfg.encoder):
        spec = load(cfg.encoder, GROUP, TextEncoderSpec)
        refuse_clash(cfg.encoder, GROUP, spec.name, TEXT_ENCODERS)
        return spec
    if cfg.encoder not in TEXT_ENCODERS:
        raise NotBuiltError(f"no text encoder is called {cfg.encoder}; choose {', '.join(TEXT_ENCODERS)}")
    return TEXT_ENCODERS[cfg.encoder]


def load_text_encoder(cfg: TextConfig, device: str) -> TextEncoder:
    """Return the encoder in the settings. Raises InputError, CheckpointError or NotBuiltError: it cannot be used."""
    return text_encoder_spec(cfg).load(cfg, device)


def encoder_files(cfg: TextConfig) -> tuple[str, ...]:
    """Return the absolute paths of the encoder's local files, sorted; empty if it has none. Raises as `model_files`."""
    return model_files(cfg) if text_encoder_spec(cfg).needs_model else ()
