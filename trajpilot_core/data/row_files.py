"""Rows of tensors in files of known size, written part by part and read through memory maps.

A folder contains one file per field and one marker per finished part. The rows of a part are written and synced before
its marker is written atomically. The marker contains the key of the part's inputs and the digest of its rows, so that a
killed run continues after the last finished part, and a part that is incomplete, damaged or stale is recomputed.
"""

import hashlib
import logging
import math
import os
from collections.abc import Sequence
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
    """The rows that a part writes into one field."""

    field: str
    """Path of the field's file below the folder, without its suffix."""
    values: Tensor
    """(n, ...), of one of DTYPES."""
    first: int
    """First row of the part in the field."""
    total: int
    """N, rows of the field in all parts."""


class Place(Record):
    """Position of a part's rows in one field."""

    field: str
    dtype: str
    shape: tuple[int, ...]
    """Shape of one row."""
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
    """Key of the part's inputs."""
    content_digest: str
    """sha256 of the places and the bytes of its rows."""
    places: tuple[Place, ...]


def write_part(folder: Path, name: str, key: str, rows: Sequence[FieldRows]) -> tuple[Place, ...]:
    """Write the rows of the part `name` and commit it.

    Raises StoreIOError: the disk failed or is full; earlier parts are kept.
    """
    digest, places = hashlib.sha256(), []
    for part in rows:
        dtype, n = str(part.values.dtype).removeprefix("torch."), len(part.values)
        if dtype not in DTYPES or part.first + n > part.total:
            raise ValueError(f"{n} rows of {dtype} from {part.first} on in {part.field}, which has {part.total}")
        shape = tuple(part.values.shape[1:])
        place = Place(field=part.field, dtype=dtype, shape=shape, first=part.first, rows=n, total=part.total)
        content = part.values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
        digest.update(place.digest().encode())
        digest.update(content)
        path, at, size = _path(folder, place), place.first * place.row_bytes, place.total * place.row_bytes
        with naming_failures("write", path, place.rows * place.row_bytes):
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                if os.fstat(handle).st_size != size:  # the file gets its final size, with holes
                    os.ftruncate(handle, size)
                while content:
                    written = os.pwrite(handle, content, at)
                    content, at = content[written:], at + written
                os.fsync(handle)
            finally:
                os.close(handle)
        places.append(place)
    marker = Marker(format=FORMAT, key=key, content_digest=digest.hexdigest(), places=tuple(places))
    LocalFolder(str(folder.absolute())).replace(f"{name}.json", canonical_json(marker.content()).encode())
    return marker.places


def read_part(folder: Path, name: str, key: str) -> tuple[Place, ...] | None:
    """Return the places of a finished part; None if it is missing, damaged or stale."""
    path = folder / f"{name}.json"
    with naming_failures("read", path):
        if not path.is_file():
            return None
        content = path.read_bytes()
    try:
        marker = Marker.model_validate_json(content)
    except ValidationError:
        log.warning("%s is damaged; recomputing its part", path)
        return None
    if marker.format != FORMAT or marker.key != key:
        log.info("%s is stale (key mismatch); recomputing its part", path)
        return None
    digest = hashlib.sha256()
    for place in marker.places:
        digest.update(place.digest().encode())
        at, end = place.first * place.row_bytes, (place.first + place.rows) * place.row_bytes
        rows = _path(folder, place)
        with naming_failures("read", rows):
            if not rows.is_file():
                continue
            with rows.open("rb", buffering=0) as file:  # a shorter file gives too few bytes, so another digest
                while at < end and (chunk := os.pread(file.fileno(), min(CHUNK_BYTES, end - at), at)):
                    digest.update(chunk)
                    at += len(chunk)
    if digest.hexdigest() != marker.content_digest:
        log.warning("the rows of %s are damaged; recomputing the part", path)
        return None
    return marker.places


def mapped(folder: Path, place: Place) -> Tensor:
    """Return all rows of a place's field, (N, *shape), memory-mapped and read-only.

    Raises StoreError: the file has another size.
    """
    path, size = _path(folder, place), place.total * place.row_bytes
    if not size:
        return torch.empty(place.total, *place.shape, dtype=DTYPES[place.dtype])
    with naming_failures("read", path):
        actual = path.stat().st_size
    if actual != size:
        raise StoreError(f"{path} has {actual:,} bytes, not {size:,}; delete {folder} and run the stage again")
    length = size // DTYPES[place.dtype].itemsize
    flat = torch.from_file(str(path), shared=True, size=length, dtype=DTYPES[place.dtype])  # shared: no memory reserved
    return flat.view(place.total, *place.shape)


def allocated_bytes(folder: Path) -> int:
    """Return the bytes on disk of the files below a folder, without holes; 0 if it does not exist."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


def _path(folder: Path, place: Place) -> Path:
    return folder / f"{place.field}.rows"
