"""Rows of tensors in files of known size: written part by part and read through a map, so that memory holds neither.

A folder holds one file per field and one marker per finished part. The rows of a part are written to their places and
synced before its marker appears, whole or not at all. The marker names what the part was made from and has the digest
of its rows, so that a killed run goes on after the last finished part, and a part that is torn, damaged or made from
something else is made again.
"""

import hashlib
import logging
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from pydantic import ValidationError
from torch import Tensor

from schemas.base import Record, canonical_json
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import LocalFolder, naming_failures

FORMAT = 1
CHUNK_BYTES = 1 << 23
DTYPES = {str(t).removeprefix("torch."): t for t in (torch.float16, torch.float32, torch.int64, torch.bool)}
log = logging.getLogger("trajpilot")


class FieldRows(NamedTuple):
    """What a part writes into one field."""

    field: str
    """Path of the field's file below the folder, without its ending."""
    values: Tensor
    """(n, ...), of one of DTYPES."""
    first: int
    """Where its rows begin in the field."""
    total: int
    """N, rows of the field in all its parts."""


class Place(Record):
    """Where the rows of a part lie in one field."""

    field: str
    dtype: str
    shape: tuple[int, ...]
    """Of one row."""
    first: int
    rows: int
    total: int

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape) * DTYPES[self.dtype].itemsize


class Marker(Record):
    """A finished part."""

    format: int
    key: str
    """What the part was made from."""
    content_digest: str
    """sha256 over the places and the bytes of its rows."""
    places: tuple[Place, ...]


def write_part(folder: Path, name: str, key: str, rows: Sequence[FieldRows]) -> tuple[Place, ...]:
    """Write the rows of the part `name` to their places and commit it.

    Raises StoreIOError: the disk failed or is full; the parts of before stay.
    """
    digest, places = hashlib.sha256(), []
    for own in rows:
        dtype, n = str(own.values.dtype).removeprefix("torch."), len(own.values)
        if dtype not in DTYPES or own.first + n > own.total:
            raise ValueError(f"{n} rows of {dtype} from {own.first} on in {own.field}, which holds {own.total}")
        shape = tuple(own.values.shape[1:])
        place = Place(field=own.field, dtype=dtype, shape=shape, first=own.first, rows=n, total=own.total)
        content = own.values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        digest.update(place.digest().encode())
        digest.update(content)
        path = _path(folder, place)
        with naming_failures("write", path, place.rows * place.row_bytes):
            _write(path, content, place)
        places.append(place)
    marker = Marker(format=FORMAT, key=key, content_digest=digest.hexdigest(), places=tuple(places))
    LocalFolder(str(folder.absolute())).replace(f"{name}.json", canonical_json(marker.content()).encode())
    return marker.places


def read_part(folder: Path, name: str, key: str) -> tuple[Place, ...] | None:
    """Return where a finished part lies; None where there is none, or it is damaged or made from something else."""
    path = folder / f"{name}.json"
    with naming_failures("read", path):
        if not path.is_file():
            return None
        content = path.read_bytes()
    try:
        marker = Marker.model_validate_json(content)
    except ValidationError:
        log.warning("%s is damaged; its part is made again", path)
        return None
    if marker.format != FORMAT or marker.key != key:
        log.info("%s is of a part that was made from something else; it is made again", path)
        return None
    if _digest(folder, marker) != marker.content_digest:
        log.warning("the rows of %s are damaged; the part is made again", path)
        return None
    return marker.places


def mapped(folder: Path, place: Place) -> Tensor:
    """Return all the rows of a place's field, (N, *shape), mapped from its file: pages are read as they are needed.

    Nothing may be written to it.

    Raises StoreError: the file has another size.
    """
    path, size = _path(folder, place), place.total * place.row_bytes
    if not size:
        return torch.empty(place.total, *place.shape, dtype=DTYPES[place.dtype])
    with naming_failures("read", path):
        found = path.stat().st_size
    if found != size:
        raise StoreError(f"{path} holds {found:,} bytes, not {size:,}; delete {folder} and run the stage again")
    length = size // DTYPES[place.dtype].itemsize
    flat = torch.from_file(str(path), shared=True, size=length, dtype=DTYPES[place.dtype])  # shared: no memory reserved
    return flat.view(place.total, *place.shape)


def allocated_bytes(folder: Path) -> int:
    """Return the bytes that the files below a folder have on disk, holes left out; 0 where it is absent."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _write(path: Path, content: memoryview, place: Place) -> None:
    """Write a part's rows to their place and sync them; the file gets its whole size, with holes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        if os.fstat(handle).st_size != place.total * place.row_bytes:
            os.ftruncate(handle, place.total * place.row_bytes)
        at = place.first * place.row_bytes
        while content:
            written = os.pwrite(handle, content, at)
            content, at = content[written:], at + written
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(folder: Path, marker: Marker) -> str:
    """Return the digest of a part as its rows lie on disk."""
    digest = hashlib.sha256()
    for place in marker.places:
        digest.update(place.digest().encode())
        for chunk in _chunks(_path(folder, place), place):
            digest.update(chunk)
    return digest.hexdigest()


def _chunks(path: Path, place: Place) -> Iterator[bytes]:
    """Yield the bytes of a part in one field; fewer than there should be where the file is shorter or absent."""
    at, end = place.first * place.row_bytes, (place.first + place.rows) * place.row_bytes
    with naming_failures("read", path):
        if not path.is_file():
            return
        with path.open("rb", buffering=0) as file:
            while at < end and (chunk := os.pread(file.fileno(), min(CHUNK_BYTES, end - at), at)):
                yield chunk
                at += len(chunk)


def _path(folder: Path, place: Place) -> Path:
    return folder / f"{place.field}.rows"
