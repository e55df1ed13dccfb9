"""Asking a server: what is sent where and in which order, what is repeated, when it stops, and what is kept."""

import importlib
import json
import logging
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from vlm_fixture import ask, settings, world

from deployments.recipes import recipe
from deployments.settings import hand_over_api_key
from schemas.config import PipelineConfig
from schemas.vlm import VlmMessage, VlmPart, VlmReply, VlmRequest, VlmServer
from trajpilot_core.errors import InputError
from trajpilot_core.stages import stages_of, vlm
from trajpilot_core.vlm.clients import VARIABLE, HttpClient, api_key, check_server, hold_api_key
from trajpilot_core.vlm.payload import AnswerFolder


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

    def __init__(self, script: list[Said], text: str, usage: dict[str, Any] | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.script, self.text, self.usage = list(script), text, usage
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.logins: list[str | None] = []
        self.under_way, self.most_under_way, self.counting = 0, 0, threading.Lock()

    @property
    def url(self) -> str:
        """Address without the path of completions."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def completion(self, model: str) -> str:
        """One answer as servers write it."""
        own = {"model": model, "choices": [{"message": {"content": self.text}}]}
        return json.dumps(own | ({} if self.usage is None else {"usage": self.usage}))


class Handler(BaseHTTPRequestHandler):
    server: ChatServer

    def do_POST(self) -> None:
        server = self.server
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.asked.append(asked)
        server.paths.append(self.path)
        server.logins.append(self.headers["Authorization"])
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
def chat_server(
    *script: Said, text: str = '{"sequence": ["x"]}', usage: dict[str, Any] | None = None
) -> Iterator[ChatServer]:
    server = ChatServer(list(script), text, usage)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


CORPUS = "egoexo4d_atomic"
AWAY = "https://models.example/v1"
KEY = "sk-planted-0123456789"
USAGE = {"prompt_tokens": 90, "completion_tokens": 10}


@pytest.fixture(autouse=True)
def no_key() -> Iterator[None]:
    hold_api_key(None)
    yield
    hold_api_key(None)


def requests(number: int = 1) -> list[VlmRequest]:
    said = [VlmMessage(role="user", parts=(VlmPart(section="instruction", text=f"{at}"),)) for at in range(number)]
    return [VlmRequest(question="fill", model="m", messages=(one,), items=1, max_tokens=8) for one in said]


def client(folder: Path, url: str, **changes: object) -> HttpClient:
    own = VlmServer.model_validate({"url": url, **changes})
    return HttpClient(own, CORPUS, AnswerFolder(str(folder / "answers")))


def asked(folder: Path, url: str, number: int = 1, **changes: object) -> list[VlmReply]:
    return list(client(folder, url, **changes).ask(requests(number), {}))


def test_an_answer_is_read_with_its_tokens_and_names_its_request(tmp_path: Path) -> None:
    with chat_server(text="stir", usage={"prompt_tokens": 7, "completion_tokens": 2}) as server:
        (reply,) = asked(tmp_path, server.url)
    (request,) = requests()
    assert reply == VlmReply(request=request.digest(), text="stir", answered_by="m", tokens_in=7, tokens_out=2)
    assert server.paths == ["/v1/chat/completions"]
    assert server.asked[0]["temperature"] == 0
    assert server.logins == ["Bearer none"], "servers that want no key ignore it"


def test_a_fault_that_time_can_heal_is_sent_again(tmp_path: Path) -> None:
    cut = Said(200, "{}", {"Content-Length": "999"})
    for fault in (Said(429, "busy", {"Retry-After": "0.1"}), Said(503, "starts"), cut):
        with chat_server(fault, text="stir") as server:
            (reply,) = asked(tmp_path / str(fault.status), server.url, timeout_s=0.5)
        assert (reply.text, len(server.asked)) == ("stir", 2), fault


def test_the_last_try_reports_what_came_back(tmp_path: Path) -> None:
    with (
        chat_server(*[Said(502, "gateway down")] * 2) as server,
        pytest.raises(InputError, match=r"up to 2 tries\): status 502: gateway down\..* the answers so far are stored"),
    ):
        asked(tmp_path, server.url, tries=2)
    assert len(server.asked) == 2


def test_a_server_that_does_not_answer_in_time_is_named(tmp_path: Path) -> None:
    timed_out = r"http://127\.\S+ failed.*(ReadTimeout|timed out)"
    with chat_server(Said(hangs_s=1.0)) as server, pytest.raises(InputError, match=timed_out):
        asked(tmp_path, server.url, timeout_s=0.2, tries=1)
    with pytest.raises(InputError, match=rf"{server.url} failed.*Connection refused"):
        asked(tmp_path, server.url, tries=1)


def test_a_refusal_is_not_repeated_and_says_what_came_back(tmp_path: Path) -> None:
    refusals = [Said(status, '{"error": "context\n too long"}') for status in (400, 401, 404, 418)]
    shapeless = [Said(200, text) for text in ("[]", "null", '{"error": "no model"}', '{"choices": [], "model": "m"}')]
    for said in (*refusals, *shapeless):
        wanted = "not a chat completion: " if said.status == 200 else rf"status {said.status}: .*context too long"
        with chat_server(said) as server, pytest.raises(InputError, match=wanted) as raised:
            asked(tmp_path, server.url)
        assert len(server.asked) == 1, said
        assert said.status != 200 or said.text in str(raised.value)


def test_a_redirection_is_not_followed(tmp_path: Path) -> None:
    with chat_server() as other, chat_server(Said(307, "", {"Location": other.url})) as server:
        with pytest.raises(InputError, match="status 307"):
            asked(tmp_path, server.url)
        assert (len(server.asked), len(other.asked)) == (1, 0)


def test_proxies_of_the_environment_see_nothing(tmp_path: Path, monkeypatch) -> None:
    with chat_server() as proxy, chat_server(text="stir") as server:
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert asked(tmp_path, server.url)[0].text == "stir"
        assert proxy.asked == []


def test_another_machine_gets_no_frames_unless_the_settings_name_the_corpus(subtests: pytest.Subtests) -> None:
    """Loopback alone needs neither permission nor limit, and what is not a URL is refused."""
    lookalikes = [f"http://{host}.models.example/v1" for host in ("127.0.0.1", "localhost")]
    hosts = ("192.168.0.9:8000", "2130706433", "[2001:db8::1]", "0.0.0.0:8000")
    away = (AWAY, *lookalikes, *(f"http://{host}/v1" for host in hosts))
    wanted = rf"contain frames of {CORPUS}.* set vlm\.server\.may_send={CORPUS};.*Nothing was"
    for url, may_send in product(away, ("", "egoexo4d_keysteps", f"{CORPUS} ")):
        with subtests.test(f"{may_send}, {url}"):
            server = VlmServer(url=url, may_send=may_send, token_limit=10)
            with pytest.raises(InputError, match=wanted):
                check_server(server, CORPUS)
            check_server(server.replace(may_send=CORPUS), CORPUS)
            with pytest.raises(InputError, match=r"vlm\.server\.token_limit is not set"):
                check_server(server.replace(may_send=CORPUS, token_limit=None), CORPUS)
    for url in ("http://127.0.0.1:8000/v1", "http://localhost/v1", "http://[::1]:8000/v1/"):
        check_server(VlmServer(url=url), CORPUS)
    for url in ("127.0.0.1:8000", "ftp://127.0.0.1/v1", "http://", "http://h/v1?a=b", "http://[x/v1"):
        with subtests.test(url), pytest.raises(InputError, match=r"vlm\.server\.url is"):
            check_server(VlmServer(url=url), CORPUS)


def test_a_run_is_refused_before_anything_starts_and_again_before_anything_is_sent(tmp_path, monkeypatch) -> None:
    asking = recipe("vlm_zero_shot")
    away = asking.vlm.replace(backend="http", server=VlmServer(url=AWAY, may_send="another", token_limit=10))
    with pytest.raises(InputError, match="may_send names another"):
        stages_of(asking.replace(vlm=away))
    stages_of(asking.replace(vlm=away.replace(server=away.server.replace(may_send=asking.ingest.corpus))))
    cfg = settings(tmp_path, backend="http", server=away.server, corpus="other_corpus")
    with pytest.raises(InputError, match=r"frames of other_corpus, .*may_send names another"):
        ask(world(), cfg, tmp_path, monkeypatch)


def test_how_answers_are_reached_is_in_no_key_of_an_answer_or_a_row() -> None:
    base = PipelineConfig()
    other = base.replace(vlm=base.vlm.replace(server=VlmServer(url=AWAY, may_send=CORPUS, token_limit=1)))
    assert vlm.ROWS.completed(other).content() == vlm.ROWS.completed(base).content()
    shards = [vlm.STAGE.settings_of_shards(vlm.completed(one).content()) for one in (base, other)]
    assert shards[0] == shards[1]


def test_the_limit_stops_midway_and_what_was_answered_is_kept_and_counted_again(tmp_path, monkeypatch) -> None:
    with chat_server(usage=USAGE) as server:
        cfg = settings(tmp_path, backend="http", server={"url": server.url, "token_limit": 250})
        for n_sent in (3, 3):
            with pytest.raises(InputError, match=r"have used 300 tokens, and vlm\.server\.token_limit is 250"):
                ask(world(), cfg, tmp_path, monkeypatch)
            assert len(server.asked) == n_sent, "the second run sends nothing: what lies there has reached the limit"
        assert len(list(Path(cfg.answers).rglob("*.json"))) == 3
        more = cfg.replace(server=cfg.server.replace(token_limit=10**6))
        memory = ask(world(), more, tmp_path, monkeypatch)
        n_asked = len({row["request"] for row in memory.tables["vlm_answers"].to_pylist()})
        assert len(server.asked) == n_asked > 3, "none of the three was asked again"
        again = ask(world(), more, tmp_path, monkeypatch)
    assert len(server.asked) == n_asked
    assert again.tables["vlm_answers"].equals(memory.tables["vlm_answers"])


def test_a_server_that_counts_no_tokens_cannot_be_held_to_a_limit(tmp_path: Path) -> None:
    for at, usage in enumerate((None, {"prompt_tokens": 5}, {"prompt_tokens": 5, "completion_tokens": -9})):
        with chat_server(usage=usage) as server:
            replies = client(tmp_path / str(at), server.url, token_limit=100).ask(requests(2), {})
            assert next(replies).text
            with pytest.raises(InputError, match="reports no token counts"):
                next(replies)
        assert len(server.asked) == 1, usage


def test_an_answer_is_kept_before_the_next_is_asked(tmp_path, monkeypatch) -> None:
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


def test_the_key_is_sent_and_stands_in_no_error_setting_or_log(tmp_path: Path, caplog) -> None:
    hold_api_key(KEY)
    caplog.set_level(logging.DEBUG)
    found = []
    faults = [Said(401, f"wrong key {KEY}"), Said(200, json.dumps({"key": KEY})), *[Said(500, f"crashed {KEY}")] * 2]
    with chat_server(*faults, text="stir") as server:
        for _ in range(3):
            with pytest.raises(InputError, match=r"\(key\)") as raised:
                asked(tmp_path, server.url, tries=2)
            found.append(f"{raised.value!r} {raised.value.__cause__!r}")
        own = client(tmp_path, server.url)
        assert next(iter(own.ask(requests(), {}))).text == "stir"
    assert set(server.logins) == {f"Bearer {KEY}"}
    assert KEY not in "".join(found) + caplog.text + repr(vars(own)) + json.dumps(
        PipelineConfig().values(), default=str
    )


def test_a_key_goes_to_another_machine_over_https_alone_and_a_damaged_one_nowhere() -> None:
    away = VlmServer(url=AWAY, may_send=CORPUS, token_limit=1)
    hold_api_key(KEY)
    check_server(away, CORPUS)
    with pytest.raises(InputError, match=r"http to .* is not encrypted"):
        check_server(away.replace(url="http://models.example/v1"), CORPUS)
    hold_api_key(f"{KEY}\n")
    with pytest.raises(InputError, match="not quoted here") as raised:
        HttpClient(VlmServer(), CORPUS, AnswerFolder("nowhere"))
    assert KEY not in str(raised.value)


def test_the_key_comes_from_the_environment(monkeypatch) -> None:
    monkeypatch.setenv("TRAJPILOT_VLM_API_KEY", KEY)
    hand_over_api_key()
    held = api_key()
    assert held.get_secret_value() == KEY
    assert KEY not in repr(held)
    monkeypatch.delenv("TRAJPILOT_VLM_API_KEY")
    hand_over_api_key()
    assert api_key() is None


def test_the_process_of_a_group_that_is_shared_out_holds_the_key_of_its_worker(monkeypatch) -> None:
    monkeypatch.setenv(VARIABLE, KEY)
    sys.modules.pop("deployments.deployed", None)
    from flows.stages import vlm_group

    assert api_key() is None, "flows alone read no environment"
    deployed = importlib.import_module("deployments.deployed")
    held = api_key()
    assert held.get_secret_value() == KEY
    assert deployed.vlm_group is vlm_group
    with pytest.raises(AttributeError, match="no stage has groups"):
        deployed.cooking_group  # noqa: B018


# Several requests at once.


def said(text: str, hangs_s: float = 0.0) -> Said:
    return Said(text=json.dumps({"model": "m", "choices": [{"message": {"content": text}}]}), hangs_s=hangs_s)


def test_so_many_are_under_way_and_answers_come_in_the_order_of_requests(tmp_path: Path) -> None:
    for parallel in (1, 3):
        with chat_server(*[said("stir", 0.2 if at % 3 == 0 else 0.05) for at in range(6)]) as server:
            replies = asked(tmp_path / str(parallel), server.url, 6, parallel=parallel)
        assert [reply.request for reply in replies] == [request.digest() for request in requests(6)]
        assert (server.most_under_way, len(server.asked)) == (parallel, 6)


def test_the_limit_is_passed_by_no_more_than_what_is_under_way(tmp_path: Path) -> None:
    with chat_server(text="stir", usage=USAGE) as server:
        replies = client(tmp_path, server.url, parallel=3, token_limit=250).ask(requests(20), {})
        with pytest.raises(InputError, match=r"have used \d+ tokens, and vlm\.server\.token_limit is 250"):
            list(replies)
    assert len(server.asked) <= 3 + 2, "three answers reach the limit, and two more were under way"


def test_what_is_under_way_when_one_is_refused_is_yielded_and_nothing_more_is_sent(tmp_path: Path) -> None:
    script = [Said(400, "no", hangs_s=0.05), said("stir", 0.2), said("cut", 0.2)]
    got: list[VlmReply] = []
    with chat_server(*script) as server:
        replies = client(tmp_path, server.url, parallel=3).ask(requests(9), {})
        with pytest.raises(InputError, match="status 400"):
            got.extend(replies)
    assert sorted(reply.text for reply in got) == ["cut", "stir"]
    assert len(server.asked) == 3
