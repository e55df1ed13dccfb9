"""A record's content is its JSON in full: every setting counts in its digest, and nothing of it is left unsaid."""

import pytest
from pydantic import Field

from schemas.base import Record, fingerprint
from schemas.config import PipelineConfig
from trajpilot_core.errors import VersionError
from trajpilot_core.store.manifest import seal, unseal


class Inner(Record):
    width: int = 3


class InnerGrown(Record):
    width: int = 3
    heads: int = Field(2, ge=1, description="A further setting.")


class Before(Record):
    rate: float = 0.5
    inner: Inner = Inner()


class Grown(Record):
    rate: float = 0.5
    inner: InnerGrown = InnerGrown()
    kind: str | None = None


def test_settings_at_their_defaults_are_part_of_the_content() -> None:
    assert Grown().content() == {"rate": 0.5, "inner": {"width": 3, "heads": 2}, "kind": None}
    assert Grown().digest() == fingerprint(Grown().content()) != Before().digest()
    assert PipelineConfig.model_validate(PipelineConfig().content()) == PipelineConfig()


def test_a_changed_setting_changes_the_digest_wherever_it_stands_and_is_read_back() -> None:
    inner = InnerGrown(heads=4)
    records = (Grown(), Grown(kind="x"), Grown(inner=inner), Grown(inner=inner, kind="x"))
    assert len({record.digest() for record in records}) == 4
    assert tuple(unseal(Grown, seal(record), "made") for record in records) == records


def test_what_was_sealed_without_a_setting_is_of_another_version() -> None:
    with pytest.raises(VersionError):
        unseal(Grown, seal(Before()), "made")


class Described(Record):
    """A record whose fields are described below them."""

    rate: float = Field(0.5, gt=0)
    """How many a second,
    counted over
      all lines."""
    inner: Inner = Inner()


def test_a_form_shows_a_description_of_several_lines_as_one_with_its_bounds() -> None:
    shown = Described.model_json_schema()["properties"]
    assert shown["rate"]["description"] == "How many a second, counted over all lines. Allowed: above 0."
    assert "description" not in shown["inner"]
    properties = [form.get("properties", {}) for form in PipelineConfig.model_json_schema()["$defs"].values()]
    assert not [name for form in properties for name, field in form.items() if "\n" in field.get("description", "")]
