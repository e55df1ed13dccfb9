"""A take-disjoint split with as many made as missed shots on both sides, drawn by a rule that no order changes."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from schemas.corpora import BasketballConfig

Counts = tuple[int, int]
"""Made and missed shots."""


def rank(seed: int, name: str) -> str:
    """Return what a capture, a take or a shot is sorted by, so that no order decides which ones are sampled."""
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()


def draw_test(shots: Mapping[str, Counts], config: BasketballConfig) -> frozenset[str]:
    """Return the takes that are tested.

    Of all numbers of made and missed shots that whole takes can give, those are used that lose fewest shots to
    balancing and come nearest to `test_share`: one shot lost weighs as much as half a shot too many or too few.

    Args:
        shots: take -> its shots.
        config: share, seed, and whether classes are balanced.
    """
    reached: dict[Counts, tuple[str, ...]] = {(0, 0): ()}
    for take in sorted(shots, key=lambda name: rank(config.seed, name)):
        made, missed = shots[take]
        for (m, n), takes in list(reached.items()):
            reached.setdefault((m + made, n + missed), (*takes, take))
    total = (sum(m for m, _ in shots.values()), sum(n for _, n in shots.values()))
    best = min(reached, key=lambda test: (_cost(test, total, config), test))
    return frozenset(reached[best])


def _cost(test: Counts, total: Counts, config: BasketballConfig) -> float:
    train = (total[0] - test[0], total[1] - test[1])
    n_test, n_train = (2 * min(side) if config.balance else sum(side) for side in (test, train))
    return (sum(total) - n_test - n_train) + 2 * abs(n_test - config.test_share * (n_test + n_train))


def surplus(shots: Iterable[tuple[str, str]], seed: int) -> frozenset[str]:
    """Return the shots to leave out so that both classes are equally many.

    Args:
        shots: (id, class) of one split.
        seed: decides which of the larger class go.
    """
    listed: Sequence[tuple[str, str]] = sorted(shots, key=lambda shot: rank(seed, shot[0]))
    times = Counter(kind for _, kind in listed)
    least = min(times["made"], times["missed"])
    kept: Counter[str] = Counter()
    out = []
    for name, kind in listed:
        kept[kind] += 1
        if kept[kind] > least:
            out.append(name)
    return frozenset(out)
