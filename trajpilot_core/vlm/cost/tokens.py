"""How many tokens prompts have: by the model's own tokenizer where its folder is here, else estimated. No torch."""

from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from schemas.vlm import VlmConfig, VlmRequest
from trajpilot_core.errors import InputError
from trajpilot_core.vlm.local.folder import IMAGES, TOKENIZERS
from trajpilot_core.vlm.local.rules import ImageRules, fitted, image_rules

CHARACTERS = 4
"""Of a token, where no tokenizer is here. Assumed."""
OF_A_MESSAGE, OF_A_FRAME = 16, 2
"""Tokens that a template writes around a message, and around an image. Assumed."""
ASSUMED_RULES = ImageRules(16, 2, 2, (0.5,) * 3, (0.5,) * 3, 1, 1 << 30)
"""Of images, where no folder says: patches of 16 px, four of them a token (transformers' Qwen3-VL)."""


class TokenCount:
    """Counts the tokens of texts and frames for one model."""

    def __init__(self, place: str, cfg: VlmConfig) -> None:
        folder = Path(place)
        path = folder / TOKENIZERS[0][0]
        self._tokenizer = _tokenizer(path) if path.is_file() else None
        rules = image_rules(folder) if (folder / IMAGES).is_file() else ASSUMED_RULES
        height, width = fitted(cfg.size_px, cfg.size_px, rules)
        self.a_frame = rules.tokens((1, height // rules.patch_px, width // rules.patch_px)) + OF_A_FRAME
        self.of_text = lru_cache(maxsize=32)(self._count)

    @property
    def how(self) -> str:
        """How texts are counted, in words."""
        if self._tokenizer is not None:
            return "counted by the model's tokenizer"
        return f"estimated at {CHARACTERS} characters a token"

    def _count(self, text: str) -> int:
        if self._tokenizer is None:
            return -(-len(text) // CHARACTERS)
        return len(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def of(self, request: VlmRequest) -> int:
        """Return the tokens of a whole prompt, those of the template at what is assumed of it."""
        parts = [part for message in request.messages for part in message.parts]
        texts = sum(self.of_text(part.text) for part in parts)
        return texts + sum(len(part.frames) for part in parts) * self.a_frame + OF_A_MESSAGE * len(request.messages)

    def of_bank(self, request: VlmRequest) -> int:
        """Return the tokens of the bank in a prompt; 0 where it has none."""
        return sum(
            self.of_text(part.text) for message in request.messages for part in message.parts if part.section == "bank"
        )


def _tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.

    Raises:
        InputError: the file is none.
    """
    try:
        return Tokenizer.from_str(path.read_text(encoding="utf-8"))
    except Exception as error:  # the library raises nothing narrower
        raise InputError(f"{path} is no tokenizer ({error}); copy it again") from error
