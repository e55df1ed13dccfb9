"""Rows and metrics of plugins, listed while a stage or page of a run that names them is computed or shown."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

from schemas.config import CompletedReport, EvaluationConfig
from trajpilot_core.errors import InputError
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import Method
from trajpilot_core.metrics import METRICS
from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.plugins import METHODS as ROWS_GROUP
from trajpilot_core.plugins import METRICS as METRICS_GROUP
from trajpilot_core.plugins import find, load, refuse_clash

_LOCK = threading.Lock()
_IN_USE: Counter[str] = Counter()
"""Plugin with its version -> number of blocks that use it; stages of one run may do so at the same time."""


@contextmanager
def listed(config: EvaluationConfig | CompletedReport) -> Iterator[None]:
    """List the rows and metrics of the plugins that settings name, after the built-in ones, for a block.

    Raises:
        InputError: a plugin is not installed, cannot be loaded, is of another kind, or has the id of another one.
    """
    with ExitStack() as stack:
        for name in config.plugin_rows:
            plugin, row = find(name, ROWS_GROUP), load(name, ROWS_GROUP, Method)
            if row.answer is None:
                raise InputError(f"{plugin} has predictions of a stage, and a plugin has no stages; give it `answer`")
            stack.enter_context(_in_list(plugin.pinned, partial(_add_row, name, row), partial(METHODS.remove, row)))
        for name in config.plugin_metrics:
            plugin, metric = find(name, METRICS_GROUP), load(name, METRICS_GROUP, MetricSpec)
            add, remove = partial(_add_metric, name, metric), partial(METRICS.pop, metric.id)
            stack.enter_context(_in_list(plugin.pinned, add, remove))
        yield


def _add_row(name: str, row: Method) -> None:
    refuse_clash(name, ROWS_GROUP, row.id, {known.id for known in METHODS})
    METHODS.append(row)


def _add_metric(name: str, metric: MetricSpec) -> None:
    refuse_clash(name, METRICS_GROUP, metric.id, METRICS)
    METRICS[metric.id] = metric


@contextmanager
def _in_list(plugin: str, add: Callable[[], None], remove: Callable[[], object]) -> Iterator[None]:
    """Add what a plugin contains with the first block that uses it, and remove it with the last."""
    with _LOCK:
        if not _IN_USE[plugin]:
            add()
        _IN_USE[plugin] += 1
    try:
        yield
    finally:
        with _LOCK:
            _IN_USE[plugin] -= 1
            if not _IN_USE[plugin]:
                remove()
