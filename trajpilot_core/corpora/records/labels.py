"""Raw descriptions -> normalised labels -> paraphrase groups -> the table of answers.

Two texts are the same answer when their normalised strings are equal, or when a paraphrase table lists them together
(docs/decisions/ingest.md).
"""

import csv
import io
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from schemas.annotation import Label, Split
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import BOM, decode_text

SUBJECTS = "the camera wearer, a camera wearer, camera wearer, the person, a person, person, the wearer, c"
SUBJECT_PHRASES = tuple(SUBJECTS.split(", "))
"""Names of the wearer at the start of a description; `c` is that of Ego-Exo4D."""
APOSTROPHES = "'’ʼ`´"
UNSURE_TAG = re.compile(r"#\s*unsure\b|<\s*unsure\b")
TAG = re.compile(rf"{UNSURE_TAG.pattern}\s*>?|#[a-z]\w*|<\s*/?\s*[a-z]\w*\s*/?\s*>")
"""Tags that narrators put into a text, in lower case: `#C`, `#unsure`, `<unsure>`."""
COLUMNS = ["text", "label_id"]


class _Characters(dict[int, str]):
    """Map for str.translate: letters, digits and marks stay, apostrophes go, all else becomes a space."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        keeps = unicodedata.category(character)[0] in "LNM"
        self[code] = "" if character in APOSTROPHES else character if keeps else " "
        return self[code]


_CHARACTERS = _Characters()


def normalise(text: str, subjects: Sequence[str] = SUBJECT_PHRASES) -> str:
    """Return the label of a description: NFKC, lower case, no tags, no punctuation, single spaces, no leading subject.

    Idempotent: the label of a label is the label itself. Empty where nothing is left.

    Args:
        subjects: phrases in normal form that are dropped from the front, repeatedly.
    """
    before = None
    while text != before:
        before = text
        words = " ".join(TAG.sub(" ", _folded(text)).translate(_CHARACTERS).split())
        spoken = next((s for s in subjects if words == s or words.startswith(f"{s} ")), "")
        text = words[len(spoken) + 1 :] if spoken else words
    return text


def _folded(text: str) -> str:
    return unicodedata.normalize("NFKC", text).lower()


def is_tagged_unsure(text: str) -> bool:
    """Return whether a description carries a tag like `#unsure` or `<unsure>`."""
    return UNSURE_TAG.search(_folded(text)) is not None


def read_paraphrases(content: bytes, where: str) -> dict[str, str]:
    """Read a table of paraphrases, CSV with the columns text and label_id; return normalised text -> label id.

    Raises InputError: not UTF-8, no such columns, an empty cell, or one text in two groups.
    """
    text = decode_text(content.removeprefix(BOM), where)
    try:
        rows = csv.DictReader(io.StringIO(text, newline=""), strict=True)
        if rows.fieldnames is None or not set(COLUMNS) <= set(rows.fieldnames):
            raise InputError(f"{where} has the columns {rows.fieldnames}, expected {', '.join(COLUMNS)}")
        groups: dict[str, str] = {}
        for row in rows:
            text, label_id = normalise(row["text"] or ""), (row["label_id"] or "").strip()
            line = f"{where}, line {rows.line_num}"
            if not text or not label_id:
                raise InputError(f"{line}: text or label_id is empty ({row}); fill it or delete the line")
            if groups.setdefault(text, label_id) != label_id:
                raise InputError(f"{line}: {text!r} is in the groups {groups[text]!r} and {label_id!r}; keep one")
    except csv.Error as error:
        raise InputError(f"{where} is no CSV: {error}; quote texts that contain commas") from error
    return groups


def label_rows(texts: Iterable[tuple[str, str, Split]]) -> list[Label]:
    """Return one row per label id, in order of id.

    The label is the text that is most frequent in training (ties: first in order), else the first in order.
    """
    groups: dict[str, Counter[tuple[str, Split]]] = defaultdict(Counter)
    for label_id, text, split in texts:
        groups[label_id][text, split] += 1
    labels = []
    for label_id, counts in sorted(groups.items()):
        total: Counter[Split] = Counter()
        for (_, split), n in counts.items():
            total[split] += n
        texts_of_group = sorted({text for text, _ in counts})
        labels.append(
            Label(
                label_id=label_id,
                label=min(texts_of_group, key=lambda text: (-counts[text, "train"], text)),
                paraphrases=tuple(texts_of_group),
                n_train=total["train"],
                n_dev=total["dev"],
                n_test=total["test"],
            )
        )
    return labels
