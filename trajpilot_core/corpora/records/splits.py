"""Which captures, takes and shots are held out, by rules that do not depend on order or history.

Dev: training captures. Basketball: a take-disjoint split with as many made as missed shots on both sides.
"""

import hashlib
from collections.abc import Iterable, Mapping

from schemas.config import IngestConfig
from schemas.corpora import BasketballConfig

Counts = tuple[int, int]
"""Made and missed shots."""


def rank(seed: int, name: str) -> str:
    """Return the sort key of a capture, take or shot, so that the sample does not depend on the order of files."""
    return hashlib.sha256(f"{seed}:{name}".encode()).hexdigest()


def draw_test(shots: Mapping[str, Counts], config: BasketballConfig) -> frozenset[str]:
    """Return the takes that are tested.

    Of all numbers of made and missed shots that whole takes can give, those are used that lose fewest shots to
    balancing and come nearest to `test_share`: one shot lost weighs as much as half a shot too many or too few.
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
    """Return the shots of one split, given as (id, class), that are left out so that both classes are equally many."""
    listed = sorted(shots, key=lambda shot: rank(seed, shot[0]))
    made, missed = ([name for name, kind in listed if kind == wanted] for wanted in ("made", "missed"))
    least = min(len(made), len(missed))
    return frozenset([*made[least:], *missed[least:]])


def dev_captures(
    captures: Iterable[str], config: IngestConfig, known: Mapping[str, bool] | None = None
) -> frozenset[str]:
    """Return the captures held out as dev: the first max(dev_min, dev_share) by sha256("seed:capture").

    Where the training takes have not more than `dev_min` captures, dev is all of them; the caller reports it.

    Args:
        known: capture -> whether another run held it out; it stays what it was there, and only others are added, as
            far as dev lacks them.
    """
    ordered = sorted(set(captures), key=lambda capture: rank(config.dev_seed, capture))
    wanted = max(config.dev_min, round(config.dev_share * len(ordered)))
    known = known or {}
    inherited = [capture for capture in ordered if known.get(capture)]
    new = [capture for capture in ordered if capture not in known]
    return frozenset([*inherited, *new[: max(0, wanted - len(inherited))]])
