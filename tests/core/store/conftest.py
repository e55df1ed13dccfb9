"""An object store on this machine."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = pytest.importorskip("moto.server", reason="moto is not installed")
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()
