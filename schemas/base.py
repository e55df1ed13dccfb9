"""The base of every record: frozen, closed, and with a fingerprint of its content."""

import hashlib
import json
from typing import Any, Final, Self

from pydantic import BaseModel, ConfigDict, JsonValue
from pydantic.fields import ComputedFieldInfo, FieldInfo


def field_title(name: str, info: FieldInfo | ComputedFieldInfo) -> str:
    """Title of a field in forms: the name that errors and `--set` use."""
    return name


def model_title(model: type) -> str:
    """Title of a record in forms: its name in words, `RunOptions` as `Run options`."""
    words = "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in model.__name__)
    return words.strip().removesuffix(" config").capitalize()


BOUNDS = {
    "minimum": "at least {:g}", "exclusiveMinimum": "above {:g}", "maximum": "at most {:g}",
    "exclusiveMaximum": "below {:g}", "multipleOf": "a multiple of {:g}",
}  # fmt: skip


def for_forms(schema: dict[str, Any]) -> None:
    """Number the fields, because databases do not keep the order of JSON keys, and say bounds in words.

    A form shows neither the order nor the bounds of a schema by itself.
    """
    for position, field in enumerate(schema.get("properties", {}).values()):
        field["position"] = position
        allowed = bounds(field)
        if allowed and "description" in field:
            field["description"] = f"{field['description']} Allowed: {allowed}."


def bounds(field: dict[str, Any]) -> str:
    """Return the bounds of a number in words, empty where it has none; those of `number or nothing` too."""
    found = [field, *field.get("anyOf", ())]
    return ", ".join(words.format(part[key]) for part in found for key, words in BOUNDS.items() if key in part)


class _Later:
    """Type of the mark LATER."""


LATER: Final = _Later()
"""Mark of a setting that a record gained after outputs were keyed with it: `Annotated[int, LATER] = Field(...)`.

While such a setting holds its default, it is no part of the record's content, so what was computed before it came
is found under the same key. Its default must mean what was done before.
"""


class Record(BaseModel):
    """Immutable record that refuses fields it does not know."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        field_title_generator=field_title,
        model_title_generator=model_title,
        json_schema_extra=for_forms,
    )

    def replace(self, **changes: object) -> Self:
        """Return a validated copy with `changes` (pydantic's own model_copy does not validate)."""
        return type(self).model_validate({**self.model_dump(), **changes})

    def content(self) -> dict[str, JsonValue]:
        """Return the JSON values without settings marked LATER that hold their default, in records inside too."""
        values: dict[str, JsonValue] = self.model_dump(mode="json")
        for name, info in type(self).model_fields.items():
            value = getattr(self, name)
            if LATER in info.metadata and value == info.get_default(call_default_factory=True):
                del values[name]
            elif isinstance(value, Record):
                values[name] = value.content()
        return values

    def digest(self) -> str:
        """Return the sha256 of the canonical JSON of the record's content."""
        return fingerprint(self.content())


def canonical_json(value: JsonValue) -> str:
    """Serialise `value` with sorted keys and no spaces, so that equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def fingerprint(value: JsonValue) -> str:
    """Return the sha256 (64 hex digits) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
