"""Parquet in the store: page checksums, fixed row groups, equal tables give equal bytes.

A flipped bit goes unnoticed in 99 % of plain Parquet files, and in none with page checksums (docs/decisions/store.md).
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpilot_core.errors import StoreError

ROW_GROUP = 8192


def table_bytes(table: pa.Table) -> bytes:
    """Serialise one table; equal tables give equal bytes, however they are chunked."""
    return tables_bytes([table], table.schema)


def tables_bytes(tables: Iterable[pa.Table], schema: pa.Schema) -> bytes:
    """Serialise tables of one schema, consumed one at a time, as one Parquet file in groups of 8,192 rows."""
    sink = io.BytesIO()
    with pq.ParquetWriter(sink, schema, **_writing(schema)) as writer:
        for group in _row_groups(tables, schema):
            writer.write_table(group, row_group_size=ROW_GROUP)
    return sink.getvalue()


def _row_groups(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = [schema.empty_table()]
    n_waiting = 0
    for table in tables:
        waiting.append(table)
        n_waiting += table.num_rows
        if n_waiting >= ROW_GROUP:
            whole = pa.concat_tables(waiting)
            full = n_waiting - n_waiting % ROW_GROUP
            for start in range(0, full, ROW_GROUP):
                yield _one_chunk(whole.slice(start, ROW_GROUP), schema)
            waiting, n_waiting = [whole.slice(full)], n_waiting - full
    if n_waiting:
        yield _one_chunk(pa.concat_tables(waiting), schema)


def _one_chunk(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table.combine_chunks().replace_schema_metadata(schema.metadata)


def _writing(schema: pa.Schema) -> dict[str, Any]:
    """Vectors uncompressed (they hardly compress), everything else zstd; statistics for ids only."""
    vectors = [field.name for field in schema if pa.types.is_fixed_size_list(field.type)]
    plain = [path for field in schema if field.name not in vectors for path in _leaves(field)]
    packed = [path for field in schema if field.name in vectors for path in _leaves(field)]
    return {
        "compression": {**dict.fromkeys(plain, "zstd"), **dict.fromkeys(packed, "none")},
        "use_dictionary": [field.name for field in schema if pa.types.is_string(field.type)],
        "write_statistics": [field.name for field in schema if field.name.endswith("_id")],
        "write_page_checksum": True,
        "store_schema": True,
    }


def _leaves(field: pa.Field) -> list[str]:
    if pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type):
        return [f"{field.name}.list.element"]
    return [field.name]


def open_parquet(content: bytes) -> pq.ParquetFile:
    """Open a Parquet file so that every page read is checked against its checksum.

    Raises:
        StoreError: not a Parquet file, or damaged.
    """
    try:
        return pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(_damaged(content, error)) from error


def read_table(content: bytes, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table, only these columns in this order (None: all), its pages verified.

    Raises:
        StoreError: the file is damaged or lacks a column.
    """
    with open_parquet(content) as file:
        names = file.schema_arrow.names
        missing = [name for name in columns or () if name not in names]
        if missing:
            raise StoreError(f"a table has no column {', '.join(missing)}; it has {', '.join(names)}")
        try:
            return file.read(columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise StoreError(_damaged(content, error)) from error


def vectors_of(table: pa.Table, column: str) -> NDArray[np.generic]:
    """Return a fixed-size list column of width D as one array (N, D) of the column's own type.

    Raises:
        StoreError: the column is not of fixed size, or has nulls.
    """
    type_ = table.schema.field(column).type
    if not pa.types.is_fixed_size_list(type_):
        raise StoreError(f"{column} is {type_}, not a vector of fixed size")
    out: NDArray[np.generic] = np.empty((table.num_rows, type_.list_size), type_.value_type.to_pandas_dtype())
    at = 0
    for chunk in table[column].chunks:
        flat = chunk.flatten()
        if chunk.null_count or flat.null_count:
            raise StoreError(f"{column} has nulls")
        out[at : at + len(chunk)] = flat.to_numpy(zero_copy_only=False).reshape(len(chunk), type_.list_size)
        at += len(chunk)
    return out


def _damaged(content: bytes, error: BaseException) -> str:
    return (
        f"a table of {len(content):,} bytes is damaged or not a Parquet file ({error}); `verify` lists damage, --force "
        "recomputes"
    )
