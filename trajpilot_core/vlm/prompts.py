"""The texts of the prompts: our own data files, or those of a folder in the settings.

Source: paper, appendix on vision-language baselines (content, order and form of the answer; the wording is ours).
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trajpilot_core.errors import InputError

TEMPLATES = Path(__file__).parent / "templates"
NAMES = (
    "plan",
    "anticipate",
    "segment",
    "fill_system",
    "fill",
    "continue",
    "bank",
    "exemplars",
    "sequences",
    "incomplete",
)
"""Files in a folder of prompts, each with the suffix .txt."""


@dataclass(frozen=True)
class Prompts:
    """The texts of one folder."""

    texts: Mapping[str, str]
    """Name -> text; {items} stands for the number of labels."""

    def text(self, name: str, items: int = 0) -> str:
        """Return one text with the number of labels filled in."""
        return self.texts[name].format(items=items)

    @property
    def digest(self) -> str:
        """Sha256 of names and texts: part of every key."""
        joined = "".join(f"{name}\n{self.texts[name]}\n" for name in NAMES)
        return hashlib.sha256(joined.encode()).hexdigest()


def load_prompts(folder: str | None) -> Prompts:
    """Read the texts of a folder; None: our own.

    Raises:
        InputError: a file is missing, or has a placeholder other than {items}.
    """
    place = TEMPLATES if folder is None else Path(folder)
    texts = {}
    for name in NAMES:
        path = place / f"{name}.txt"
        if not path.is_file():
            raise InputError(
                f"{path} is missing; a folder of prompts contains {', '.join(f'{name}.txt' for name in NAMES)}"
            )
        texts[name] = path.read_text(encoding="utf-8").strip()
        try:
            texts[name].format(items=3)
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(
                f"{path}: {error!r}; the only placeholder is {{items}}; double the braces of JSON"
            ) from error
    return Prompts(texts)
