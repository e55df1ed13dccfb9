"""Sentences about the state before and after every label, for two planners of other papers.

Source: SCHEMA (Niu et al., ICLR 2024), with sentences by a language model; our template needs no model and adds little
information to the label. Each sentence starts with "before" or "after".
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from schemas.config import TextConfig
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import parse_json

SENTENCES = 3
"""Number of sentences per side."""
TEMPLATES: Mapping[str, tuple[str, str, str]] = {
    "before": (
        "before: {} is about to begin",
        "before: nobody has done this yet: {}",
        "before: what {} needs is ready",
    ),
    "after": ("after: {} is done", "after: somebody has just done this: {}", "after: what {} leaves is there"),
}


def describe(labels: Sequence[str], cfg: TextConfig) -> dict[str, tuple[str, ...]] | None:
    """Return label -> its sentences, "before" first; None if they are disabled.

    Raises InputError: the file is missing, has another format, or lacks a label.
    """
    if cfg.descriptions == "none":
        return None
    if cfg.descriptions == "template":
        texts = [text for side in TEMPLATES.values() for text in side]
        return {label: tuple(text.format(label) for text in texts) for label in labels}
    path = descriptions_file(cfg)
    shape = f'a label -> {{"before": [{SENTENCES} sentences], "after": [{SENTENCES} sentences]}}'
    try:
        known = parse_json(path.read_bytes(), str(path))
    except InputError as error:
        raise InputError(f"{error}: write {shape}") from error
    sentences: dict[str, tuple[str, ...]] = {}
    for label in labels:
        entry = known.get(label) if isinstance(known, dict) else None
        lines: list[str] = []
        for side in TEMPLATES:
            listed = entry.get(side) if isinstance(entry, dict) else None
            if not isinstance(listed, list) or len(listed) != SENTENCES or not all(isinstance(x, str) for x in listed):
                raise InputError(
                    f"{path} has no sentences for {label!r}; it needs {shape}, for every label of the corpus"
                )
            lines += [f"{side} {text}" for text in listed]
        sentences[label] = tuple(lines)
    return sentences


def descriptions_file(cfg: TextConfig) -> Path:
    """Return the absolute path of the file with the sentences. Raises InputError: it is not set, or does not exist."""
    if cfg.descriptions_file is None or not Path(cfg.descriptions_file).is_file():
        raise InputError(
            f"text_bank.descriptions_file is {cfg.descriptions_file!r}, which is not a file; set one, or "
            "use the template (--set text_bank.descriptions=template)"
        )
    return Path(cfg.descriptions_file).absolute()
