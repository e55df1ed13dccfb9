"""Clients by the name of the setting (the only list): that of files, and the stub; where frames may be sent to.

`trajpilot vlm requests` writes files of requests, another program answers them on any machine (`vllm run-batch -i IN -o
OUT --model MODEL`), and `trajpilot vlm collect` reads the answers by digest. deployments/settings.py, which may read
the environment, passes the API key of a server on; it is in no setting, key, log or error, because settings are stored
and displayed. Source: the licences of the corpora; docs/decisions/vlm.md.
"""

import ipaddress
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

from pydantic import SecretStr

from schemas.vlm import CompletedVlm, VlmReply, VlmRequest, VlmServer
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError
from trajpilot_core.vlm.material import PromptMaterial
from trajpilot_core.vlm.payload import AnswerFolder

NAME = "STUB"
VARIABLE = "TRAJPILOT_VLM_API_KEY"


Client = Callable[[Sequence[VlmRequest], Mapping[str, Image]], Iterator[VlmReply]]
"""Requests, and digest -> (S, S, 3) RGB of their frames -> an answer to each, once and in any order.

The caller stores each answer before it takes the next one. Raises InputError if a request cannot be answered.
"""


def client_of(cfg: CompletedVlm, material: PromptMaterial) -> Client:
    """Return the client of these settings. Raises InputError if they do not allow sending frames to the server."""
    if cfg.backend == "http":
        from trajpilot_core.vlm.clients.http import HttpClient

        return HttpClient(cfg.server, cfg.corpus, AnswerFolder(cfg.answers)).ask
    return StubClient(material).ask if cfg.backend == "stub" else answer_from_files


def answer_from_files(requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
    """Send nothing: answers must be collected first.

    Raises:
        InputError: a request has no answer.
    """
    if requests:
        raise InputError(
            f"{len(requests)} requests of a take have no answer yet (the first is {requests[0].digest()}); write "
            "them with `trajpilot vlm requests`, answer them, and read the answers with `trajpilot vlm collect`"
        )
    return iter(())


class StubClient:
    """Continues each label with the most frequent next label in training; it sees no frames."""

    def __init__(self, material: PromptMaterial) -> None:
        pairs: dict[str, Counter[str]] = defaultdict(Counter)
        first: Counter[str] = Counter()
        for sequences in material.sequences_of.values():
            for _, labels in sequences:
                first[labels[0]] += 1
                for label, after in pairwise(labels):
                    pairs[label][after] += 1
        self._next = {label: _most_frequent(after) for label, after in pairs.items()}
        self._first = _most_frequent(first) if first else material.bank[0]

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answer to every request."""
        for request in requests:
            labels = [self._first]
            while len(labels) < request.items:
                labels.append(self._next.get(labels[-1], self._first))
            text = labels[0] if request.question == "segment" else json.dumps({"sequence": labels})
            yield VlmReply(request=request.digest(), text=text, answered_by=NAME)


def _most_frequent(counted: Counter[str]) -> str:
    """Return the most frequent label; ties go to the first in alphabetical order."""
    return min(counted, key=lambda label: (-counted[label], label))


_held: list[SecretStr] = []


def hold_api_key(key: str | None) -> None:
    """Store the key for this process; None or empty: there is no key."""
    _held[:] = [SecretStr(key)] if key else []


def api_key() -> SecretStr | None:
    """Return the key; None if there is none.

    Raises:
        InputError: it contains characters that HTTP headers do not allow; the message does not quote it.
    """
    if not _held:
        return None
    if not all("!" <= letter <= "~" for letter in _held[0].get_secret_value()):
        raise InputError(
            f"the key in {VARIABLE} (not quoted here) contains a space, a line break or a character outside of ASCII, "
            "which HTTP headers do not allow; set it without them"
        )
    return _held[0]


def check_server(server: VlmServer, corpus: str) -> None:
    """Refuse a server on another machine, unless the settings name the corpus and a token limit; no name is resolved.

    Raises:
        InputError: the setting is not the URL of a server, or a setting is missing; names it.
    """
    import httpx

    try:
        url = httpx.URL(f"{server.url.rstrip('/')}/chat/completions")
    except httpx.InvalidURL as error:
        raise InputError(f"vlm.server.url is not the URL of a server ({error}): {server.url}") from None
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise InputError(
            f"vlm.server.url is {server.url}; set http:// or https://, a host and a path without query, "
            "e.g. http://127.0.0.1:8000/v1"
        )
    try:
        if url.host == "localhost" or ipaddress.ip_address(url.host).is_loopback:
            return
    except ValueError:
        pass  # a name
    if not corpus or server.may_send != corpus:
        named = f"names {server.may_send}" if server.may_send else "names no corpus"
        raise InputError(
            f"vlm.server.url is on another machine ({url.host}), requests contain frames of {corpus or 'no corpus'}, "
            f"and vlm.server.may_send {named}; if the licence of {corpus or 'the corpus'} allows it, set "
            f"vlm.server.may_send={corpus or 'CORPUS'}; else use a server on 127.0.0.1. Nothing was sent"
        )
    if server.token_limit is None:
        raise InputError(
            f"vlm.server.url is on another machine ({url.host}), which may cost money, and vlm.server.token_limit is "
            "not set; set it to the tokens, prompts and answers together, at which to stop. Nothing was sent"
        )
    if url.scheme != "https" and api_key() is not None:
        raise InputError(
            f"{VARIABLE} is set, but http to {url.host} is not encrypted; use a URL with https. Nothing was sent"
        )
