"""Rows and metrics of plugins, in the lists for as long as something of a run that names them is computed or shown."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from schemas.config import EvaluationConfig, ReportConfig
from trajpilot_core.errors import InputError
from trajpilot_core.methods import METHODS
from trajpilot_core.methods.base import Method
from trajpilot_core.metrics import METRICS
from trajpilot_core.metrics.base import MetricSpec
from trajpilot_core.plugins import METHODS as ROWS_GROUP
from trajpilot_core.plugins import METRICS as METRICS_GROUP
from trajpilot_core.plugins import find, load, refuse_clash

_LOCK = threading.Lock()
_HELD: Counter[str] = Counter()
"""Plugin with its version -> how many blocks hold it; stages of one run may do so at the same time."""


@contextmanager
def listed(config: EvaluationConfig | ReportConfig) -> Iterator[None]:
    """List the rows and metrics of the plugins that settings name, after the built-in ones, for a block.

    Raises:
        InputError: a plugin is not installed, cannot be loaded, is of another kind, or has the id of another one.
    """
    with ExitStack() as held:
        for name in config.plugin_rows:
            held.enter_context(_row(name))
        for name in config.plugin_metrics:
            held.enter_context(_metric(name))
        yield


@contextmanager
def _row(name: str) -> Iterator[None]:
    plugin, one = find(name, ROWS_GROUP), load(name, ROWS_GROUP, Method)
    if one.answer is None:
        raise InputError(f"{plugin} brings predictions of a stage, and a plugin has no stages; give it `answer`")
    with _LOCK:
        if not _HELD[plugin.pinned]:
            refuse_clash(name, ROWS_GROUP, one.id, {known.id for known in METHODS})
            METHODS.append(one)
        _HELD[plugin.pinned] += 1
    try:
        yield
    finally:
        with _LOCK:
            _HELD[plugin.pinned] -= 1
            if not _HELD[plugin.pinned]:
                METHODS.remove(one)


@contextmanager
def _metric(name: str) -> Iterator[None]:
    plugin, one = find(name, METRICS_GROUP), load(name, METRICS_GROUP, MetricSpec)
    with _LOCK:
        if not _HELD[plugin.pinned]:
            refuse_clash(name, METRICS_GROUP, one.id, METRICS)
            METRICS[one.id] = one
        _HELD[plugin.pinned] += 1
    try:
        yield
    finally:
        with _LOCK:
            _HELD[plugin.pinned] -= 1
            if not _HELD[plugin.pinned]:
                del METRICS[one.id]
