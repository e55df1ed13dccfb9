"""Worker processes end with the process that started them, also where kill -9 ended it."""

import multiprocessing
import os
import signal
import threading


def start_worker() -> None:
    """Prepare a worker: Ctrl-C is the parent's, and the worker leaves as soon as the parent is gone.

    A worker of a pool would else wait for work for ever, and a training go on beside the one that was started again.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    """Wait for the parent's end, then leave at once."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
