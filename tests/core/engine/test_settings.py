"""Every setting is listed with its default, what is allowed and what a change makes stale."""

import pytest
from pydantic import Field

from deployments.cli.options import change
from deployments.recipes import RECIPES
from schemas.base import Record, fingerprint
from schemas.config import PipelineConfig
from trajpilot_core.engine.order import upstream
from trajpilot_core.engine.planning.staleness import flat
from trajpilot_core.engine.settings import ListedSetting, made_stale, settings_of
from trajpilot_core.errors import InputError, VersionError
from trajpilot_core.stages import EVERY_STAGE, STAGES
from trajpilot_core.store.manifest import seal, unseal


def by_path(config: PipelineConfig | None = None) -> dict[str, ListedSetting]:
    return {one.path: one for one in settings_of(config or PipelineConfig(), EVERY_STAGE)}


def test_every_setting_of_a_recipe_stands_in_the_list_with_a_line_about_it() -> None:
    for name, build in RECIPES.items():
        found = by_path(build())
        stated = flat(build().content())  # a digest leaves some settings out at their defaults
        assert {path: one.value for path, one in found.items() if path in stated} == stated, name
        assert [path for path, one in found.items() if path not in stated and one.is_changed] == [], name
        assert [one.path for one in found.values() if not one.about or not one.allowed] == [], name


def test_every_group_makes_a_stage_stale_and_those_of_planning_alone_would_not_show_it() -> None:
    assert [one.path for one in by_path().values() if not one.stages] == []
    assert by_path()["outcome.train.lr"].stages == ("outcome",)
    assert made_stale("outcome", STAGES) == ()


def test_what_follows_from_other_settings_is_no_setting() -> None:
    derived = {"evaluation.further_entries", "report.corpus", "vlm.seeds", "outcome.predictor.width"}
    assert not {*derived, "pose_sources.seed"} & set(by_path())
    with pytest.raises(InputError, match="further"):
        change(PipelineConfig(), ['evaluation.further_entries=["planner_models"]'])


def test_the_main_experiment_differs_in_nothing_from_the_defaults_and_another_in_what_it_states() -> None:
    assert [one.path for one in by_path().values() if one.is_changed] == []
    found = by_path(change(PipelineConfig(), ["scorer.candidates=32"]))
    assert [one.path for one in found.values() if one.is_changed] == ["scorer.candidates"]


def test_what_is_allowed_is_said_in_words() -> None:
    wanted = {
        "ingest.video": "downscaled_448 | full | none",
        "ingest.drop_unsure": "true | false",
        "ingest.interval_cap_s": "number or null, above 0, s",
        "ingest.dev_share": "number, above 0, below 0.5",
        "alignment.seeds": "list of whole number",
        "features.size_px": "whole number, at least 32, a multiple of 16, px",
    }
    found = by_path()
    assert {path: found[path].allowed for path in wanted} == wanted


def test_a_group_makes_its_stage_stale_and_all_that_read_from_it_and_no_other() -> None:
    assert made_stale("report", STAGES) == ("report",)
    after = upstream(STAGES, list(STAGES))
    for group in PipelineConfig.model_fields:
        stale = set(made_stale(group, STAGES))
        own = {name for name, stage in STAGES.items() if stage.section == group}
        assert own <= stale
        for name in STAGES:
            assert (name in stale) == (name in own or bool(stale & set(after[name]))), (group, name)


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
