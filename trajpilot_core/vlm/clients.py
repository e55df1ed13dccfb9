"""Clients by the name of the setting (the only list), server and files, and where frames may be sent to.

`trajpilot vlm requests` writes files of requests, another program answers them on any machine (`vllm run-batch -i IN -o
OUT --model MODEL`), and `trajpilot vlm collect` reads the answers by digest. deployments/settings.py, which may read
the environment, passes the API key of a server on; it is in no setting, key, log or error, because settings are stored
and displayed. Source: the licences of the corpora; docs/decisions/vlm.md.

A server is OpenAI-compatible (chat completions as documented by vLLM) and is sent several requests at once through the
`openai` package. Retries and token counts: docs/decisions/vlm.md.
"""

import ipaddress
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType
from typing import Any

from pydantic import SecretStr

from schemas.vlm import CompletedVlm, VlmReply, VlmRequest, VlmServer
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import parse_json
from trajpilot_core.vlm.payload import AnswerFolder, body, reply_of

VARIABLE = "TRAJPILOT_VLM_API_KEY"
Client = Callable[[Sequence[VlmRequest], Mapping[str, Image]], Iterator[VlmReply]]
"""Requests, and digest -> (S, S, 3) RGB of their frames -> an answer to each, once and in any order.

The caller stores each answer before it takes the next one. Raises InputError if a request cannot be answered.
"""


def client_of(cfg: CompletedVlm) -> Client:
    """Return the client of these settings. Raises InputError if they do not allow sending frames to the server."""
    if cfg.backend == "http":
        return HttpClient(cfg.server, cfg.corpus, AnswerFolder(cfg.answers)).ask
    return answer_from_files


def answer_from_files(requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
    """Send nothing: answers must be collected first. Raises InputError: a request has no answer."""
    if requests:
        raise InputError(
            f"{len(requests)} requests of a take have no answer yet (the first is {requests[0].digest()}); write "
            "them with `trajpilot vlm requests`, answer them, and read the answers with `trajpilot vlm collect`"
        )
    return iter(())


_held: list[SecretStr] = []


def hold_api_key(key: str | None) -> None:
    """Store the key for this process; None or empty: there is no key."""
    _held[:] = [SecretStr(key)] if key else []


def api_key() -> SecretStr | None:
    """Return the key; None if there is none.

    Raises InputError: it contains characters that HTTP headers do not allow; the message does not quote it.
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

    Raises InputError: the setting is not the URL of a server, or a setting is missing; names it.
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


class HttpClient:
    """Sends requests to one server; proxies of the environment are ignored and redirections are not followed."""

    def __init__(self, server: VlmServer, corpus: str, answers: AnswerFolder) -> None:
        """Refuse a server that requests must not be sent to; tokens of the stored `answers` count towards its limit.

        Raises InputError: settings or the package are missing; names them.
        """
        check_server(server, corpus)
        try:
            import httpx
            import openai
        except ImportError as error:
            raise InputError(
                "vlm.backend=http needs the package openai, which is not installed; run `pip install '.[vlm]'`, or use "
                "vlm.backend=batch_file"
            ) from error
        self._openai: ModuleType = openai
        self._server, self._answers, self._key = server, answers, api_key()
        self._client = self._openai.OpenAI(
            base_url=server.url,
            api_key=self._key.get_secret_value() if self._key else "none",
            organization=None,
            project=None,
            timeout=server.timeout_s,
            max_retries=server.tries - 1,
            http_client=httpx.Client(trust_env=False, follow_redirects=False),
        )

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answers in the order of the requests, `parallel` of which are sent at once.

        If one fails, those sent with it are still awaited and yielded: they may have cost money.

        Raises InputError: the server refuses, keeps failing, or the limit of tokens is reached.
        """
        limit, parallel, fault = self._server.token_limit, self._server.parallel, None
        spent = 0 if limit is None else self._answers.tokens()
        with ThreadPoolExecutor(parallel) as threads:
            for at in range(0, len(requests), parallel):
                if limit is not None and spent >= limit:
                    raise InputError(
                        f"the answers in {self._answers.folder} have used {spent:,} tokens, and "
                        f"vlm.server.token_limit is {limit:,}; raise the limit and run again to request the "
                        "missing answers only"
                    )
                for sent in [threads.submit(self._answer, one, frames) for one in requests[at : at + parallel]]:
                    try:
                        reply = sent.result()
                    except InputError as error:
                        fault = fault or error
                        continue
                    yield reply
                    spent += (reply.tokens_in or 0) + (reply.tokens_out or 0)
                    if limit is not None and (reply.tokens_in is None or reply.tokens_out is None):
                        fault = fault or InputError(
                            f"{self._server.url} reports no token counts, so vlm.server.token_limit cannot be applied; "
                            "use a server that reports `usage` (the answers so far are stored)"
                        )
                if fault is not None:
                    raise fault

    def _answer(self, request: VlmRequest, frames: Mapping[str, Image]) -> VlmReply:
        """Send one request; the client retries temporary errors. Raises InputError: refused, or every try failed."""
        server, fields = self._server, dict[str, Any](body(request, frames))
        extra = {"chat_template_kwargs": fields.pop("chat_template_kwargs")}  # a field of vLLM
        try:
            raw = self._client.chat.completions.with_raw_response.create(**fields, extra_body=extra)
            reply = reply_of(request.digest(), parse_json(raw.text, server.url), server.url)
        except self._openai.APIStatusError as error:
            problem = f"status {error.status_code}: {self._plain(error.response.text)}"
        except self._openai.OpenAIError as error:
            problem = self._plain(f"{type(error).__name__}: {error.__cause__ or error}")
        except (InputError, ValueError, AttributeError):
            problem = f"not a chat completion: {self._plain(raw.text)}"
        else:
            counted = min(reply.tokens_in or 0, reply.tokens_out or 0) >= 0
            return reply if counted else reply.replace(tokens_in=None, tokens_out=None)
        raise InputError(
            f"a request to {server.url} failed (up to {server.tries} tries): {problem}. Check vlm.server, vlm.model "
            "and vlm.filler, and run again; the answers so far are stored"
        )

    def _plain(self, text: str) -> str:
        """Return the start of a message on one line, without the key in case the server quotes it."""
        if self._key is not None:
            text = text.replace(self._key.get_secret_value(), "(key)")
        return " ".join(text.split())[:300] or "nothing"
