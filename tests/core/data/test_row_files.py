"""Rows in files: places, maps, torn and damaged parts, a disk that fails."""

import errno
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

from trajpilot_core.data.row_files import FieldRows, allocated_bytes, mapped, read_part, write_part
from trajpilot_core.errors import StoreError, StoreIOError

TYPES = {"half": torch.float16, "float": torch.float32, "long": torch.int64, "bool": torch.bool}


def values(name: str, n: int, seed: int) -> Tensor:
    g = torch.Generator().manual_seed(seed)
    return torch.randint(0, 2 if name == "bool" else 100, (n, 3, 2), generator=g).to(TYPES[name])


def part(number: int, n: int = 4) -> list[FieldRows]:
    """The part `number` of two parts of n rows each, in fields of all types."""
    return [FieldRows(f"deep/{name}", values(name, n, number), number * n, 2 * n) for name in TYPES]


def written(folder: Path) -> None:
    for number in (1, 0):
        write_part(folder, f"p{number}", f"key{number}", part(number))


def test_rows_are_read_where_they_were_written(tmp_path: Path) -> None:
    written(tmp_path)
    for number in (0, 1):
        places = read_part(tmp_path, f"p{number}", f"key{number}")
        for place, name in zip(places, TYPES, strict=True):
            whole = mapped(tmp_path, place)
            assert whole.dtype == TYPES[name]
            assert torch.equal(whole, torch.cat([values(name, 4, 0), values(name, 4, 1)]))
    assert read_part(tmp_path, "p0", "key1") is None, "of something else"
    assert read_part(tmp_path, "p2", "key2") is None, "unfinished"
    assert read_part(tmp_path / "absent", "p0", "key0") is None


def test_a_field_without_width_and_a_single_number_are_kept(tmp_path: Path) -> None:
    rows = [FieldRows("none", torch.empty(3, 0), 0, 3), FieldRows("one", torch.arange(3), 0, 3)]
    none, one = write_part(tmp_path, "p", "key", rows)
    assert read_part(tmp_path, "p", "key") == (none, one)
    assert mapped(tmp_path, none).shape == (3, 0)
    assert mapped(tmp_path, one).tolist() == [0, 1, 2]


def test_every_byte_of_a_part_is_watched_and_none_of_another(tmp_path: Path) -> None:
    for field in TYPES:
        written(tmp_path)
        path = tmp_path / f"deep/{field}.rows"
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
        assert read_part(tmp_path, "p0", "key0") is not None, field
        assert read_part(tmp_path, "p1", "key1") is None, field


def test_a_short_or_absent_file_and_a_damaged_marker_are_seen(tmp_path: Path) -> None:
    written(tmp_path)
    path = tmp_path / "deep/half.rows"
    path.write_bytes(path.read_bytes()[:-1])
    assert (read_part(tmp_path, "p0", "key0") is None, read_part(tmp_path, "p1", "key1") is None) == (False, True)
    path.unlink()
    assert read_part(tmp_path, "p0", "key0") is None
    written(tmp_path)
    (tmp_path / "p0.json").write_text("{", encoding="utf-8")
    assert read_part(tmp_path, "p0", "key0") is None


def test_rows_beyond_the_field_and_unknown_types_are_refused(tmp_path: Path) -> None:
    for values_, total in ((torch.zeros(3), 2), (torch.zeros(3, dtype=torch.int8), 3)):
        with pytest.raises(ValueError, match="which has"):
            write_part(tmp_path, "p", "key", [FieldRows("x", values_, 0, total)])
    (place,) = write_part(tmp_path, "p", "key", [FieldRows("x", torch.zeros(3), 0, 3)])
    (tmp_path / "x.rows").write_bytes(bytes(8))
    with pytest.raises(StoreError, match="8 bytes, not 12"):
        mapped(tmp_path, place)


def test_a_full_disk_is_said_and_leaves_the_parts_of_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_part(tmp_path, "p0", "key0", part(0))

    def full(handle: int, content: memoryview, at: int) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StoreIOError, match=r"half\.rows.*free some space"):
            write_part(tmp_path, "p1", "key1", part(1))
    assert read_part(tmp_path, "p0", "key0") is not None
    assert read_part(tmp_path, "p1", "key1") is None


def test_a_short_write_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda handle, content, at: whole(handle, content[:7], at))
    written(tmp_path)
    assert read_part(tmp_path, "p1", "key1") is not None


def test_holes_need_no_room(tmp_path: Path) -> None:
    assert allocated_bytes(tmp_path / "absent") == 0
    write_part(tmp_path, "p", "key", [FieldRows("x", torch.ones(1, 1 << 20), 0, 64)])
    assert 4 << 20 <= allocated_bytes(tmp_path) < 8 << 20
    assert (tmp_path / "x.rows").stat().st_size == 256 << 20
