"""The base of every record: frozen, closed, and with a fingerprint of its content."""

import hashlib
import json
from typing import Self

from pydantic import BaseModel, ConfigDict, JsonValue


class Record(BaseModel):
    """Immutable record that refuses fields it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    def replace(self, **changes: object) -> Self:
        """Return a validated copy with `changes` (pydantic's own model_copy does not validate)."""
        return type(self).model_validate({**self.model_dump(), **changes})

    def digest(self) -> str:
        """Return the sha256 of the record's canonical JSON."""
        return fingerprint(self.model_dump(mode="json"))


def canonical_json(value: JsonValue) -> str:
    """Serialise `value` with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: JsonValue) -> str:
    """Return the sha256 (64 hex digits) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
