"""Requests and answers in the format of OpenAI-compatible servers, one at a time or in files for `vllm run-batch`.

Format: one JSON object per line with `custom_id` (the digest of the request), `method`, `url` and `body`; an answer has
the same `custom_id` and a `response` with `status_code` and `body`, or an `error`. Frames are PNG, which is lossless.
Answers are kept by digest, one file each: no request is sent twice.
"""

import base64
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import JsonValue, ValidationError

from schemas.vlm import VlmReply, VlmRequest
from trajpilot_core.arrays import Image
from trajpilot_core.errors import InputError, StoreError
from trajpilot_core.incoming import parse_json, shortened
from trajpilot_core.store.files import naming_failures

URL = "/v1/chat/completions"
DIGEST = re.compile(r"[0-9a-f]{64}")
"""A custom_id is used as a file name."""


def body(request: VlmRequest, frames: Mapping[str, Image]) -> dict[str, JsonValue]:
    """Return a request and its frames, digest -> (S, S, 3) RGB, as the body of a chat completion: greedy, without
    thinking."""
    import cv2

    messages: list[JsonValue] = []
    for message in request.messages:
        content: list[JsonValue] = []
        for part in message.parts:
            content += [{"type": "text", "text": part.text}] if part.text else []
            for digest in part.frames:
                ok, png = cv2.imencode(".png", cv2.cvtColor(frames[digest], cv2.COLOR_RGB2BGR))
                assert ok
                url = f"data:image/png;base64,{base64.b64encode(png.tobytes()).decode()}"
                content.append({"type": "image_url", "image_url": {"url": url}})
        messages.append({"role": message.role, "content": content})
    return {
        "model": request.adapter or request.model,
        "messages": messages,
        "temperature": request.temperature,
        "top_p": 1.0,
        "n": 1,
        "max_tokens": request.max_tokens,
        "chat_template_kwargs": {"enable_thinking": False},
    }


def line(request: VlmRequest, frames: Mapping[str, Image]) -> str:
    """Return a request as one line of a batch file."""
    return json.dumps(
        {"custom_id": request.digest(), "method": "POST", "url": URL, "body": body(request, frames)}, ensure_ascii=False
    )


def reply_of(digest: str, answered: Mapping[str, Any], where: str) -> VlmReply:
    """Return the answer in the body of a chat completion. Raises InputError if the body is not one."""
    try:
        text = answered["choices"][0]["message"]["content"] or ""
        usage = answered.get("usage") or {}
        return VlmReply(
            request=digest,
            text=_storable(text),
            answered_by=_storable(str(answered["model"])),
            tokens_in=usage.get("prompt_tokens"),
            tokens_out=usage.get("completion_tokens"),
        )
    except (KeyError, IndexError, TypeError) as error:
        raise InputError(f"{where}: not a chat completion ({error!r} is missing or has another type)") from error


def _storable(text: str) -> str:
    """Return a text that UTF-8 can encode: JSON can contain half a character, which becomes a question mark."""
    return text.encode(errors="replace").decode()


def replies_in(lines: list[str], where: str) -> tuple[list[VlmReply], list[str]]:
    """Return the answers in a file of results, and the faults of the other lines."""
    replies, faults = [], []
    for number, text in enumerate(lines, 1):
        place = f"{where}:{number}"
        if not text.strip():
            continue
        try:
            row = parse_json(text, place)
            digest, response = str(row["custom_id"]), row.get("response") or {}
            if DIGEST.fullmatch(digest) is None:
                raise InputError(f"{place}: the custom_id {shortened(ascii(digest))} is not the digest of a request")
            if row.get("error") or response.get("status_code", 200) != 200:
                raise InputError(f"{place}: the request failed: {str(row.get('error') or response)[:200]}")
            replies.append(reply_of(digest, response["body"], place))
        except InputError as error:
            faults.append(str(error))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            detail = shortened(" ".join(str(error).split()))
            faults.append(f"{place}: not a line of results ({type(error).__name__}: {detail})")
    return replies, faults


class RequestFiles:
    """Files of requests in the format of OpenAI's batches, one per model."""

    def __init__(self, out: Path) -> None:
        """Raises InputError: the folder has earlier requests, which might be answered twice."""
        if any(out.rglob("*.jsonl")):
            raise InputError(f"{out} already has files of requests; choose a new folder, or remove them")
        self.out, self.n_bytes = out, 0
        self.digests: set[str] = set()
        """Of the written requests."""
        self._paths: dict[str, Path] = {}

    @property
    def paths(self) -> list[Path]:
        """Return the files in the order in which they were begun."""
        return list(self._paths.values())

    def write(self, requests: Sequence[VlmRequest], frames: Mapping[str, Image]) -> Iterator[VlmReply]:
        """Write the requests that are new, as a client without answers."""
        for request in requests:
            if request.digest() in self.digests:
                continue
            self.digests.add(request.digest())
            model = request.adapter or request.model
            named = re.sub(r"[^\w.-]", "_", model).strip("._")
            path = self._paths.setdefault(model, self.out / f"{len(self._paths) + 1}-{named}.jsonl")
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                self.n_bytes += file.write(line(request, frames) + "\n")
        return iter(())


class AnswerFolder:
    """A folder of answers. Several processes may write to it: files are written completely and then renamed."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def path(self, digest: str) -> Path:
        """Return the path of the answer to a request."""
        return self.folder / digest[:2] / f"{digest}.json"

    def get(self, digest: str) -> VlmReply | None:
        """Return the answer to a request, if any. Raises StoreError: the file is damaged, or answers another one."""
        path = self.path(digest)
        if not path.is_file():
            return None
        try:
            reply = VlmReply.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise StoreError(f"{path} is not a valid answer; delete the file to send the request again") from error
        if reply.request != digest:
            raise StoreError(f"{path} answers the request {reply.request}; delete the file to send the request again")
        return reply

    def put(self, reply: VlmReply) -> None:
        """Store an answer."""
        path = self.path(reply.request)
        with naming_failures("store an answer", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
            part.write_text(reply.model_dump_json(), encoding="utf-8")
            part.replace(path)

    def tokens(self) -> int:
        """Return the tokens of all answers, as counted by their servers. Raises StoreError: a file is damaged."""
        replies = (self.get(path.stem) for path in self.folder.glob("??/*.json"))
        return sum((reply.tokens_in or 0) + (reply.tokens_out or 0) for reply in replies if reply is not None)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return the digests without an answer, each once, in order."""
        return [digest for digest in dict.fromkeys(digests) if not self.path(digest).is_file()]
