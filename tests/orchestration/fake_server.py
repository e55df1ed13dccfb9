"""As much of a Prefect server as our commands ask before they start."""

import base64
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata

LOGIN = "admin:canary-7f3a"
HEADER = f"Basic {base64.b64encode(LOGIN.encode()).decode()}"


class Fake(BaseHTTPRequestHandler):
    """Answers with what its class says; each test has a class of its own."""

    url: str
    header: str | None = HEADER
    version: str | None = metadata.version("prefect")
    moved_to = ""
    pools: Mapping[str, str] = {"trajpilot-cpu": "process", "trajpilot-gpu": "process"}
    workers: Mapping[str, Sequence[str]] = {"trajpilot-cpu": ("ONLINE", "OFFLINE"), "trajpilot-gpu": ()}
    deployments: Sequence[str] = ("full-pipeline", "ingest")

    def do_GET(self) -> None:
        pool = self.path.partition("/work_pools/")[2]
        if self.moved_to:
            self.send_response(302)
            self.send_header("Location", self.moved_to)
            self.end_headers()
        elif self.path == "/api/health":
            self.answer(True)
        elif not self.knows_login():
            self.send_error(401)
        elif not pool and self.version:
            self.answer(self.version)
        elif pool in self.pools:
            self.answer({"name": pool, "type": self.pools[pool]})
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if not self.knows_login():
            self.send_error(401)
        elif self.path == "/api/deployments/filter":
            self.answer([{"name": name} for name in self.deployments])
        elif (pool := self.path.split("/")[3]) in self.workers:
            self.answer([{"status": status} for status in self.workers[pool]])
        else:
            self.send_error(404)

    def knows_login(self) -> bool:
        return self.header in (None, self.headers.get("Authorization"))

    def answer(self, body: object) -> None:
        content = json.dumps(body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def serving() -> Iterator[type[Fake]]:
    kind = type("OneFake", (Fake,), {})
    with ThreadingHTTPServer(("127.0.0.1", 0), kind) as server:
        kind.url = f"http://127.0.0.1:{server.server_port}/api"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield kind
        server.shutdown()
        thread.join()
