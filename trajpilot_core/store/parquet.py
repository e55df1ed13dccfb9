"""Parquet in the store: page checksums, fixed row groups, equal tables give equal bytes.

A flipped bit goes unnoticed in 99 % of plain Parquet files, and in none with page checksums (docs/decisions/store.md).
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from trajpilot_core.errors import StoreError

ROW_GROUP = 8192
Readable = bytes | Path
"""A Parquet file in memory or on disk."""


def table_bytes(table: pa.Table) -> bytes:
    """Serialise one table; equal tables give equal bytes, however they are chunked."""
    return tables_bytes([table], table.schema)


def tables_bytes(tables: Iterable[pa.Table], schema: pa.Schema, most: int | None = None) -> bytes:
    """Serialise tables of one schema, one after the other, as one Parquet file in groups of 8,192 rows.

    Args:
        tables: consumed one at a time.
        schema: of each.
        most: maximum size in bytes, after which no further table is consumed; None: no limit.

    Raises:
        StoreError: a table has other columns than `schema`, or the file becomes too large.
    """
    sink, rows = io.BytesIO(), 0
    with pq.ParquetWriter(sink, schema, **_writing(schema)) as writer:
        for group in _row_groups(tables, schema):
            writer.write_table(group, row_group_size=ROW_GROUP)
            rows += group.num_rows
            if most is not None and sink.tell() > most:
                raise StoreError(
                    f"a table has {sink.tell():,} bytes after {rows:,} rows; one file may have {most:,}; write it by "
                    "take (Stage.shard_by)"
                )
    return sink.getvalue()


def _row_groups(tables: Iterable[pa.Table], schema: pa.Schema) -> Iterator[pa.Table]:
    waiting: list[pa.Table] = [schema.empty_table()]
    n_waiting = 0
    for table in tables:
        if not table.schema.equals(schema):
            raise StoreError(f"a part of the table has the columns {_columns(table.schema)}, not {_columns(schema)}")
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


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


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


def open_parquet(source: Readable) -> pq.ParquetFile:
    """Open a Parquet file so that every page read is checked against its checksum.

    Raises:
        StoreError: not a Parquet file, or damaged.
    """
    try:
        if isinstance(source, bytes):
            return pq.ParquetFile(pa.BufferReader(source), page_checksum_verification=True)
        return pq.ParquetFile(source, memory_map=True, page_checksum_verification=True)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(_damaged(source, error)) from error


def read_table(source: Readable, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a table, its pages verified.

    Args:
        source: file in memory or on disk.
        columns: only these, in this order; None: all.

    Raises:
        StoreError: the file is damaged or lacks a column.
    """
    with open_parquet(source) as file:
        require_columns(file.schema_arrow, columns or (), source)
        try:
            return file.read(columns=None if columns is None else list(columns))
        except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
            raise StoreError(_damaged(source, error)) from error


def require_columns(schema: pa.Schema, columns: Sequence[str], source: Readable) -> None:
    """Raise StoreError where `schema` lacks one of `columns`."""
    missing = [name for name in columns if name not in schema.names]
    if missing:
        raise StoreError(f"{_name(source)} has no column {', '.join(missing)}; it has {', '.join(schema.names)}")


def read_vectors(sources: Sequence[Readable], column: str) -> NDArray[np.generic]:
    """Read a fixed-size vector column into one preallocated array, batch by batch.

    Args:
        sources: Parquet files of one schema, read one after the other.
        column: name of a fixed-size list column of width D.

    Returns:
        (N, D) array of the column's own type, N rows of all files together.

    Raises:
        StoreError: a file is damaged, or the column is missing, not of fixed size, has nulls or differs between files.
    """
    files = [open_parquet(source) for source in sources]
    n_rows = sum(file.metadata.num_rows for file in files)
    out: NDArray[np.generic] | None = None
    done = 0
    for source, file in zip(sources, files, strict=True):
        with file:
            for block in _vector_batches(source, file, column):
                if out is None:
                    out = np.empty((n_rows, block.shape[1]), block.dtype)
                if block.shape[1:] != out.shape[1:] or block.dtype != out.dtype:
                    raise StoreError(
                        f"{_name(source)}: {column} is {block.shape[1]} x {block.dtype}, unlike in the other files"
                    )
                out[done : done + len(block)] = block
                done += len(block)
    if out is None:
        return _no_vectors(sources, files, column)
    return out


def _vector_batches(source: Readable, file: pq.ParquetFile, column: str) -> Iterator[NDArray[np.generic]]:
    require_columns(file.schema_arrow, [column], source)
    type_ = file.schema_arrow.field(column).type
    if not pa.types.is_fixed_size_list(type_):
        raise StoreError(f"{_name(source)}: {column} is {type_}, not a vector of fixed size")
    try:
        for batch in file.iter_batches(ROW_GROUP, columns=[column], use_threads=False):
            vectors = batch.column(0)
            flat = vectors.flatten()
            if vectors.null_count or flat.null_count:
                raise StoreError(f"{_name(source)}: {column} has nulls")
            yield flat.to_numpy(zero_copy_only=False).reshape(len(vectors), type_.list_size)
    except (OSError, pa.ArrowException) as error:
        raise StoreError(_damaged(source, error)) from error


def _no_vectors(sources: Sequence[Readable], files: Sequence[pq.ParquetFile], column: str) -> NDArray[np.generic]:
    if not files:
        raise StoreError(f"no file to read {column} from")
    type_ = files[0].schema_arrow.field(column).type
    return np.empty((0, type_.list_size), type_.value_type.to_pandas_dtype())


def _name(source: Readable) -> str:
    return f"a table of {len(source):,} bytes" if isinstance(source, bytes) else str(source)


def _damaged(source: Readable, error: BaseException) -> str:
    return f"{_name(source)} is damaged or not a Parquet file ({error}); `verify` lists damage, --force recomputes"
