"""Whether a device has the memory for Scorer+, asked before anything is made for it.

Shapes: V labels, T takes that a chain was fitted on, B queries of a batch, H steps.
"""

from schemas.training import ScorerPlusConfig
from trajpilot_core.data.chains import chains_of, fit_takes
from trajpilot_core.data.planning import PlanningData
from trajpilot_core.engine.capacity import usable_memory
from trajpilot_core.errors import InputError
from trajpilot_core.memory import free_bytes
from trajpilot_core.training.scorer_plus_tables import FITTED, KEPT, step_bytes, table_bytes


def plus_bytes(labels: int, takes: int, chains: int, queries: int = 0, horizon: int = 0) -> int:
    """Return the most bytes that Scorer+ holds at a time.

    Args:
        labels: V.
        takes: T, most of a chain.
        chains: whose statistics are held.
        queries: B of a step of the training; 0: nothing is trained.
        horizon: H.
    """
    step = step_bytes(labels, takes, queries, horizon) if queries else 0
    return chains * table_bytes(KEPT, labels, takes) + max(table_bytes(FITTED, labels, takes), step)


def require_memory_for_training(data: PlanningData, config: ScorerPlusConfig, device: str) -> None:
    """Check that Scorer+ can be trained there, before anything is made for it.

    Raises:
        InputError: its tables do not fit the memory.
    """
    chains = chains_of(data)
    takes = max(len(fit_takes(data, chain)) for chain in chains)
    need = plus_bytes(len(data.label_ids), takes, len(chains), config.train.batch, max(data.windows, default=0))
    _require(need, data, f"the statistics of {len(chains)} chains and a step of the training", device)


def require_memory_for_answers(data: PlanningData, takes: int, device: str) -> None:
    """Check that the statistics of one chain fit, whose `takes` are known.

    Raises:
        InputError: its tables do not fit the memory.
    """
    _require(plus_bytes(len(data.label_ids), takes, 1), data, "the statistics of one chain", device)


def _require(need: int, data: PlanningData, what: str, device: str) -> None:
    """Raise InputError where a device has less than `need` bytes; one that reports no memory is not refused."""
    free = usable_memory() if device == "cpu" else free_bytes(device)
    if not free or need <= free:
        return
    labels = len(data.label_ids)
    raise InputError(
        f"Scorer+ weighs every pair of {labels:,} labels: a table of them takes {4 * labels**2 / 1e9:.2f} GB, {what} "
        f"need {need / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free on {device}; leave it out with --set "
        "scorer.plus=null (its row is absent then), or choose a device with more memory"
    )
