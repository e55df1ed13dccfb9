"""As much of a Prefect server as our commands ask before they start."""

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

LOGIN = "admin:canary-7f3a"
HEADER = f"Basic {base64.b64encode(LOGIN.encode()).decode()}"


class Fake(BaseHTTPRequestHandler):
    """Answers with what its class says; each test has a class of its own."""

    url: str
    header = HEADER
    moved_to = ""

    def do_GET(self) -> None:
        if self.moved_to:
            self.send_response(302)
            self.send_header("Location", self.moved_to)
            self.end_headers()
        elif self.path == "/api/health":
            self.answer(True)
        else:
            self.send_error(404)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != self.header:
            self.send_error(401)
        else:
            self.answer([])

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
