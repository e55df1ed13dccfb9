"""One run at a time holds a root, and who waits learns for whom."""

import fcntl
import os
import signal
import subprocess
import sys
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


def test_a_holder_that_has_not_signed_yet_is_waited_for_and_one_that_never_does_is_unknown(tmp_path: Path) -> None:
    def sign() -> None:
        time.sleep(0.3)
        handle.write(b"process 7 on here, started 2026\n")

    with (tmp_path / ".lock").open("ab+", buffering=0) as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="in use by an unknown process"), root_lock(str(tmp_path), 0):
            pytest.fail("two runs hold one root")
        signer = threading.Thread(target=sign)
        signer.start()
        with pytest.raises(StoreError, match="in use by process 7 on here"), root_lock(str(tmp_path), 0):
            pytest.fail("two runs hold one root")
        signer.join()


HOLD = """
import sys, time
from trajpilot_core.store.lock import root_lock
with root_lock(sys.argv[1], 0):
    print(1, flush=True)
    time.sleep(99)
"""


def test_a_holder_that_was_stopped_is_said_to_be(tmp_path: Path) -> None:
    """Waiting for it would end with its life only."""
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"1\n"
        with pytest.raises(StoreError) as going, root_lock(str(tmp_path), 0):
            pytest.fail("two runs hold one root")
        holder.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, holder.pid, os.WSTOPPED)
        said = f"process {holder.pid} on .* which is stopped .`kill -CONT {holder.pid}`"
        with pytest.raises(StoreError, match=said), root_lock(str(tmp_path), 0):
            pytest.fail("two runs hold one root")
        assert "which is stopped" not in str(going.value)
    finally:
        holder.kill()
        holder.wait()
