"""A setting that comes later changes nothing of what was keyed before it."""

from typing import Annotated

import pytest
from pydantic import Field

from schemas.base import LATER, Record
from schemas.config import PipelineConfig
from trajpilot_core.errors import VersionError
from trajpilot_core.store.manifest import seal, unseal


class Inner(Record):
    width: int = 3


class InnerGrown(Record):
    width: int = 3
    heads: Annotated[int, LATER] = Field(2, ge=1, description="Came later.")


class Before(Record):
    rate: float = 0.5
    inner: Inner = Inner()


class Grown(Record):
    rate: float = 0.5
    inner: InnerGrown = InnerGrown()
    kind: Annotated[str | None, LATER] = None


class Unmarked(Record):
    rate: float = 0.5
    inner: Inner = Inner()
    kind: str | None = None


def test_a_later_setting_at_its_default_leaves_the_digest_as_it_was() -> None:
    assert Grown().digest() == Before().digest()
    assert Grown().content() == {"rate": 0.5, "inner": {"width": 3}}
    assert Unmarked().digest() != Before().digest(), "without the mark every output would be computed again"


def test_a_later_setting_that_was_changed_changes_the_digest_wherever_it_stands() -> None:
    digests = {
        Grown().digest(),
        Grown(kind="x").digest(),
        Grown(inner=InnerGrown(heads=4)).digest(),
        Grown(inner=InnerGrown(heads=4), kind="x").digest(),
    }
    assert len(digests) == 4


def test_later_settings_are_stated_in_full_where_a_run_is_passed_on() -> None:
    assert Grown().model_dump() == {"rate": 0.5, "inner": {"width": 3, "heads": 2}, "kind": None}
    assert Grown.model_validate(Before().model_dump()) == Grown()
    assert PipelineConfig.model_validate(PipelineConfig().content()) == PipelineConfig()


@pytest.mark.parametrize("record", [Grown(), Grown(kind="x"), Grown(inner=InnerGrown(heads=4))])
def test_a_sealed_record_with_later_settings_is_read_back(record: Grown) -> None:
    assert unseal(Grown, seal(record), "made") == record


def test_what_was_sealed_before_a_setting_came_is_still_read() -> None:
    assert unseal(Grown, seal(Before()), "made") == Grown()
    with pytest.raises(VersionError):
        unseal(Unmarked, seal(Before()), "made")
