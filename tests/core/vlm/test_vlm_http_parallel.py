"""Several requests at once: the order of answers, the rate, the limit, and what is kept when one fails."""

import json
from pathlib import Path

import pytest
from chat_server import Said, chat_server
from test_vlm_http import KEY, asked, client, requests

from schemas.vlm import VlmReply
from trajpilot_core.errors import InputError
from trajpilot_core.vlm.clients.registry import hold_api_key

USAGE = {"prompt_tokens": 90, "completion_tokens": 10}


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


def test_the_key_stays_out_of_an_error_of_a_thread(tmp_path: Path) -> None:
    hold_api_key(KEY)
    try:
        with (
            chat_server(*[Said(401, f"wrong key {KEY}")] * 2) as server,
            pytest.raises(InputError, match=r"\(key\)") as raised,
        ):
            asked(tmp_path, server.url, 2, parallel=2)
        assert KEY not in str(raised.value)
    finally:
        hold_api_key(None)
