"""Which training captures are held out as dev, by a rule that no order and no history changes."""

from collections.abc import Iterable

from schemas.config import IngestConfig
from trajpilot_core.corpora.records.balance import rank


def dev_captures(captures: Iterable[str], config: IngestConfig) -> frozenset[str]:
    """Return the captures held out as dev: the first max(dev_min, dev_share) by sha256("seed:capture").

    Args:
        captures: captures of the training takes; repetitions and order do not matter.

    Where there are not more than `dev_min` captures, dev is all of them; the caller says so.
    """
    ordered = sorted(set(captures), key=lambda capture: rank(config.dev_seed, capture))
    return frozenset(ordered[: max(config.dev_min, round(config.dev_share * len(ordered)))])
