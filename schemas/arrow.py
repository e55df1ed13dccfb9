"""Arrow schemas, derived from the row records so that a column is declared once."""

import types
import typing
from collections.abc import Iterable
from enum import StrEnum
from typing import TypeVar

import pyarrow as pa

from schemas.base import Record

R = TypeVar("R", bound=Record)
SCALARS: dict[object, pa.DataType] = {str: pa.string(), int: pa.int64(), float: pa.float64(), bool: pa.bool_()}


def _arrow_type(annotation: object) -> tuple[pa.DataType, bool]:
    """Return the Arrow type of a field annotation and whether it may be null."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (types.UnionType, typing.Union):
        inner = [a for a in arguments if a is not type(None)]
        return _arrow_type(inner[0])[0], True
    if origin is typing.Literal or (isinstance(annotation, type) and issubclass(annotation, StrEnum)):
        return pa.string(), False
    if origin is tuple and len(arguments) == 2 and arguments[1] is Ellipsis:
        return pa.list_(_arrow_type(arguments[0])[0]), False
    if annotation in SCALARS:
        return SCALARS[annotation], False
    raise TypeError(f"no Arrow type for {annotation!r}; use str, int, float, bool, Literal or tuple[T, ...]")


def arrow_schema(row: type[Record], **vectors: pa.DataType) -> pa.Schema:
    """Return the Arrow schema of a row record with fixed-size vectors, e.g. `vector=pa.list_(pa.float16(), 1664)`."""
    fields = []
    for name, info in row.model_fields.items():
        type_, nullable = _arrow_type(info.annotation)
        fields.append(pa.field(name, type_, nullable=nullable))
    fields += [pa.field(name, type_, nullable=False) for name, type_ in vectors.items()]
    return pa.schema(fields)


def table_of(row: type[Record], records: Iterable[Record]) -> pa.Table:
    """Build the Arrow table of a list of row records (scalar and list columns only)."""
    return pa.Table.from_pylist([r.model_dump(mode="json") for r in records], schema=arrow_schema(row))


def rows_of(row: type[R], table: pa.Table) -> list[R]:
    """Read the rows of a table back as records; columns without a field in the record are ignored."""
    names = [name for name in row.model_fields if name in table.column_names]
    return [row.model_validate(values) for values in table.select(names).to_pylist()]
