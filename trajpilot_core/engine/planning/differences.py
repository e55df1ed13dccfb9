"""Differences between two outputs of one stage: settings by name, and takes."""

import re
from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import JsonValue

from schemas.artifacts import Manifest
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.reading import find_manifest, read_entry_table

BETWEEN = "\x1f"
"""Joins the columns of a row into one text (the ASCII unit separator, which no label contains)."""
TAKE = "take_id"
DIGEST = re.compile(r"'[0-9a-f]{64}'")
LONGEST = 60
"""Characters of a value that are shown."""


def flat(config: Mapping[str, JsonValue], front: str = "") -> dict[str, JsonValue]:
    """Return a nested configuration as dotted name -> value, `train.lr` for example; lists stay whole."""
    found: dict[str, JsonValue] = {}
    for name, value in config.items():
        if isinstance(value, dict) and value:
            found |= flat(value, f"{front}{name}.")
        else:
            found[f"{front}{name}"] = value
    return found


def changed_settings(before: Mapping[str, JsonValue], now: Mapping[str, JsonValue]) -> dict[str, tuple[str, str]]:
    """Return dotted name -> (value before, value now) of every setting that differs; `-` where there is none."""
    old, new = flat(before), flat(now)
    names = sorted(name for name in {*old, *new} if name not in old or name not in new or old[name] != new[name])
    return {name: (_shown(old, name), _shown(new, name)) for name in names}


def _shown(config: Mapping[str, JsonValue], name: str) -> str:
    text = repr(config[name]) if name in config else "-"
    if DIGEST.fullmatch(text):
        return text[1:13]
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def takes_behind(folder: Folder, now: Manifest, entry: str, before: str) -> list[str] | None:
    """Return the takes in which an entry differs from an earlier state, sorted; None where that is unknown.

    Args:
        folder: the root.
        now: the current output.
        entry: one of its entries.
        before: fingerprint of the entry in the earlier state.
    """
    try:
        old = find_manifest(folder, now.stage, entry, before)
        if old is None:
            return None
        if any(name.startswith("shard:") for name in now.inputs):
            return differing(content_by_take(old, entry), content_by_take(now, entry))
        tables = [read_entry_table(folder, manifest, entry) for manifest in (old, now)]
    except StoreError:
        return None
    return None if any(TAKE not in table.column_names for table in tables) else takes_of_rows(*tables)


def content_by_take(manifest: Manifest, entry: str) -> dict[str, str]:
    """Return take -> digest of its shard; the files of a sharded entry are in folders named by shard keys."""
    content = {file.name.split("/")[1]: file.sha256 for file in manifest.entries[entry].files}
    shards = {name.removeprefix("shard:"): key for name, key in manifest.inputs.items() if name.startswith("shard:")}
    return {take: content.get(key, "") for take, key in shards.items()}


def differing(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """Return the names whose value differs, or that only one side has, sorted."""
    return sorted(name for name in {*old, *new} if old.get(name) != new.get(name))


def takes_of_rows(old: pa.Table, new: pa.Table) -> list[str]:
    """Return the takes with a row that only one of two tables has; both have the column `take_id`."""
    if old.column_names != new.column_names:
        return sorted({*old[TAKE].to_pylist(), *new[TAKE].to_pylist()})
    texts = [_texts(table) for table in (old, new)]
    found: set[str] = set()
    for table, own, other in ((old, *texts), (new, *texts[::-1])):
        alone = pc.invert(pc.is_in(own, value_set=other))
        found.update(pc.unique(table[TAKE].filter(alone)).to_pylist())
    return sorted(found)


def _texts(table: pa.Table) -> pa.Array:
    columns = [_text(table[name].combine_chunks()) for name in table.column_names]
    return pc.binary_join_element_wise(*columns, BETWEEN, null_handling="replace", null_replacement="\x00")


def _text(column: pa.Array) -> pa.Array:
    if pa.types.is_list(column.type):
        return pc.binary_join(column.cast(pa.list_(pa.string())), BETWEEN)
    return column.cast(pa.string())
