"""A headless Chromium that a test drives over its DevTools protocol: enough to read a page and to photograph it."""

import base64
import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlparse
from urllib.request import urlopen

import pytest
from stack_processes import PATIENCE, end, wait_for
from websockets.sync.client import ClientConnection, connect

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
START_S = 120.0 * PATIENCE
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--window-size=1400,1800",
    "--remote-debugging-port=0",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)


class Page:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket, self.last = socket, 0
        self.requested: list[str] = []
        """Every address that the page asked for."""
        self("Page.enable")
        self("Network.enable")

    def __call__(self, method: str, **parameters: Any) -> dict[str, Any]:
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, "method": method, "params": parameters}))
        while True:
            message = json.loads(self.socket.recv(timeout=60 * PATIENCE))
            if message.get("method") == "Network.requestWillBeSent":
                self.requested.append(message["params"]["request"]["url"])
            if message.get("id") == self.last:
                if "error" in message:
                    raise RuntimeError(f"{method}: {message['error']}")
                return dict(message["result"])

    def run(self, script: str) -> Any:
        return self("Runtime.evaluate", expression=script, returnByValue=True)["result"].get("value")

    def text(self) -> str:
        return str(self.run("document.body ? document.body.innerText : ''"))

    def open(self, url: str, wanted: str, limit_s: float = 60.0) -> str:
        """Open an address, wait until it has been read to its end and its text holds `wanted`; return the text."""
        self("Page.navigate", url=url)

        def is_whole() -> bool:  # before that, what a script does to the page misses the rest
            return bool(self.run("document.readyState === 'complete'"))

        return self.wait(lambda text: wanted in text and is_whole(), f"{url} shows no {wanted!r}", limit_s)

    def wait(self, enough: Callable[[str], bool], complaint: str, limit_s: float) -> str:
        limit = time.monotonic() + limit_s * PATIENCE
        while True:
            text = self.text()
            if enough(text):
                return text
            assert time.monotonic() < limit, f"{complaint}; it shows:\n{text[:3000]}"
            time.sleep(0.1)

    def photograph(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self("Page.captureScreenshot", format="png")["data"]))

    def outside(self) -> list[str]:
        here = {"127.0.0.1", "localhost", None, ""}
        return [u for u in self.requested if u.startswith(("http", "ws")) and urlparse(u).hostname not in here]


@contextmanager
def browser(folder: Path) -> Iterator[Page]:
    """Start Chromium with its profile in `folder`; it is ended by its process group."""
    program = next(filter(None, map(shutil.which, PROGRAMS)), None)
    if program is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    command = [program, *FLAGS, f"--user-data-dir={folder / 'profile'}", "about:blank"]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, process_group=0)
    try:
        note = folder / "profile" / "DevToolsActivePort"
        wait_for(lambda: note.exists() and bool(note.read_text().strip()), START_S)
        tabs = json.load(urlopen(f"http://127.0.0.1:{note.read_text().split()[0]}/json/list", timeout=30))
        address = next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
        with connect(address, max_size=None) as socket:
            yield Page(socket)
    finally:
        end(process)
