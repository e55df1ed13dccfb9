"""Asking a server: what is sent where and in which order, what is repeated, when it stops, and what is kept."""

import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from vlm_fixture import ask, settings, world

from deployments.recipes import recipe
from schemas.config import PipelineConfig
from schemas.vlm import VlmMessage, VlmPart, VlmReply, VlmRequest, VlmServer
from trajpilot_core.errors import InputError
from trajpilot_core.stages import stages_of, vlm
from trajpilot_core.vlm.clients import HttpClient, check_server


@dataclass
class Said:
    """One answer of the server, which sends nothing for `hangs_s`."""

    status: int = 200
    text: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    hangs_s: float = 0.0


class ChatServer(ThreadingHTTPServer):
    """Gives the answers of `script`, one each; then it completes every chat with `text`."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, script: list[Said], text: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.text = list(script), text
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.under_way, self.most_under_way, self.counting = 0, 0, threading.Lock()

    @property
    def url(self) -> str:
        """Address without the path of completions."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def completion(self, model: str) -> str:
        """One answer as servers write it."""
        return json.dumps({"model": model, "choices": [{"message": {"content": self.text}}]})


class Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        server = self.server
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append(asked)
        server.paths.append(self.path)
        with server.counting:
            said = server.script.pop(0) if server.script else Said(text=server.completion(asked["model"]))
            server.under_way += 1
            server.most_under_way = max(server.most_under_way, server.under_way)
        time.sleep(said.hangs_s)
        with server.counting:
            server.under_way -= 1
        try:
            self.send_response(said.status)
            content = said.text.encode()
            for name, value in {"Content-Length": str(len(content)), **said.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)
        except OSError:
            self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def chat_server(*script: Said, text: str = '{"sequence": ["x"]}') -> Iterator[ChatServer]:
    server = ChatServer(list(script), text)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


AWAY = "https://models.example/v1"


def requests(number: int = 1) -> list[VlmRequest]:
    said = [VlmMessage(role="user", parts=(VlmPart(section="instruction", text=f"{at}"),)) for at in range(number)]
    return [VlmRequest(question="fill", model="m", messages=(one,), items=1, max_tokens=8) for one in said]


def asked(url: str, number: int = 1, **changes: object) -> list[VlmReply]:
    own = VlmServer.model_validate({"url": url, **changes})
    return list(HttpClient(own).ask(requests(number), {}))


def test_an_answer_is_read_and_names_its_request() -> None:
    with chat_server(text="stir") as server:
        (reply,) = asked(server.url)
    (request,) = requests()
    assert reply == VlmReply(request=request.digest(), text="stir", answered_by="m")
    assert server.paths == ["/v1/chat/completions"]
    assert server.asked[0]["temperature"] == 0


def test_a_fault_that_time_can_heal_is_sent_again() -> None:
    cut = Said(200, "{}", {"Content-Length": "999"})
    for fault in (Said(429, "busy", {"Retry-After": "0.1"}), Said(503, "starts"), cut):
        with chat_server(fault, text="stir") as server:
            (reply,) = asked(server.url, timeout_s=0.5)
        assert (reply.text, len(server.asked)) == ("stir", 2), fault


def test_the_last_try_reports_what_came_back() -> None:
    with (
        chat_server(*[Said(502, "gateway down")] * 2) as server,
        pytest.raises(InputError, match=r"up to 2 tries\): status 502: gateway down\..* the answers so far are stored"),
    ):
        asked(server.url, tries=2)
    assert len(server.asked) == 2


def test_a_server_that_does_not_answer_in_time_is_named() -> None:
    timed_out = r"http://127\.\S+ failed.*(ReadTimeout|timed out)"
    with chat_server(Said(hangs_s=1.0)) as server, pytest.raises(InputError, match=timed_out):
        asked(server.url, timeout_s=0.2, tries=1)
    with pytest.raises(InputError, match=rf"{server.url} failed.*Connection refused"):
        asked(server.url, tries=1)


def test_a_refusal_is_not_repeated_and_says_what_came_back() -> None:
    refusals = [Said(status, '{"error": "context\n too long"}') for status in (400, 401, 404, 418)]
    shapeless = [Said(200, text) for text in ("[]", "null", '{"error": "no model"}', '{"choices": [], "model": "m"}')]
    for said in (*refusals, *shapeless):
        wanted = "not a chat completion: " if said.status == 200 else rf"status {said.status}: .*context too long"
        with chat_server(said) as server, pytest.raises(InputError, match=wanted) as raised:
            asked(server.url)
        assert len(server.asked) == 1, said
        assert said.status != 200 or said.text in str(raised.value)


def test_a_redirection_is_not_followed() -> None:
    with chat_server() as other, chat_server(Said(307, "", {"Location": other.url})) as server:
        with pytest.raises(InputError, match="status 307"):
            asked(server.url)
        assert (len(server.asked), len(other.asked)) == (1, 0)


def test_proxies_of_the_environment_see_nothing(monkeypatch) -> None:
    with chat_server() as proxy, chat_server(text="stir") as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert asked(server.url)[0].text == "stir"
        assert proxy.asked == []


def test_another_machine_gets_no_frames_and_a_run_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    lookalikes = [f"http://{host}.models.example/v1" for host in ("127.0.0.1", "localhost")]
    hosts = ("192.168.0.9:8000", "2130706433", "[2001:db8::1]", "0.0.0.0:8000")
    wrong = ("127.0.0.1:8000", "ftp://127.0.0.1/v1", "http://", "http://127.0.0.1/v1?a=b", "http://[x/v1")
    for url in (AWAY, *lookalikes, *(f"http://{host}/v1" for host in hosts), *wrong):
        with subtests.test(url), pytest.raises(InputError, match=r"vlm\.server\.url is .* Nothing was sent"):
            check_server(VlmServer(url=url))
    for url in ("http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:8000/v1/"):
        check_server(VlmServer(url=url))
    asking, away = recipe("vlm_zero_shot"), {"backend": "http", "server": {"url": AWAY}}
    with pytest.raises(InputError, match="Nothing was sent"):
        stages_of(asking.replace(vlm=asking.vlm.replace(**away)))
    with pytest.raises(InputError, match="Nothing was sent"):
        ask(world(), settings(tmp_path, **away), tmp_path, monkeypatch)


def test_how_answers_are_reached_is_in_no_key_of_an_answer_or_a_row() -> None:
    base = PipelineConfig()
    other = base.replace(vlm=base.vlm.replace(server=VlmServer(url="http://127.0.0.1:1/v1", parallel=7)))
    assert vlm.ROWS.completed(other).content() == vlm.ROWS.completed(base).content()
    shards = [vlm.STAGE.settings_of_shards(vlm.completed(one).content()) for one in (base, other)]
    assert shards[0] == shards[1]


def test_what_was_answered_before_a_refusal_is_kept(tmp_path, monkeypatch) -> None:
    cfg = settings(tmp_path, backend="http")
    with chat_server() as server:
        server.script = [Said(text=server.completion("m")), Said(text=server.completion("m")), Said(400, "no")]
        cfg = cfg.replace(server=VlmServer(url=server.url))
        with pytest.raises(InputError, match="status 400"):
            ask(world(), cfg, tmp_path, monkeypatch)
        assert len(list(Path(cfg.answers).rglob("*.json"))) == 2
        ask(world(), cfg, tmp_path, monkeypatch)
    sent = [json.dumps(one) for one in server.asked]
    assert len(sent) == len(set(sent)) + 1, "only the refused request was sent twice"


# Several requests at once.


def said(text: str, hangs_s: float = 0.0) -> Said:
    return Said(text=json.dumps({"model": "m", "choices": [{"message": {"content": text}}]}), hangs_s=hangs_s)


def test_so_many_are_under_way_and_answers_come_in_the_order_of_requests() -> None:
    for parallel in (1, 3):
        with chat_server(*[said("stir", 0.2 if at % 3 == 0 else 0.05) for at in range(6)]) as server:
            replies = asked(server.url, 6, parallel=parallel)
        assert [reply.request for reply in replies] == [request.digest() for request in requests(6)]
        assert (server.most_under_way, len(server.asked)) == (parallel, 6)


def test_what_is_under_way_when_one_is_refused_is_yielded_and_what_waits_is_not_sent() -> None:
    script = [Said(400, "no", hangs_s=0.05), said("stir", 0.2), said("cut", 0.2)]
    got: list[VlmReply] = []
    with chat_server(*script) as server:
        replies = HttpClient(VlmServer(url=server.url, parallel=3)).ask(requests(20), {})
        with pytest.raises(InputError, match="status 400"):
            got.extend(replies)
    assert sorted(reply.text for reply in got) == ["cut", "stir"]
    assert len(server.asked) == 3
