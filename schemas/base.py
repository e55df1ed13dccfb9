"""The base of every record: immutable, without extra fields, and with a fingerprint of its content."""

import functools
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, JsonValue

BOUNDS = {
    "minimum": "at least {:g}",
    "exclusiveMinimum": "above {:g}",
    "maximum": "at most {:g}",
    "exclusiveMaximum": "below {:g}",
    "multipleOf": "a multiple of {:g}",
}
CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _model_title(model: type) -> str:
    """Return the title of a record in forms: its name in words, `RunOptions` as `Run options`."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in model.__name__)
    return words.strip().removesuffix(" config").capitalize()


def _for_forms(schema: dict[str, Any]) -> None:
    """Number the fields, because databases do not keep the order of JSON keys, and write bounds in words.

    Without this, forms show neither the order nor the bounds. A docstring of several lines becomes one line.
    """
    for position, field in enumerate(schema.get("properties", {}).values()):
        field["position"] = position
        if "description" in field:
            field["description"] = " ".join(field["description"].split())
        allowed = bounds(field)
        if allowed and "description" in field:
            field["description"] = f"{field['description']} Allowed: {allowed}."


def bounds(field: dict[str, Any]) -> str:
    """Return the bounds of a number in words, also of one that may be None; empty if there are none."""
    parts = [field, *field.get("anyOf", ())]
    return ", ".join(words.format(part[key]) for part in parts for key, words in BOUNDS.items() if key in part)


class Record(BaseModel):
    """Immutable record that rejects unknown fields."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        field_title_generator=lambda name, info: name,  # in forms as in errors and `--set`
        model_title_generator=_model_title,
        json_schema_extra=_for_forms,
    )

    def replace(self, **changes: object) -> Self:
        """Return a validated copy with `changes` (pydantic's own model_copy does not validate)."""
        return type(self).model_validate({**self.model_dump(), **changes})

    @classmethod
    def completing(cls, base: "Record", **more: object) -> Self:
        """Return a record with the values of `base`, whose fields it has, and with `more`."""
        return cls.model_validate({**base.model_dump(), **more})

    def values(self, *, only_set: bool = False) -> dict[str, Any]:
        """Return the fields, nested records as dictionaries, including those that `content` may omit.

        `only_set` leaves out fields that were not given a value when the record was built.
        """
        names = [name for name in type(self).model_fields if not only_set or name in self.model_fields_set]
        fields = {name: getattr(self, name) for name in names}
        return {k: v.values(only_set=only_set) if isinstance(v, Record) else v for k, v in fields.items()}

    def content(self) -> dict[str, JsonValue]:
        """Return the record as JSON values: the input of its digest, and what is written to disk."""
        return self.model_dump(mode="json")

    def digest(self) -> str:
        """Return the sha256 of the canonical JSON of the record's content."""
        return fingerprint(self.content())


def canonical_json(value: JsonValue) -> str:
    """Serialise `value` with sorted keys and no spaces, so that equal values give equal text."""
    return CANONICAL.encode(value)


def canonical_object(texts: Mapping[str, str]) -> str:
    """Return the canonical JSON of an object from that of its values, so that shared values are serialised once."""
    return f"{{{','.join(f'{_quoted(key)}:{texts[key]}' for key in sorted(texts))}}}"


_quoted = functools.lru_cache(maxsize=64)(canonical_json)
"""Return a key as canonical JSON; cached, as thousands of objects share a few keys."""


def fingerprint(value: JsonValue) -> str:
    """Return the sha256 (64 hex digits) of the canonical JSON of `value`."""
    return fingerprint_of_text(canonical_json(value))


def fingerprint_of_text(canonical: str) -> str:
    """Return the sha256 (64 hex digits) of a value from its canonical JSON."""
    return hashlib.sha256(canonical.encode()).hexdigest()
