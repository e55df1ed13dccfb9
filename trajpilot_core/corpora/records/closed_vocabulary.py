"""The closed vocabulary of atomic descriptions: classes of (verb, head noun). Rule: D 24, docs/decisions/corpora.md.

The paper names 1,165 classes and no rule. Ours needs no word lists beyond English function words: frequent
classes are kept, as many as come nearest to the requested number; every other label goes to the
class whose training texts share most words with it. Segments keep their labels: labels are mapped to classes where
answers are scored (docs/decisions/classes.md).
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from scipy import sparse

from schemas.annotation import CorpusCount, Label, LabelClass
from schemas.arrow import rows_of, table_of
from trajpilot_core.corpora.base import count

PARTICLES = "the a an his her their its one two some another other up down off out away back over around"
SKIPPED = frozenset(PARTICLES.split())
"""Articles and particles: they end no noun phrase and are no head of one."""
LINKS = (
    "with in on from to into onto of at for by using and while through under towards toward inside against "
    "between near behind above below as that"
)
ENDS = frozenset(LINKS.split())
"""Words that end a noun phrase."""
PAIRS = (
    "knives knife, leaves leaf, loaves loaf, halves half, shelves shelf, feet foot, has have, does do, goes go, is be"
)
IRREGULAR: dict[str, str] = dict(pair.split() for pair in PAIRS.split(", "))
HISSES = ("sses", "shes", "ches", "xes", "zes")
CLASSES, PAPER_CLASSES, SETTING = "classes", 1165, "ingest.atomic.classes"
"""`CorpusCount.what` of the number of classes, the paper's number, and the setting that aims at it."""
VerbNoun = tuple[str, str]


class KeptClasses(NamedTuple):
    """Which classes are kept, and the class of every label."""

    of: Mapping[str, VerbNoun]
    """Label -> its kept class."""
    least: int
    """Training segments that a kept class has at least."""


def lemma(word: str) -> str:
    """Return a verb in the third person, or a noun in the plural, without its ending."""
    if word in IRREGULAR:
        return IRREGULAR[word]
    if word.endswith("ies") and len(word) > 4:
        return word[:-3] + "y"
    if word.endswith(HISSES):
        return word[:-2]
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2 else word


def verb_noun(label: str) -> VerbNoun:
    """Return verb and head noun of a normalised description; the noun is empty where there is none.

    The verb is the first word; the head noun is the last word of the first noun phrase after it.
    """
    verb, *rest = label.split()
    phrase: list[str] = []
    for word in rest:
        if word in ENDS and phrase:
            break
        if word not in ENDS and word not in SKIPPED:
            phrase.append(word)
    return lemma(verb), lemma(phrase[-1]) if phrase else ""


def choose_classes(trained: Mapping[str, int], every: Iterable[str], wanted: int) -> KeptClasses:
    """Return the kept classes, about `wanted` (of two numbers as near, the larger), and the class of every label.

    `trained` is label -> training segments, for at least one label.
    """
    times: Counter[VerbNoun] = Counter()
    for label, n in trained.items():
        times[verb_noun(label)] += n
    sizes = sorted(set(times.values()))
    least = min(sizes, key=lambda size: (abs(sum(n >= size for n in times.values()) - wanted), size))
    kept = sorted(pair for pair, n in times.items() if n >= least)
    labels = sorted(set(every))
    pairs = {label: verb_noun(label) for label in labels}
    rare = [label for label in labels if times[pairs[label]] < least]
    known = {label: n for label, n in trained.items() if times[verb_noun(label)] >= least}
    return KeptClasses(pairs | dict(zip(rare, _nearest(rare, known, kept, times), strict=True)), least)


def _nearest(
    rare: Sequence[str], known: Mapping[str, int], kept: Sequence[VerbNoun], times: Counter[VerbNoun]
) -> list[VerbNoun]:
    """Return the kept class nearest to each rare label: cosine of counts of words, then frequency, then name."""
    every = sorted({lemma(word) for label in (*known, *rare) for word in label.split()})
    words = {word: column for column, word in enumerate(every)}
    row = {pair: i for i, pair in enumerate(kept)}

    def bags(texts: Iterable[tuple[int, str, int]], n_rows: int) -> "sparse.csr_array":
        """Return (n_rows, words) counts of the words in texts (row, text, weight)."""
        cells = [(row, words[lemma(word)], n) for row, text, n in texts for word in text.split()]
        rows, columns, n = (np.array(part, np.int64) for part in (zip(*cells, strict=True) if cells else ((), (), ())))
        return sparse.coo_array((n.astype(np.float64), (rows, columns)), shape=(n_rows, len(words))).tocsr()

    centroids = bags([(row[verb_noun(label)], label, n) for label, n in known.items()], len(kept))
    queries = bags([(i, label, 1) for i, label in enumerate(rare)], len(rare))
    norm = np.sqrt(np.asarray(centroids.multiply(centroids).sum(axis=1)).ravel())
    ranked = np.array(sorted(range(len(kept)), key=lambda i: (-times[kept[i]], kept[i])), np.int64)
    cosine = (queries @ centroids.T).toarray() / norm  # the query's own length changes no order
    return [kept[ranked[int(np.argmax(scores[ranked]))]] for scores in cosine]


def label_classes(labels: pa.Table, wanted: int | None) -> tuple[pa.Table, tuple[CorpusCount, ...]]:
    """Return the class of every label (columns of `LabelClass`, in order of label id), and counts of the collapse.

    Args:
        labels: the table of labels; the released training split decides on the classes, dev among it.
        wanted: number of classes that is aimed at; None: every label is a class of its own, and nothing is counted.
    """
    rows = rows_of(Label, labels)
    if wanted is None:
        return table_of(LabelClass, [_label_class(row, row) for row in rows]), ()
    released: Counter[str] = Counter()
    for row in rows:
        released[row.label] += row.n_train + row.n_dev
    trained = {text: n for text, n in released.items() if n > 0} or dict.fromkeys(released, 1)
    chosen = choose_classes(trained, released, wanted)
    members: dict[VerbNoun, list[Label]] = defaultdict(list)
    for row in rows:
        members[chosen.of[row.label]].append(row)
    first = {
        pair: min(group, key=lambda row: (-row.n_train, row.label, row.label_id)) for pair, group in members.items()
    }
    moved = sum(row.n_train + row.n_dev + row.n_test for row in rows if chosen.of[row.label] != verb_noun(row.label))
    counts = (
        count(CLASSES, len(members), PAPER_CLASSES, SETTING),
        count("training segments that a class needs", chosen.least, setting=SETTING),
        count("segments moved to the nearest class", moved, setting=SETTING),
    )
    return table_of(LabelClass, [_label_class(row, first[chosen.of[row.label]]) for row in rows]), counts


def _label_class(label: Label, of: Label) -> LabelClass:
    return LabelClass(label_id=label.label_id, class_id=of.label_id, class_text=of.label, n_train=label.n_train)
