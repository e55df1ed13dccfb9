"""Clients by the name of the setting (the only list): server, files, and the stub.

`trajpilot vlm requests` writes files of requests, another program answers them on any machine (`vllm run-batch -i IN -o
OUT --model MODEL`), and `trajpilot vlm collect` reads the answers by digest.

A server is OpenAI-compatible (chat completions as documented by vLLM), on this machine, and is sent several requests at
once through the `openai` package. Source: the licences of the corpora; docs/decisions/vlm.md.
"""

import ipaddress
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from itertools import pairwise
from types import ModuleType
from typing import Any

from schemas.vlm import CompletedVlm, VlmReply, VlmRequest, VlmServer
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import parse_json
from trajpilot_core.vlm.material import PromptMaterial
from trajpilot_core.vlm.payload import body, reply_of

NAME = "STUB"
SHOWN = 300
"""Characters of a server's message that an error quotes."""
Client = Callable[[Sequence[VlmRequest], Mapping[str, Image]], Iterator[VlmReply]]
"""Requests, and digest -> (S, S, 3) RGB of their frames -> an answer to each, once and in any order.

The caller stores each answer before it takes the next one. Raises InputError if a request cannot be answered.
"""


def client_of(cfg: CompletedVlm, material: PromptMaterial) -> Client:
    """Return the client of these settings. Raises InputError if the server is on another machine."""
    if cfg.backend == "http":
        return HttpClient(cfg.server).ask
    return stub_of(material) if cfg.backend == "stub" else answer_from_files


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


def stub_of(material: PromptMaterial) -> Client:
    """Return the stub: it continues each label with the most frequent next label in training and sees no frames."""
    pairs: dict[str, Counter[str]] = defaultdict(Counter)
    first: Counter[str] = Counter()
    for labels in (labels for sequences in material.sequences_of.values() for labels in sequences):
        first[labels[0]] += 1
        for label, after in pairwise(labels):
            pairs[label][after] += 1
    following = {label: _most_frequent(after) for label, after in pairs.items()}
    beginning = _most_frequent(first) if first else material.bank[0]

    def answer(requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        for request in requests:
            labels = [beginning]
            while len(labels) < request.items:
                labels.append(following.get(labels[-1], beginning))
            text = labels[0] if request.question == "segment" else json.dumps({"sequence": labels})
            yield VlmReply(request=request.digest(), text=text, answered_by=NAME)

    return answer


def _most_frequent(counted: Counter[str]) -> str:
    """Return the most frequent label; ties go to the first in alphabetical order."""
    return min(counted, key=lambda label: (-counted[label], label))


def check_server(server: VlmServer) -> None:
    """Refuse a server on another machine: requests contain frames of the corpus. No name is resolved.

    Raises:
        InputError: the setting is not the URL of a server on loopback.
    """
    import httpx

    try:
        url = httpx.URL(server.url)
        is_here = url.host == "localhost" or ipaddress.ip_address(url.host).is_loopback
    except (httpx.InvalidURL, ValueError):  # no URL; a name
        is_here = False
    if not is_here or url.scheme not in ("http", "https") or url.query or url.fragment:
        raise InputError(
            f"vlm.server.url is {server.url}; requests contain frames of the corpus, so set the address of a server on "
            "this machine, without query, e.g. http://127.0.0.1:8000/v1; reach another one by files (docs/vlm.md) or a "
            "tunnel of yours, as its licence allows. Nothing was sent"
        )


class HttpClient:
    """Sends requests to one server; proxies of the environment are ignored and redirections are not followed."""

    def __init__(self, server: VlmServer) -> None:
        """Refuse a server on another machine.

        Raises:
            InputError: a setting is wrong or the package is missing; names it.
        """
        check_server(server)
        try:
            import httpx
            import openai
        except ImportError as error:
            raise InputError(
                "vlm.backend=http needs the package openai, which is not installed; run `pip install '.[vlm]'`, or use "
                "vlm.backend=batch_file"
            ) from error
        self._openai: ModuleType = openai
        self._server = server
        self._client = self._openai.OpenAI(
            base_url=server.url,
            api_key="none",
            organization=None,
            project=None,
            timeout=server.timeout_s,
            max_retries=server.tries - 1,
            http_client=httpx.Client(trust_env=False, follow_redirects=False),
        )

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answers in the order of the requests, with up to `parallel` requests in flight.

        If one fails, no more are sent, and those in flight are still awaited and yielded.

        Raises:
            InputError: the server refuses, or keeps failing.
        """
        threads, fault = ThreadPoolExecutor(self._server.parallel), None

        def stop_after_fault(future: Future[VlmReply]) -> None:
            """Cancel what waits; runs in the thread of the request that failed."""
            if not future.cancelled() and future.exception() is not None:
                threads.shutdown(wait=False, cancel_futures=True)

        futures = [threads.submit(self._answer, request, frames) for request in requests]
        try:
            for future in futures:
                future.add_done_callback(stop_after_fault)
            for future in futures:
                try:
                    yield future.result()
                except CancelledError:
                    continue
                except InputError as error:
                    fault = fault or error
        finally:
            threads.shutdown(cancel_futures=True)
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
            return reply_of(request.digest(), parse_json(raw.text, server.url), server.url)
        except self._openai.APIStatusError as error:
            problem = f"status {error.status_code}: {plain(error.response.text)}"
        except self._openai.OpenAIError as error:
            problem = plain(f"{type(error).__name__}: {error.__cause__ or error}")
        except (InputError, ValueError, AttributeError):
            problem = f"not a chat completion: {plain(raw.text)}"
        raise InputError(
            f"a request to {server.url} failed (up to {server.tries} tries): {problem}. Check vlm.server, vlm.model "
            "and vlm.filler, and run again; the answers so far are stored"
        )


def plain(text: str) -> str:
    """Return the beginning of a server's message on one line."""
    return " ".join(text.split())[:SHOWN] or "nothing"
