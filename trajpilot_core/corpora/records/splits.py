"""Which training captures are held out as dev, by a rule that no order and no history changes."""

from collections.abc import Iterable, Mapping

from schemas.config import IngestConfig
from trajpilot_core.corpora.records.balance import rank


def dev_captures(
    captures: Iterable[str], config: IngestConfig, known: Mapping[str, bool] | None = None
) -> frozenset[str]:
    """Return the captures held out as dev: the first max(dev_min, dev_share) by sha256("seed:capture").

    Args:
        captures: captures of the training takes; repetitions and order do not matter.
        config: how many, and the seed.
        known: capture -> whether another run held it out; it stays what it was there, and only others are added, as
            far as dev lacks them.

    Where there are not more than `dev_min` captures, dev is all of them; the caller says so.
    """
    ordered = sorted(set(captures), key=lambda capture: rank(config.dev_seed, capture))
    wanted = max(config.dev_min, round(config.dev_share * len(ordered)))
    known = known or {}
    inherited = [capture for capture in ordered if known.get(capture)]
    new = [capture for capture in ordered if capture not in known]
    return frozenset([*inherited, *new[: max(0, wanted - len(inherited))]])
