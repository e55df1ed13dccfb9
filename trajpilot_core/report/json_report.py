"""The report as JSON: the same numbers as the page, in full precision, for programs."""

import json
import math
from collections.abc import Sequence

from pydantic import JsonValue

from schemas.base import Record
from trajpilot_core.report.tables.groups import GroupedTable
from trajpilot_core.report.tables.results import ResultCell

FORMAT = 1
"""Version of the layout of report.json."""


def finite(value: JsonValue) -> JsonValue:
    """Replace infinite numbers in nested values by null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(inner) for key, inner in value.items()}
    return [finite(inner) for inner in value] if isinstance(value, list) else value


def records(rows: Sequence[Record]) -> list[JsonValue]:
    """Return records as JSON values."""
    return [finite(row.model_dump(mode="json")) for row in rows]


def table_json(table: GroupedTable[ResultCell]) -> JsonValue:
    """Return a printed table: every cell with its key, its text and its number."""
    return {
        "id": table.id,
        "title": table.title,
        "cells": [
            {
                "key": cell.key,
                "text": cell.text,
                "interval": cell.interval,
                "best": cell.is_best,
                "value": cell.metric.value,
                "low": finite(cell.metric.low),
                "high": finite(cell.metric.high),
                "n_takes": cell.metric.n_takes,
                "n_windows": cell.metric.n_windows,
            }
            for cell in table.cells()
        ],
    }


def dump(value: JsonValue) -> bytes:
    """Serialise with sorted keys, so that equal reports have equal bytes."""
    return (json.dumps(value, sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode()


def script_json(value: JsonValue) -> str:
    """Serialise for a <script type="application/json"> block: no character of it can end the block."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
