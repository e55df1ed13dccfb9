"""Requests to an OpenAI-compatible server, one after the other or several at once.

Format: chat completions as vLLM and others document them. `Retry-After`: RFC 9110, section 10.2.3. What is repeated,
and what is counted: docs/decisions/vlm.md.
"""

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple

import httpx

from schemas.vlm import VlmReply, VlmRequest, VlmServer
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError
from trajpilot_core.incoming import parse_json
from trajpilot_core.vlm.answers import AnswerFolder
from trajpilot_core.vlm.clients.api_key import api_key
from trajpilot_core.vlm.clients.server import check_server, endpoint
from trajpilot_core.vlm.payload import body, reply_of

REPEATED = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed; any other but 200 ends the run."""
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 300.0
"""Waiting times double from the first on; a server that asks for a longer one than the longest ends the run."""
CONNECT_S = 10.0
LONGEST_ANSWER = 10**7
"""Bytes; an answer of 256 tokens has a few thousand."""
SHOWN = 300
"""Letters of a server's message that an error repeats."""


class TimeSource(NamedTuple):
    """How time passes; tests have one of their own."""

    now_s: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep


OF_MACHINE = TimeSource()


class FailedTry(NamedTuple):
    """Why a try failed that may be repeated."""

    text: str
    wait_s: float | None = None
    """What the server asked for."""


class HttpClient:
    """Asks one server; no proxy of the environment is used, and no redirection is followed."""

    is_stub = False

    def __init__(self, server: VlmServer, corpus: str, answers: AnswerFolder, clock: TimeSource = OF_MACHINE) -> None:
        """Refuse a server that may not be asked.

        Args:
            server: the settings.
            corpus: whose frames the requests show.
            answers: where the answers are kept, whose tokens count towards the limit.
            clock: how time passes.

        Raises:
            InputError: names the settings.
        """
        check_server(server, corpus)
        self._server, self._answers, self._clock = server, answers, clock
        self._url, self._key = endpoint(server), api_key()
        self._free_at_s, self._taking_turns = clock.now_s(), threading.Lock()

    def ask(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Yield the answers in the order of the requests, up to `parallel` of which are under way.

        What is under way when something fails is awaited and yielded, too: it was answered and may have cost money.

        Raises:
            InputError: the server refuses, keeps failing, or the limit of tokens is reached.
        """
        limit = self._server.token_limit
        spent = 0 if limit is None else self._answers.tokens()
        left, fault = deque(requests), None
        with self._connection() as connection, ThreadPoolExecutor(self._server.parallel) as threads:
            under_way: deque[Future[VlmReply]] = deque()
            while under_way or (left and fault is None):
                while left and fault is None and len(under_way) < self._server.parallel:
                    fault = self._reached(spent) or _failed(under_way)
                    if fault is None:
                        under_way.append(threads.submit(self._answer, connection, left.popleft(), frames))
                if not under_way:
                    break
                try:
                    reply = under_way.popleft().result()
                except InputError as error:
                    fault = fault or error
                    continue
                yield reply
                if limit is not None and (reply.tokens_in is None or reply.tokens_out is None):
                    fault = fault or self._uncounted()
                spent += (reply.tokens_in or 0) + (reply.tokens_out or 0)
        if fault is not None:
            raise fault

    def _reached(self, spent: int) -> InputError | None:
        """Return the refusal to send more, if the answers have used as many tokens as they may."""
        limit = self._server.token_limit
        if limit is None or spent < limit:
            return None
        return InputError(
            f"the answers in {self._answers.folder} have used {spent:,} tokens, and vlm.server.token_limit "
            f"is {limit:,}; they are kept: raise the limit, run again, and only what is missing is asked"
        )

    def _uncounted(self) -> InputError:
        return InputError(
            f"{self._url.host} does not say how many tokens an answer used, so that vlm.server.token_limit cannot be "
            "kept; the answers so far are kept: ask another server"
        )

    def _connection(self) -> httpx.Client:
        headers = {"Accept-Encoding": "identity", "Content-Type": "application/json"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.get_secret_value()}"
        longest = httpx.Timeout(self._server.timeout_s, connect=min(CONNECT_S, self._server.timeout_s))
        return httpx.Client(headers=headers, timeout=longest, trust_env=False, follow_redirects=False)

    def _answer(self, connection: httpx.Client, request: VlmRequest, frames: Mapping[str, Image]) -> VlmReply:
        """Send one request until it is answered.

        Raises:
            InputError: the server refuses it, or every try failed.
        """
        content = json.dumps(body(request, frames)).encode()
        wait_s = FIRST_WAIT_S
        for number in range(1, self._server.tries + 1):
            self._keep_rate()
            found = self._try(connection, content)
            if not isinstance(found, FailedTry):
                return self._read(request.digest(), found)
            asked_s = found.wait_s or 0.0
            if number == self._server.tries or asked_s > LONGEST_WAIT_S:
                wanted = f", asks to wait {asked_s:.0f} s" if asked_s else ""
                raise InputError(
                    f"{self._where()} did not answer in {number} of {self._server.tries} tries{wanted}; the last: "
                    f"{found.text}. The answers so far are kept: see to the server and run again"
                )
            self._clock.sleep(max(wait_s, asked_s))
            wait_s = min(2 * wait_s, LONGEST_WAIT_S)
        raise AssertionError("tries is at least 1")

    def _try(self, connection: httpx.Client, content: bytes) -> Any:
        """Send once; return the answer's JSON, or the fault.

        Raises:
            InputError: the server refuses the request.
        """
        try:
            status, headers, raw = self._post(connection, content)
        except httpx.HTTPError as error:
            return FailedTry(self._plain(f"{type(error).__name__} {error}"))
        text = raw.decode("utf-8", errors="replace")
        if status in REPEATED:
            return FailedTry(f"status {status}: {self._plain(text)}", retry_after_s(headers.get("retry-after")))
        if 300 <= status < 400:
            raise InputError(
                f"{self._where()} redirects (status {status}), and frames go to no address but the one in "
                "vlm.server.url; set it to the server's own"
            )
        if status != 200:
            raise InputError(
                f"{self._where()} refuses a request with status {status}: {self._plain(text)}. The answers so far are "
                "kept: see to vlm.model, vlm.filler and the server's settings, and run again"
            )
        try:
            return parse_json(text, self._where())
        except InputError:
            return FailedTry(f"no whole JSON: {self._plain(text)}")

    def _post(self, connection: httpx.Client, content: bytes) -> tuple[int, httpx.Headers, bytes]:
        """Send once and read the whole answer within `timeout_s`.

        Raises:
            httpx.HTTPError: the server was not reached, or did not answer in time.
            InputError: the answer is longer than any can be.
        """
        ends_s, raw = time.monotonic() + self._server.timeout_s, b""
        with connection.stream("POST", self._url, content=content) as response:
            for piece in response.iter_raw():
                raw += piece
                if len(raw) > LONGEST_ANSWER:
                    raise InputError(f"{self._where()} answers with over {LONGEST_ANSWER:,} bytes; is it a chat model?")
                if time.monotonic() > ends_s:
                    raise httpx.ReadTimeout(f"no whole answer in {self._server.timeout_s:g} s")
        return response.status_code, response.headers, raw

    def _read(self, digest: str, found: Any) -> VlmReply:
        """Return the answer; a count of tokens below 0 is none.

        Raises:
            InputError: it is no chat completion.
        """
        try:
            reply = reply_of(digest, found, self._where())
        except (InputError, ValueError, AttributeError):
            said = self._plain(json.dumps(found))
            raise InputError(f"{self._where()} answers with no chat completion, but with {said}") from None
        if min(reply.tokens_in or 0, reply.tokens_out or 0) < 0:
            return reply.replace(tokens_in=None, tokens_out=None)
        return reply

    def _keep_rate(self) -> None:
        """Wait until the next request may be sent."""
        if self._server.requests_per_minute is None:
            return
        with self._taking_turns:
            now_s = self._clock.now_s()
            begins_s = max(now_s, self._free_at_s)
            self._free_at_s = begins_s + 60 / self._server.requests_per_minute
        if begins_s > now_s:
            self._clock.sleep(begins_s - now_s)

    def _where(self) -> str:
        return str(self._url)

    def _plain(self, text: str) -> str:
        """Return a message in one line and without the key, should the server repeat it."""
        if self._key is not None:
            text = text.replace(self._key.get_secret_value(), "(key)")
        return " ".join(text.split())[:SHOWN] or "nothing"


def _failed(under_way: Iterable[Future[VlmReply]]) -> InputError | None:
    """Return the error of a request that has ended with one, though those before it may not have been answered yet."""
    errors = [future.exception() for future in under_way if future.done()]
    return next((error for error in errors if isinstance(error, InputError)), None)


def retry_after_s(stated: str | None) -> float | None:
    """Return the seconds that a server asks to wait, which states a number or a date; None: it states neither."""
    if stated is None:
        return None
    if stated.strip().isdecimal():
        return float(stated)
    try:
        at = parsedate_to_datetime(stated)
    except ValueError:
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - datetime.now(UTC)).total_seconds())
