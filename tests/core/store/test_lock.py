"""One run at a time holds a root, and who waits learns for whom."""

import os
import threading
import time
from pathlib import Path

import pytest

from trajpilot_core.errors import StoreError
from trajpilot_core.store.lock import root_lock


def test_a_second_run_on_one_root_learns_who_holds_it_or_waits(tmp_path: Path) -> None:
    held = pytest.raises(StoreError, match=f"in use by process {os.getpid()} on .*, started 20")
    with root_lock(str(tmp_path), 0), held, root_lock(str(tmp_path), 0):
        pytest.fail("two runs hold one root")
    entered = threading.Event()

    def hold() -> None:
        with root_lock(str(tmp_path), 0):
            entered.set()
            time.sleep(0.3)

    holder = threading.Thread(target=hold)
    holder.start()
    entered.wait(5)
    with root_lock(str(tmp_path), 20):
        pass
    holder.join()
