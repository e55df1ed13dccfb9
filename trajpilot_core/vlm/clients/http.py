"""Requests to an OpenAI-compatible server through the `openai` package, several at once.

Format: chat completions as documented by vLLM. Retries and token counts: docs/decisions/vlm.md.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import httpx

from schemas.vlm import VlmReply, VlmRequest, VlmServer
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import parse_json
from trajpilot_core.vlm.clients.registry import api_key, check_server
from trajpilot_core.vlm.payload import AnswerFolder, body, reply_of

SHOWN = 300
"""Characters of a server's message that an error quotes."""


class HttpClient:
    """Sends requests to one server; proxies of the environment are ignored and redirections are not followed."""

    def __init__(self, server: VlmServer, corpus: str, answers: AnswerFolder) -> None:
        """Refuse a server that requests must not be sent to.

        Args:
            answers: the stored answers; their tokens count towards the limit.

        Raises:
            InputError: settings or the package are missing; names them.
        """
        check_server(server, corpus)
        try:
            import openai
        except ImportError as error:
            raise InputError(
                "vlm.backend=http needs the package openai, which is not installed; run `pip install '.[vlm]'`, or use "
                "vlm.backend=batch_file"
            ) from error
        self._openai = openai
        self._server, self._answers, self._key = server, answers, api_key()
        self._http = httpx.Client(trust_env=False, follow_redirects=False)
        self._client = self._openai.OpenAI(
            base_url=server.url,
            api_key=self._key.get_secret_value() if self._key else "none",
            organization=None,
            project=None,
            timeout=server.timeout_s,
            max_retries=server.tries - 1,
            http_client=self._http,
        )

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answers in the order of the requests, with up to `parallel` requests in flight.

        If one fails, those in flight are still awaited and yielded: they may have cost money.

        Raises:
            InputError: the server refuses, keeps failing, or the limit of tokens is reached.
        """
        limit = self._server.token_limit
        spent = 0 if limit is None else self._answers.tokens()
        waiting, in_flight, fault = deque(requests), deque[Future[VlmReply]](), None
        with ThreadPoolExecutor(self._server.parallel) as threads:
            while in_flight or (waiting and fault is None):
                while waiting and fault is None and len(in_flight) < self._server.parallel:
                    if limit is not None and spent >= limit:
                        fault = InputError(
                            f"the answers in {self._answers.folder} have used {spent:,} tokens, and "
                            f"vlm.server.token_limit is {limit:,}; raise the limit and run again to request the "
                            "missing answers only"
                        )
                    elif any(future.done() and future.exception() for future in in_flight):
                        break
                    else:
                        in_flight.append(threads.submit(self._answer, waiting.popleft(), frames))
                if not in_flight:
                    break
                try:
                    reply = in_flight.popleft().result()
                except InputError as error:
                    fault = fault or error
                    continue
                yield reply
                if limit is not None and (reply.tokens_in is None or reply.tokens_out is None):
                    fault = fault or InputError(
                        f"{self._server.url} reports no token counts, so vlm.server.token_limit cannot be applied; use "
                        "a server that reports `usage` (the answers so far are stored)"
                    )
                spent += (reply.tokens_in or 0) + (reply.tokens_out or 0)
        if fault is not None:
            raise fault

    def _answer(self, request: VlmRequest, frames: Mapping[str, Image]) -> VlmReply:
        """Send one request; the client retries temporary errors.

        Raises:
            InputError: the server refuses it, every try failed, or the answer is not a chat completion.
        """
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
        """Return a message on one line, without the key in case the server quotes it."""
        if self._key is not None:
            text = text.replace(self._key.get_secret_value(), "(key)")
        return " ".join(text.split())[:SHOWN] or "nothing"
