"""Answers by the digest of their requests, a file each: what was answered once is never asked again."""

import secrets
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from schemas.vlm import VlmReply
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import naming_failures


class AnswerFolder:
    """A folder of answers. Several processes may write to it: a file is written whole and then renamed."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)

    def path(self, digest: str) -> Path:
        """Return where the answer to a request lies."""
        return self.folder / digest[:2] / f"{digest}.json"

    def get(self, digest: str) -> VlmReply | None:
        """Return the answer to a request; None where there is none yet.

        Raises:
            StoreError: the file is damaged, or the answer to another request.
        """
        path = self.path(digest)
        if not path.is_file():
            return None
        try:
            found = VlmReply.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise StoreError(f"{path} is no answer; remove the file, and it is asked again") from error
        if found.request != digest:
            raise StoreError(f"{path} answers the request {found.request}; remove the file, and it is asked again")
        return found

    def put(self, reply: VlmReply) -> None:
        """Keep an answer."""
        path = self.path(reply.request)
        with naming_failures("keep an answer", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            part = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
            part.write_text(reply.model_dump_json(), encoding="utf-8")
            part.replace(path)

    def tokens(self) -> int:
        """Return the tokens that all answers in the folder have used, as their servers counted them.

        Raises:
            StoreError: a file is damaged, or the answer to another request.
        """
        kept = (self.get(path.stem) for path in self.folder.glob("??/*.json"))
        return sum((reply.tokens_in or 0) + (reply.tokens_out or 0) for reply in kept if reply is not None)

    def missing(self, digests: Iterable[str]) -> list[str]:
        """Return the digests without an answer, each once, in order."""
        return [digest for digest in dict.fromkeys(digests) if not self.path(digest).is_file()]
