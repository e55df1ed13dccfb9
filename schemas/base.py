"""The base of every record: frozen, closed, and with a fingerprint of its content."""

import hashlib
import json
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.fields import ComputedFieldInfo, FieldInfo


def field_title(name: str, info: FieldInfo | ComputedFieldInfo) -> str:
    """Title of a field in forms: the name that errors and `--set` use."""
    return name


def model_title(model: type) -> str:
    """Title of a record in forms: its name in words, `RunOptions` as `Run options`."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in model.__name__)
    return words.strip().removesuffix(" config").capitalize()


def in_order(schema: dict[str, Any]) -> None:
    """Number the fields, so that a form shows them as declared: databases do not keep the order of JSON keys."""
    for position, field in enumerate(schema.get("properties", {}).values()):
        field["position"] = position


class Record(BaseModel):
    """Immutable record that refuses fields it does not know."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        field_title_generator=field_title,
        model_title_generator=model_title,
        json_schema_extra=in_order,
    )

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
