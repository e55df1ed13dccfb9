"""The inventory: a file is read once and trusted while a look at it shows the same; paths stay below the data root."""

import hashlib
from pathlib import Path

import pytest

from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.inventory import ABSENT, UNREADABLE, digests, load_inventory, save_inventory
from trajpilot_core.store.locations import check_source_path


def test_two_stages_that_save_the_inventory_keep_what_the_other_has_read(tmp_path: Path) -> None:
    folder, data = open_folder(str(tmp_path / "root")), tmp_path / "data"
    data.mkdir()
    for name in "ab":
        (data / name).write_text(name)
    first, second = (load_inventory(folder, str(data), ("file",)) for _ in range(2))
    for inventory, name in ((first, "a"), (second, "b")):
        digests(inventory, [name], workers=1, rehash=False)
        save_inventory(folder, inventory)
    both = load_inventory(folder, str(data), ("file",))
    assert [both.known(name) is not None for name in "ab"] == [True, True]


def test_the_inventory_reads_a_file_once_and_forgets_when_it_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "data/sub").mkdir(parents=True)
    (tmp_path / "data/a").write_text("a")
    folder = open_folder(str(tmp_path / "root"))

    def known() -> dict[str, str]:
        paths = ["a", "gone", "sub", "../a", "a\0", str(tmp_path / "data/a")]
        store = load_inventory(folder, str(tmp_path / "data"), ("file",))
        found = digests(store, paths, workers=2, rehash=False)
        save_inventory(folder, store)
        return found

    first = known()
    assert first["a"] == hashlib.sha256(b"a").hexdigest() == first[str(tmp_path / "data/a")]
    assert first["gone"] == first["../a"] == first["a\0"] == ABSENT
    assert first["sub"] == UNREADABLE
    assert load_inventory(folder, str(tmp_path / "data"), ("file",)).known("a") == first["a"]
    (tmp_path / "root/inventory.parquet").write_bytes(b"nonsense")
    assert load_inventory(folder, str(tmp_path / "data"), ("file",)).known("a") is None
    assert known() == first


def test_paths_of_inputs_stay_below_the_data_root() -> None:
    for path in ("", "a\0", "../x", "a/../x", "a\\..\\x", "s3://b/k", "cached::x", "http://x"):
        with pytest.raises(StoreError):
            check_source_path(path)
