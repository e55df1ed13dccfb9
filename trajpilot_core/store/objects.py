"""An object store as a root: one conditional PUT per file (If-None-Match), no rename, no lock.

All requests go through `Objects`: it retries errors that may pass, and turns answers of the store into messages.
"""

import contextlib
import hashlib
import io
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from trajpilot_core.errors import InputError, StoreError, StoreIOError
from trajpilot_core.runtime import answer_limit_s
from trajpilot_core.store.files import naming_failures
from trajpilot_core.store.locations import Location, check_relative

try:
    from aiohttp import ClientError as BodyError
    from botocore import exceptions as boto
    from botocore.parsers import ResponseParserError
except ImportError:  # without the extra s3 they are never raised
    TRANSIENT: tuple[type[Exception], ...] = (OSError,)
    FAILURES = TRANSIENT
else:
    TRANSIENT = (
        OSError,
        BodyError,
        ResponseParserError,
        boto.ClientError,
        boto.HTTPClientError,
        boto.ConnectionError,
        boto.IncompleteReadError,
        boto.FlexibleChecksumError,
    )
    FAILURES = (*TRANSIENT, boto.BotoCoreError, ValueError)

T = TypeVar("T")
SINGLE_PUT_BYTES = 5 * 2**30 - 1
"""Largest object of one PUT (Amazon S3 limits)."""
CONFLICT_WAITS_S = (0.1, 0.4, 1.6, 6.4)
"""409 ConditionalRequestConflict: another writer is active; wait and try again."""
WAITS_S = (0.2, 1.0, 4.0)
"""Between attempts of a request; a task retries a stage after 10 and 60 s."""
BUSY = (408, 429, 500, 502, 503, 504)
"""HTTP status of errors that may pass."""
SLOWEST_BYTES_S = 100_000
"""A body may take the limit of an answer, plus its size at this rate."""
CHUNK = 2**20


class BrokenAnswerError(OSError):
    """An answer with a good status but wrong content: a page of a proxy, or part of a body."""


def open_bucket(location: Location) -> "ObjectFolder":
    """Open a prefix of an object store.

    Raises:
        InputError: it cannot be reached, or there are no credentials for it.
        StoreError: the library of the protocol is not installed.
    """
    return ObjectFolder(location.url(), open_system(location), location.path)


def open_system(location: Location) -> "Objects":
    """Open an object store through fsspec, and check once per process that it answers.

    Credentials and endpoint come from the configuration of its client.

    Raises:
        InputError: it cannot be reached, or there are no credentials for it.
        StoreError: the library of the protocol is not installed.
    """
    import fsspec

    limit_s = answer_limit_s()
    client = {"connect_timeout": min(limit_s, 10.0), "read_timeout": limit_s, "retries": {"max_attempts": 0}}
    client |= fsspec.config.conf.get(location.protocol, {}).get("config_kwargs", {})
    try:
        system = fsspec.filesystem(location.protocol, use_listings_cache=False, config_kwargs=client)
    except ImportError as error:
        raise StoreError(
            f"{location.url()} needs a package that is not installed ({error}); pip install 'trajpilot[s3]'"
        ) from error
    system.retries = 1  # `Objects` retries, and knows better which errors may pass
    opened = Objects(system, limit_s)
    _require_answer(opened, location)
    return opened


@lru_cache(maxsize=64)
def _require_answer(opened: "Objects", location: Location) -> None:
    """Check once that a store answers; whether the address exists and may be read is checked by its readers.

    Raises:
        InputError: it does not answer, or the client finds no credentials.
    """
    try:
        opened.first_page(location.path)
    except FileNotFoundError:
        return
    except StoreIOError as error:
        if status_of(error) is None:
            raise InputError(
                f"{location.url()} cannot be used ({error.__cause__}); set AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or give the machine a role, and AWS_ENDPOINT_URL where the "
                "store is not Amazon's"
            ) from error


@dataclass(frozen=True)
class Objects:
    """An object store with the method names of fsspec; paths begin with the bucket.

    Each method returns a complete answer, or raises FileNotFoundError or StoreIOError.
    """

    system: Any
    limit_s: float
    """Seconds until an answer must begin."""

    def info(self, path: str) -> dict[str, Any]:
        """Return size, ETag and time of change of an object."""

        def head() -> dict[str, Any]:
            return _described(path, _checked(self._request("head_object", path)), "ContentLength")

        return self._ask("look at", path, head)

    def cat_file(self, path: str) -> bytes:
        """Return a whole object."""

        def whole() -> bytes:
            content = io.BytesIO()
            self._pour(path, content.write)
            return content.getvalue()

        return self._ask("read", path, whole)

    def digest(self, path: str) -> str:
        """Return the sha256 of an object without keeping it in memory."""

        def hashed() -> str:
            sha256 = hashlib.sha256()
            self._pour(path, sha256.update)
            return sha256.hexdigest()

        return self._ask("read", path, hashed)

    def get_file(self, path: str, target: str) -> None:
        """Copy an object to a local file."""

        def copied() -> None:
            with naming_failures("write", target):
                file = Path(target).open("wb")  # noqa: SIM115 (closed below)

            def write(content: bytes) -> None:
                with naming_failures("write", target):
                    file.write(content)

            with file:
                self._pour(path, write)

        self._ask("read", path, copied)

    def ls(self, path: str, detail: bool = True) -> list[Any]:
        """Return the objects and folders directly below a prefix."""
        entries: list[dict[str, Any]] = []
        for page in self._pages(path, Delimiter="/"):
            below = [each["Prefix"].rstrip("/") for each in page.get("CommonPrefixes", [])]
            entries += [{"name": f"{self._split(path)[0]}/{key}", "size": 0, "type": "directory"} for key in below]
            entries += self._files(path, page)
        return entries if detail else [entry["name"] for entry in entries]

    def find(self, path: str, detail: bool = True) -> dict[str, dict[str, Any]]:
        """Return every object below a prefix, by its path."""
        pages = self._pages(path)
        return {entry["name"]: entry for page in pages for entry in self._files(path, page)}

    def first_page(self, path: str) -> dict[str, Any]:
        """Return an answer that lists at most one object below a prefix."""
        return next(self._pages(path, MaxKeys=1))

    def put(self, path: str, content: bytes, **condition: str) -> None:
        """Write a whole object; FileExistsError where the condition fails."""
        self._ask("write", path, lambda: self._put(path, content, condition), f" ({len(content):,} bytes)")

    def remove(self, path: str) -> None:
        """Remove an object."""
        self._ask("remove", path, lambda: self._request("delete_object", path))

    def _ask(self, doing: str, path: str, request: Callable[[], T], size: str = "") -> T:
        for wait_s in (*WAITS_S, None):
            try:
                return request()
            except (FileNotFoundError, FileExistsError, StoreIOError):
                raise
            except FAILURES as error:
                if wait_s is None or not can_heal(error):
                    where = f"{doing} s3://{path.removeprefix('s3://')}{size}"
                    raise StoreIOError(f"cannot {where}: {self._reason(error)}") from error
                time.sleep(wait_s)
        raise AssertionError("unreachable")

    def _reason(self, error: Exception) -> str:
        """Return in words what the store answered, and the remedy."""
        status, words = status_of(error), getattr(error, "strerror", None) or str(error) or type(error).__name__
        text = words if status is None else f"the store answered {status} ({words})"
        if isinstance(error, TimeoutError):
            text = f"no complete answer within {self.limit_s:g} s plus its size at {SLOWEST_BYTES_S:,} bytes per second"
        if status in (401, 403):
            return f"{text}; give these credentials that permission, or set others (AWS_PROFILE)"
        if not can_heal(error):
            return f"{text}; check the address, the credentials, AWS_ENDPOINT_URL and AWS_DEFAULT_REGION"
        again = f"{len(WAITS_S) + 1} attempts failed, nothing committed is lost"
        return f"{text}; {again}: run again when the store answers (for a slow one raise TRAJPILOT_STORE_TIMEOUT_S)"

    def _split(self, path: str) -> tuple[str, str]:
        bucket, _, key = path.removeprefix("s3://").partition("/")
        return bucket, key

    def _request(self, operation: str, path: str, limit_s: float | None = None, **arguments: Any) -> Any:
        bucket, key = self._split(path)
        return self.system.call_s3(operation, Bucket=bucket, Key=key, timeout=limit_s or self.limit_s, **arguments)

    def _pour(self, path: str, write: Callable[[bytes], object]) -> None:
        """Pass an object on in chunks and check its size; the client checks its checksum."""
        from fsspec.asyn import sync

        answer = self._request("get_object", path)
        size = answer.get("ContentLength")
        n = sync(self.system.loop, _copy, answer, write, timeout=self.limit_s + (size or 0) / SLOWEST_BYTES_S)
        if n != size:
            raise BrokenAnswerError(f"only {n:,} of {size:,} bytes arrived")

    def _put(self, path: str, content: bytes, condition: dict[str, str]) -> None:
        limit_s = self.limit_s + len(content) / SLOWEST_BYTES_S
        answer = self._request("put_object", path, limit_s, Body=content, **condition)
        if not answer.get("ETag"):
            raise BrokenAnswerError("the answer to a write has no ETag, as a page of a proxy")

    def _pages(self, path: str, **arguments: Any) -> Iterator[dict[str, Any]]:
        bucket, key = self._split(path)
        arguments |= {"Bucket": bucket, "Prefix": f"{key.rstrip('/')}/" if key else "", "timeout": self.limit_s}

        def page() -> dict[str, Any]:
            answer: dict[str, Any] = self.system.call_s3("list_objects_v2", **arguments)
            if answer.get("IsTruncated") != ("NextContinuationToken" in answer):
                raise BrokenAnswerError("the answer is no listing, as a page of a proxy")
            return answer

        while True:
            answer = self._ask("list", path, page)
            yield answer
            if not answer["IsTruncated"]:
                return
            arguments["ContinuationToken"] = answer["NextContinuationToken"]

    def _files(self, path: str, page: dict[str, Any]) -> Iterator[dict[str, Any]]:
        listed = [entry for entry in page.get("Contents", []) if not entry["Key"].endswith("/")]
        yield from (_described(f"{self._split(path)[0]}/{entry['Key']}", entry, "Size") for entry in listed)


def _described(path: str, answer: dict[str, Any], size: str) -> dict[str, Any]:
    facts: dict[str, Any] = {name: answer[name] for name in ("ETag", "LastModified") if name in answer}
    return {"name": path, "type": "file", "size": int(answer[size]), **facts}


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer if it has the fields of an object."""
    if not isinstance(answer.get("LastModified"), datetime) or answer.get("ContentLength") is None:
        raise BrokenAnswerError("the answer has no size or time of change, as a page of a proxy")
    return answer


async def _copy(answer: dict[str, Any], write: Callable[[bytes], object]) -> int:
    n = 0
    async with answer["Body"] as body:
        _checked(answer)
        while chunk := await body.read(CHUNK):
            write(chunk)
            n += len(chunk)
    return n


def can_heal(error: Exception) -> bool:
    """Return whether a retry may succeed: the store is busy, or an answer was cut off, damaged, late or a proxy's."""
    status = status_of(error)
    return isinstance(error, TRANSIENT) and (status is None or status in BUSY or isinstance(error, TimeoutError))


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status behind an error of the object store's client; None where there is none."""
    seen: BaseException | None = error
    while seen is not None:
        response = getattr(seen, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return int(status) if status is not None else None
        seen = seen.__cause__
    return None


@dataclass(frozen=True)
class ObjectFolder:
    """A prefix of a bucket."""

    url: str
    system: Objects
    prefix: str

    def _at(self, path: str) -> str:
        return f"{self.prefix}/{check_relative(path)}"

    def local(self, path: str) -> Path | None:
        """Return None: there are no local files."""
        check_relative(path)
        return None

    def read(self, path: str) -> bytes:
        """Return the whole object."""
        try:
            return self.system.cat_file(self._at(path))
        except FileNotFoundError as error:
            raise StoreIOError(f"cannot read {self.url}/{path}: {error}") from error

    def size(self, path: str) -> int | None:
        """Return the size in bytes; None where there is no such object."""
        try:
            return int(self.system.info(self._at(path))["size"])
        except FileNotFoundError:
            return None

    def replace(self, path: str, content: bytes) -> None:
        """Write the whole object, replacing any older one."""
        try:
            self._put(path, content)
        except FileNotFoundError as error:
            raise StoreIOError(f"cannot write {self.url}/{path} ({len(content):,} bytes): {error}") from error

    def create(self, path: str, content: bytes) -> bool:
        """Write the object unless one exists (If-None-Match: *); True where this call made it."""
        for wait_s in (*CONFLICT_WAITS_S, None):
            try:
                self._put(path, content, IfNoneMatch="*")
                return True
            except (FileExistsError, StoreIOError) as error:
                if status_of(error) == 412 or isinstance(error, FileExistsError):
                    return False
                if status_of(error) != 409 or wait_s is None:
                    raise
                time.sleep(wait_s)
        raise AssertionError("unreachable")

    def remove(self, path: str) -> None:
        """Remove the object if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.system.remove(self._at(path))

    def names(self, path: str) -> list[str]:
        """Return the sorted names below a prefix."""
        try:
            paths = self.system.ls(self._at(path), detail=False)
        except FileNotFoundError:
            return []
        names = {name.rpartition("/")[2] for name in paths}
        return sorted(name for name in names if name and not name.startswith("."))

    def _put(self, path: str, content: bytes, **condition: str) -> None:
        if len(content) > SINGLE_PUT_BYTES:
            raise StoreError(
                f"{self.url}/{path} has {len(content):,} bytes; the maximum of one PUT is {SINGLE_PUT_BYTES:,}"
            )
        self.system.put(self._at(path), content, **condition)
