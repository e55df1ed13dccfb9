"""Answers by the digest of their requests, one file each: no request is sent twice."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from schemas.vlm import VlmReply
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import naming_failures


class AnswerFolder:
    """A folder of answers. Several processes may write to it: files are written completely and then renamed."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def path(self, digest: str) -> Path:
        """Return the path of the answer to a request."""
        return self.folder / digest[:2] / f"{digest}.json"

    def get(self, digest: str) -> VlmReply | None:
        """Return the answer to a request; None if there is none yet.

        Raises:
            StoreError: the file is damaged, or answers another request.
        """
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
        """Return the tokens used by all answers in the folder, as counted by their servers.

        Raises:
            StoreError: a file is damaged, or answers another request.
        """
        replies = (self.get(path.stem) for path in self.folder.glob("??/*.json"))
        return sum((reply.tokens_in or 0) + (reply.tokens_out or 0) for reply in replies if reply is not None)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return the digests without an answer, each once, in order."""
        return [digest for digest in dict.fromkeys(digests) if not self.path(digest).is_file()]
