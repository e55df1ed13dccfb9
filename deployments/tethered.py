"""A Prefect server that exits with the process that started it, even after a crash: `python -m` runs this file.

The server's standard input is a pipe that only that process can write to; the system closes it with the process.
"""

import os
import runpy
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import IO

END_S = 5.0
SERVER = ("prefect", "--no-prompt", "server", "start", "--host", "127.0.0.1")


def launch(
    words: Sequence[str], environment: Mapping[str, str], log: IO[bytes] | None = None
) -> subprocess.Popen[bytes]:
    """Start a Python module with its arguments (`words`, as for `python -m`) in its own session, which Ctrl-C does not
    reach and which ends with this process at the latest; without a `log`, its output is that of this process."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "deployments.tethered", *words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


def stop(server: subprocess.Popen[bytes]) -> None:
    """Terminate a server by its process id; kill its whole session if it is still alive after `END_S`."""
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(timeout=END_S)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def end_with_parent() -> None:
    """Wait until the pipe closes, then kill this process and its children: the run is gone."""
    while os.read(0, 1):
        pass
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    threading.Thread(target=end_with_parent, daemon=True).start()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
