"""The classes of the columns of V-JEPA 2's released heads."""

import numpy as np
import pytest
from checkout import OUTSIDE

from trajpilot_core.corpora.epic_kitchens import head_classes as heads
from trajpilot_core.corpora.epic_kitchens.files import parse_actions
from trajpilot_core.corpora.epic_kitchens.head_classes import check_order, head_classes, made_up_pairs
from trajpilot_core.errors import CheckpointError

VALIDATION = OUTSIDE / "data" / "epic100" / "EPIC_100_validation.csv"


def validation_pairs() -> list[tuple[int, int]]:
    """Pairs of the released validation file, row by row."""
    if not VALIDATION.is_file():
        pytest.skip(f"the released annotations of EPIC-KITCHENS-100 are not at {VALIDATION}")
    return [(row.verb_class, row.noun_class) for row in parse_actions(VALIDATION.read_bytes(), "validation").actions]


def test_the_classes_are_in_the_order_of_a_set_of_numbers_as_pandas_gives_them() -> None:
    pairs = made_up_pairs()
    verbs, nouns = (np.array([pair[part] for pair in pairs]) for part in (0, 1))
    literal = set([(v, n) for v, n in zip(verbs, nouns, strict=True)])
    found = head_classes(pairs)
    assert found.actions == tuple((int(v), int(n)) for v, n in literal)
    assert sorted(found.actions) == sorted(set(pairs))
    assert found.verbs == tuple(range(97))
    assert found.nouns == tuple(range(300))


def test_the_order_is_pinned_and_reversed_insertion_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the pairs inserted from the last row to the first, which moves most columns."""
    check_order()
    right, planted = head_classes(made_up_pairs()), head_classes(reversed(made_up_pairs()))
    assert sum(a != b for a, b in zip(right.actions, planted.actions, strict=True)) == 3117
    monkeypatch.setattr(heads, "made_up_pairs", lambda: made_up_pairs()[::-1])
    with pytest.raises(CheckpointError, match="iterates over sets in another order"):
        check_order()


def test_the_order_of_the_released_validation_file_is_pinned() -> None:
    pairs = validation_pairs()
    found = head_classes(pairs)
    assert len(found.actions) == 1352
    assert found.digest() == "7f4767738ddb9759ac6f5bad465f0718c68d030a5c01dd68a1f41fa25450b8a2"
    planted = head_classes(reversed(pairs))
    assert planted.digest() != found.digest()
    assert sum(a != b for a, b in zip(found.actions, planted.actions, strict=True)) == 82
