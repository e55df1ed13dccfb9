"""The words of the prompts: data files in our own words, or those of a folder that a setting names.

Source: paper, appendix on vision-language baselines (content, order and form of the answer; none of its wording).
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
"""Files of a folder of prompts, each with the suffix .txt."""


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
        """Sha256 over names and texts: it enters every key."""
        joined = "".join(f"{name}\n{self.texts[name]}\n" for name in NAMES)
        return hashlib.sha256(joined.encode()).hexdigest()


def load_prompts(folder: str | None) -> Prompts:
    """Read the texts of a folder; None: our own.

    Raises:
        InputError: a file is missing, or has a placeholder that is not {items}.
    """
    place = TEMPLATES if folder is None else Path(folder)
    texts = {}
    for name in NAMES:
        path = place / f"{name}.txt"
        if not path.is_file():
            raise InputError(f"no {path}; a folder of prompts holds {', '.join(f'{one}.txt' for one in NAMES)}")
        texts[name] = path.read_text(encoding="utf-8").strip()
        try:
            texts[name].format(items=3)
        except (KeyError, IndexError, ValueError) as error:
            raise InputError(
                f"{path}: {error!r}; the only placeholder is {{items}}, and braces of JSON are doubled"
            ) from error
    return Prompts(texts)
