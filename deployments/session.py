"""One run from the command line: the lock, the log, the embedded server, the first and the last line."""

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import NoReturn

from deployments.embedded import embedded_server, require_server
from deployments.recipes import recipe
from deployments.settings import server_login
from schemas.config import PipelineConfig, RunOptions
from tasks.artifacts import headline
from trajpilot_core.engine.planning.staleness import changed_settings
from trajpilot_core.errors import command, shown
from trajpilot_core.store.lock import root_lock

LOG = logging.getLogger("trajpilot")
LOCK_WAIT_S = 3600.0
SWALLOWED_S = 10.0
"""Time that a run has to end after Ctrl-C or SIGTERM, before it is ended."""


@contextmanager
def logging_to(root: Path) -> Iterator[Path]:
    """Log the pipeline's lines to the terminal and to a file under `<root>/logs`."""
    path = root / "logs" / f"{datetime.now(UTC):%Y%m%d-%H%M%S}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    logging.raiseExceptions = False  # on a full disk lines are lost, without a traceback for each
    file = logging.FileHandler(path, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stdout), file]
    LOG.setLevel(logging.INFO)
    LOG.propagate = False
    for handler in handlers:
        LOG.addHandler(handler)
    try:
        yield path
    finally:
        for handler in handlers:
            LOG.removeHandler(handler)
            handler.close()


def _end_without_server(message: str) -> NoReturn:
    """Write one message to the terminal and the log, and exit at once; child processes end with this one.

    A normal exit would let Prefect wait for the server for minutes.
    """
    LOG.handlers[:] = [handler for handler in LOG.handlers if isinstance(handler, logging.FileHandler)]
    LOG.error("%s", message)
    sys.stderr.write(f"error: {message}\n")
    sys.stderr.flush()
    os._exit(2)  # as for every error that the user can act on


@contextmanager
def session(config: PipelineConfig, options: RunOptions, what: str, home: Path, server: str | None) -> Iterator[None]:
    """Lock the root, open the log and start the embedded server; the pipeline runs inside the block.

    `home` and `server` are those of `prepare_prefect`. Ctrl-C and SIGTERM end the run and its processes at once, and
    finished work is kept.
    """
    root = Path(options.root)
    changes = changed_settings(recipe(options.recipe).model_dump(mode="json"), config.model_dump(mode="json"))
    summary = headline(options.recipe, changes, config)
    server_text = f"Prefect server {server} (your PREFECT_API_URL)" if server else "Prefect embedded"
    started = time.monotonic()
    with interruptible(), logging_to(root) as log:
        with ExitStack() as stack:
            stack.enter_context(root_lock(str(root), LOCK_WAIT_S))
            LOG.info("TrajPilot on %s; everything is written under %s; %s", what, root, server_text)
            LOG.info("%s; log %s", summary, log)
            if server is None:
                stack.enter_context(embedded_server(home, _end_without_server))
            else:
                require_server(server, server_login())
            yield
            LOG.info("stages, fresh or stale: %s", command("status", "--root", shown(root)))
            LOG.info("UI of this run: %s", command("ui", "--root", shown(root)))
        LOG.info("finished in %.0f s", time.monotonic() - started)


@contextmanager
def interruptible() -> Iterator[None]:
    """Turn Ctrl-C and SIGTERM into one line and an exit, whatever becomes of their exception.

    At a normal exit Prefect's threads would wait for a server that is gone. A flow passes SIGTERM on to the previous
    handler, which is this one, so that the embedded server is stopped, too. Code that we only call can swallow the
    exception; a run that goes on for `SWALLOWED_S` after the signal is ended by a thread.
    """
    received, over = threading.Event(), threading.Event()

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.set()
        raise KeyboardInterrupt

    def leave() -> None:
        sys.stderr.write("interrupted: finished work is kept; repeat the same command to continue\n")
        sys.stderr.flush()
        os._exit(130)  # as in shells after Ctrl-C

    def watch() -> None:
        received.wait()
        if not over.wait(SWALLOWED_S):
            leave()

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    threading.Thread(target=watch, name="interruptible", daemon=True).start()
    try:
        yield
    except BaseException:
        if not received.is_set():
            raise
    finally:
        is_interrupted = received.is_set()
        for number, handler in before.items():
            signal.signal(number, handler)
        over.set()
        received.set()
        if is_interrupted:
            leave()
