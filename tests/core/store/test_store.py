"""The store's formats, folders and inventory: equal bytes, damage noticed, names and addresses checked."""

import hashlib
import io
import itertools
import os
import random
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_stages import INGEST, hostile_names

from schemas.artifacts import FileEntry
from trajpilot_core.engine.sink import Sink
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import LocalFolder, open_folder
from trajpilot_core.store.inventory import ABSENT, UNREADABLE, Inventory, digests, load_inventory, save_inventory
from trajpilot_core.store.locations import check_source_path, parse_location
from trajpilot_core.store.lock import require_free_space
from trajpilot_core.store.manifest import seal, unseal, verified_bytes, write_data
from trajpilot_core.store.parquet import ROW_GROUP, open_parquet, read_table, table_bytes, tables_bytes, vectors_of
from trajpilot_core.store.tensors import parse_tensors, tensors_bytes

WIDTH = 8
SCHEMA = pa.schema(
    [
        pa.field("take_id", pa.string(), nullable=False),
        pa.field("times_s", pa.list_(pa.float64())),
        pa.field("vector", pa.list_(pa.float16(), WIDTH), nullable=False),
    ]
)


def some_table(n: int, seed: int = 0) -> pa.Table:
    numbers = np.random.default_rng(seed).standard_normal((n, WIDTH)).astype(np.float16)
    vector = pa.FixedSizeListArray.from_arrays(pa.array(numbers.ravel()), WIDTH)
    return pa.table([[f"take{k % 7}" for k in range(n)], [[k / 3] * (k % 3) for k in range(n)], vector], schema=SCHEMA)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(n=st.integers(0, 60), cuts=st.lists(st.integers(0, 60), max_size=4), seed=st.integers(0, 5))
def test_equal_tables_give_equal_bytes_whatever_their_chunks(n: int, cuts: list[int], seed: int) -> None:
    table = some_table(n, seed)
    edges = [0, *sorted(min(cut, n) for cut in cuts), n]
    parts = [table.slice(a, b - a) for a, b in itertools.pairwise(edges)]
    chunked = pa.concat_tables(parts)
    assert table_bytes(chunked) == table_bytes(table) == tables_bytes(parts, SCHEMA)
    assert read_table(table_bytes(table)) == table


def test_parquet_layout_is_as_documented() -> None:
    with open_parquet(table_bytes(some_table(ROW_GROUP + 10))) as file:
        groups = [file.metadata.row_group(k) for k in range(file.num_row_groups)]
    assert [group.num_rows for group in groups] == [ROW_GROUP, 10]
    columns = {column.path_in_schema: column for column in (groups[0].column(k) for k in range(3))}
    vector = columns["vector.list.element"]
    assert (vector.compression, vector.statistics) == ("UNCOMPRESSED", None)
    assert "RLE_DICTIONARY" not in vector.encodings
    assert columns["take_id"].statistics.has_min_max
    assert columns["times_s.list.element"].statistics is None


def test_vectors_of_several_chunks_become_one_array() -> None:
    tables = [some_table(n, n) for n in (3, 0, ROW_GROUP + 5)]
    whole = pa.concat_tables(tables)
    vectors = vectors_of(whole, "vector")
    flat = whole.column("vector").combine_chunks().flatten().to_numpy()
    np.testing.assert_array_equal(vectors, flat.reshape(-1, WIDTH), strict=True)
    assert vectors_of(tables[1], "vector").shape == (0, WIDTH)


def test_columns_that_are_not_there_or_no_vectors_are_named() -> None:
    content = table_bytes(some_table(3))
    with pytest.raises(StoreError, match="no column wrong; it has take_id"):
        read_table(content, ["wrong"])
    with pytest.raises(StoreError, match="not a vector of fixed size"):
        vectors_of(some_table(3), "times_s")
    with pytest.raises(StoreError, match="not a Parquet file"):
        read_table(b"PAR1 nonsense PAR1")


def test_a_table_in_parts_is_the_table_as_a_whole(tmp_path: Path) -> None:
    stage = replace(INGEST, writes=("whole", "parts", "none"))
    sink, table = Sink(LocalFolder(str(tmp_path)), stage.name, stage.writes, "key"), some_table(3 * ROW_GROUP // 2)
    sink.table("whole", table)
    sink.table_in_parts("parts", (table.slice(at, 1000) for at in range(0, table.num_rows, 1000)), SCHEMA)
    sink.table_in_parts("none", iter(()), SCHEMA)
    assert sink.entries["parts"] == sink.entries["whole"]
    assert sink.entries["none"].rows == 0
    with pytest.raises(StoreError, match="writes 'parts' twice"):
        sink.table_in_parts("parts", iter(()), SCHEMA)


@settings(derandomize=True, deadline=None, max_examples=30)
@given(
    names=st.lists(st.from_regex(r"[a-z0-9/]{1,12}", fullmatch=True), unique=True, max_size=5),
    dtype=st.sampled_from(["float32", "float16", "int64", "bool"]),
)
def test_models_come_back_as_written_and_equal_models_give_equal_bytes(names, dtype) -> None:
    tensors = {name: np.arange(6).reshape(2, 3).T.astype(dtype) for name in names} | {"scalar": np.float32(3)[...]}
    content = tensors_bytes(tensors)
    assert content == tensors_bytes(dict(reversed(tensors.items())))
    back = parse_tensors(content)
    assert sorted(back) == sorted(tensors)
    for name, tensor in back.items():
        np.testing.assert_array_equal(tensor, tensors[name], strict=True)


def flipped(content: bytes, bit: int) -> bytes:
    at, mask = divmod(bit, 8)
    return content[:at] + bytes([content[at] ^ (1 << mask)]) + content[at + 1 :]


def test_flipped_bits_are_all_noticed_by_the_readers_of_training(tmp_path: Path) -> None:
    folder, chance, content = open_folder(str(tmp_path)), random.Random(0), table_bytes(some_table(300))
    entry = write_data(folder, "s", "k", "parquet", content, 0)
    path = tmp_path / "artifacts/s" / entry.name
    old = path.stat()
    for _ in range(200):
        path.write_bytes(flipped(content, chance.randrange(8 * len(content))))
        os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))  # as a failing disk does it
        with pytest.raises(StoreError, match="damaged"):
            verified_bytes(folder, "artifacts/s", entry)


def test_page_checksums_alone_notice_what_a_plain_reader_believes() -> None:
    table, chance = some_table(2000), random.Random(1)
    content = table_bytes(table)
    raw = table.column("vector").combine_chunks().flatten().to_numpy().tobytes()
    start = content.index(raw)
    for _ in range(200):
        damaged = flipped(content, 8 * start + chance.randrange(8 * len(raw)))
        assert pq.read_table(io.BytesIO(damaged)) != table
        with pytest.raises(StoreError, match="damaged"):
            read_table(damaged)


def test_a_flipped_bit_in_a_sealed_record_is_noticed() -> None:
    record = FileEntry(name="shards/x/data.parquet", sha256="0" * 64, bytes=1, rows=1)
    content, harmless = seal(record), 0
    for bit in range(8 * len(content)):
        with suppress(StoreError):
            assert unseal(FileEntry, flipped(content, bit), "here") == record  # white space at most
            harmless += 1
    assert harmless < 0.05 * 8 * len(content)


ADDRESSES = [
    *("", "\0", "a\0b", "..", "../x", "a/../../x", "a\\..\\x", "file://host/x", "file:x", "file:///a/../b"),
    *("s3://", "s3:///", "s3://b/../c", "s3a://b/k", "S4://x", "local:///etc", "data:text/plain,x", "file::///x"),
    *("zip://a::file://b", "cached::file:///etc", "simplecache::s3://b/k", "jar:file:/x", "HTTP://X", "http://x"),
]


def test_other_protocols_and_ways_upwards_are_refused_before_any_library_sees_them(monkeypatch) -> None:
    monkeypatch.setattr(fsspec, "filesystem", lambda *_, **__: pytest.fail("reached fsspec"))
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("opened a connection"))
    for address in ADDRESSES:
        with pytest.raises(StoreError):
            pytest.fail(f"{address!r} was opened as {open_folder(address)}")
    for path in ("", "a\0", "../x", "a/../x", "a\\..\\x", "s3://b/k", "cached::x", "http://x"):
        with pytest.raises(StoreError):
            check_source_path(path)
    for address, url in (("runs", "runs"), ("/a/b/", "/a/b"), ("file:///a/b", "/a/b"), ("s3://b/c/", "s3://b/c")):
        assert parse_location(address).url() == url


def test_200_hostile_names_touch_nothing_outside_the_root(tmp_path: Path) -> None:
    root, outside = tmp_path / "a/b/root", tmp_path / "a/x"
    root.mkdir(parents=True)
    outside.write_text("untouched")
    folder, names = LocalFolder(str(root)), hostile_names()
    assert len(names) == 200
    for name, write in itertools.product(names, ("replace", "create", "remove", "read", "size", "names")):
        arguments = (name, b"evil") if write in {"replace", "create"} else (name,)
        with pytest.raises(StoreError):
            getattr(folder, write)(*arguments)
    assert outside.read_text() == "untouched"
    assert sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*")) == ["a", "a/b", "a/b/root", "a/x"]


def test_create_lets_exactly_one_of_many_writers_win(tmp_path: Path) -> None:
    folder = LocalFolder(str(tmp_path))
    with ThreadPoolExecutor(20) as writers:
        made = list(writers.map(lambda k: folder.create("a/manifest.json", str(k).encode() * 1000), range(20)))
    assert sum(made) == 1
    assert folder.read("a/manifest.json") == str(made.index(True)).encode() * 1000
    assert folder.names("a") == ["manifest.json"]
    assert [p.name for p in (tmp_path / "a").iterdir()] == ["manifest.json"]


def test_a_reader_never_sees_a_mixed_file(tmp_path: Path) -> None:
    folder, stop = LocalFolder(str(tmp_path)), threading.Event()
    folder.replace("f", b"0" * 100_000)
    seen: list[bytes] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(bytes(sorted(set(folder.read("f")))))

    reader = threading.Thread(target=read)
    reader.start()
    for k in range(100):
        folder.replace("f", str(k % 10).encode() * 100_000)
    stop.set()
    reader.join()
    assert seen
    assert all(len(content) == 1 for content in seen)


def test_too_little_space_is_said_beforehand(tmp_path: Path) -> None:
    require_free_space(tmp_path / "not/there/yet", 1, "the demo")
    with pytest.raises(StoreError, match=r"the demo needs 1000000000\.00 GB under .* is free there"):
        require_free_space(tmp_path, 10**18, "the demo")


def test_the_inventory_reads_a_file_once_and_forgets_when_it_is_damaged(tmp_path: Path) -> None:
    data, folder = tmp_path / "data", open_folder(str(tmp_path / "root"))
    (data / "sub").mkdir(parents=True)
    for name in "ab":
        (data / name).write_text(name)

    def loaded() -> Inventory:
        return load_inventory(folder, str(data))

    first, second = loaded(), loaded()
    found = digests(first, ["a", "gone", "sub", "../a", "a\0", str(data / "a")], workers=2)
    assert found["a"] == hashlib.sha256(b"a").hexdigest() == found[str(data / "a")]
    assert found["gone"] == found["../a"] == found["a\0"] == ABSENT
    assert found["sub"] == UNREADABLE
    save_inventory(folder, first)
    digests(second, ["b"], workers=1)
    save_inventory(folder, second)
    assert loaded().known("a") == found["a"], "a stage that saves keeps what another has read"
    assert loaded().known("b") is not None
    (tmp_path / "root/inventory.json").write_bytes(b"nonsense")
    assert loaded().known("a") is None
