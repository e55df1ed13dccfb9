"""Whatever is wrong with the documents, ingest ends with balanced rows or with an error that says what to do."""

import copy
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from egoexo_fixture import (
    SMALL,
    EgoExoCorpus,
    annotate,
    describe,
    healthy,
    ingest,
    list_sources,
    steps,
    write,
)
from hypothesis import given
from hypothesis import strategies as st

from schemas.base import canonical_json, canonical_object
from trajpilot_core.errors import TrajPilotError

pytestmark = pytest.mark.usefixtures("no_decoder")
JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 10**30, 1.5, -0.0, float("nan"), float("inf"), 1e308, "", "0", "1", "C", "x" * 400,
    "../../etc/passwd", "/", "a/b", ".", "..", "\u0000", "\ud800", "\ufeff", "\u202etxt", "train", "val", [], {},
    [[]], {"a": 1}, [None], "uid-train_0", "aria02"
]  # fmt: skip


FEW_WINDOWS = SMALL.replace(max_horizon=4)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Return (container, key) of every value in a document."""
    here = list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
    return [place for key, child in here for place in [(node, key), *places(child)]]


def mutate(document: Any, order: random.Random) -> None:
    """Replace, delete, double or move a few random values of a document."""
    for _ in range(order.randint(1, 4)):
        container, key = order.choice(places(document) or [(document, None)])
        action = order.choice(["junk", "junk", "delete", "double", "rename", "swap"])
        if key is None:
            return
        if action == "junk":
            container[key] = copy.deepcopy(order.choice(JUNK))
        elif action == "delete":
            del container[key]
        elif action == "double" and isinstance(container, list):
            container.insert(order.randrange(len(container) + 1), copy.deepcopy(container[key]))
        elif action == "rename" and isinstance(container, dict):
            container[str(order.choice(JUNK))] = container.pop(key)
        elif action == "swap":
            other, place = order.choice(places(document))
            container[key] = copy.deepcopy(other[place])


def survivors(n: int, damaged: Callable[[random.Random, int], None], ends: Callable[[], object]) -> int:
    """How many of `n` mutated corpora are read to their end; the others must end with an error of ours."""
    ended = 0
    for seed in range(n):
        damaged(random.Random(seed), seed)
        try:
            ends()
            ended += 1
        except TrajPilotError as error:
            str(error).encode()
    return ended


def corpus_for(root: Path, n_train: int = 2, n_test: int = 1) -> EgoExoCorpus:
    corpus = healthy(root, n_train, n_test)
    extra = [describe("O x.", 4.0, subject="O"), describe("C y.", 4.2, ego_visible="0"), describe("C z.", 11.9)]
    corpus.train["uid-train_0"] = [annotate([*steps(), *extra], "a"), annotate(steps(), "b", rejected=True)]
    return corpus


def check(root: Path) -> None:
    """Ingest. The sink asserts that rows balance."""
    list_sources(root)
    sink = ingest(root, FEW_WINDOWS)
    for row in sink.rejects:
        (row.detail + row.take).encode()
    splits: dict[str, set[str]] = {}
    for row in sink.rows("segments"):
        splits.setdefault(row["take_id"], set()).add(row["split"])
    assert all(len(found) == 1 for found in splits.values())


@pytest.mark.slow
def test_mutated_annotation_files_never_crash_and_rows_balance(tmp_path: Path) -> None:
    corpus = corpus_for(tmp_path)
    clean = copy.deepcopy(corpus.train)

    def damaged(order: random.Random, seed: int) -> None:
        corpus.train = copy.deepcopy(clean)
        mutate(corpus.train, order)

    assert survivors(75, damaged, lambda: check(corpus.write())) > 62


def test_mutated_metadata_never_crashes_and_rows_balance(tmp_path: Path) -> None:
    corpus = corpus_for(tmp_path, n_train=4, n_test=2)
    takes, splits = copy.deepcopy(corpus.takes), copy.deepcopy(corpus.splits)

    def damaged(order: random.Random, seed: int) -> None:
        corpus.takes, corpus.splits = copy.deepcopy(takes), copy.deepcopy(splits)
        mutate(corpus.takes if seed % 3 else corpus.splits, order)

    assert survivors(60, damaged, lambda: check(corpus.write())) > 30


def test_files_with_flipped_cut_and_doubled_bytes_never_crash(tmp_path: Path) -> None:
    root = corpus_for(tmp_path).write()
    names = ["takes.json", "annotations/splits.json", "annotations/atomic_descriptions_train.json"]
    whole = {name: (root / name).read_bytes() for name in names}

    def damaged(order: random.Random, seed: int) -> None:
        for name, content in whole.items():
            write(root / name, content)
        name = order.choice(names)
        content = bytearray(whole[name])
        at = order.randrange(len(content))
        if seed % 3 == 0:
            content[at] ^= 1 << order.randrange(8)
        elif seed % 3 == 1:
            del content[at:]
        else:
            content[at:at] = content[at : at + order.randrange(1, 60)]
        write(root / name, bytes(content))

    survivors(60, damaged, lambda: check(root))


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.dictionaries(st.text(), VALUES, max_size=4))
def test_an_object_made_of_the_texts_of_its_values_is_canonical(values: dict[str, object]) -> None:
    texts = {name: canonical_json(value) for name, value in values.items()}  # type: ignore[arg-type]
    assert canonical_object(texts) == canonical_json(values)  # type: ignore[arg-type]
