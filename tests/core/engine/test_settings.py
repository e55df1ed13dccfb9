"""Every setting is listed with its default, what is allowed and what a change makes stale, by what stages read."""

import pytest
from pydantic import Field

from deployments.cli.options import change
from deployments.recipes import RECIPES
from schemas.base import Record, fingerprint
from schemas.config import PipelineConfig, TextConfig
from trajpilot_core.engine.key import rejects_entry, upstream
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


def test_what_follows_from_other_settings_is_no_setting() -> None:
    derived = {"evaluation.further_entries", "report.corpus", "vlm.seeds", "outcome.predictor.width"}
    assert not {*derived, "pose_sources.seed"} & set(by_path())
    with pytest.raises(InputError, match="further"):
        change(PipelineConfig(), ['evaluation.further_entries=["planner_models"]'])


def test_what_differs_from_the_defaults_is_marked_and_what_is_allowed_is_said_in_words() -> None:
    assert [one.path for one in by_path().values() if one.is_changed] == []
    found = by_path(change(PipelineConfig(), ["scorer.candidates=32"]))
    assert [one.path for one in found.values() if one.is_changed] == ["scorer.candidates"]
    wanted = {
        "ingest.video": "downscaled_448 | full | none",
        "ingest.drop_unsure": "true | false",
        "ingest.interval_cap_s": "number or null, above 0",
        "ingest.dev_share": "number, above 0, below 0.5",
        "alignment.seeds": "list of whole number",
        "features.size_px": "whole number, at least 32, a multiple of 16",
    }
    assert {path: found[path].allowed for path in wanted} == wanted


def test_a_stage_waits_for_exactly_those_whose_entries_it_reads() -> None:
    found = upstream(STAGES, list(STAGES))
    for name, stage in STAGES.items():
        written = {other: {*s.writes, rejects_entry(other)} for other, s in STAGES.items()}
        assert set(found[name]) == {other for other in STAGES if written[other] & set(stage.reads)}, name
    assert found["trajectories"] == found["features"] == found["text_bank"] == ("ingest",)
    names = list(STAGES)
    assert all(names.index(before) < names.index(name) for name in names for before in found[name]), "declared order"
    assert STAGES["text_bank"].on_gpu(PipelineConfig().text_bank)
    assert not STAGES["text_bank"].on_gpu(TextConfig(encoder="bag_of_words")), "words are hashed without a model"
    asked = {"features": (), "scorer": ("features",)}
    assert upstream(STAGES, list(asked)) == asked, "what a run does not ask for is not waited for"


def test_a_group_makes_its_stage_stale_and_all_that_read_from_it_and_no_other() -> None:
    assert [one.path for one in by_path().values() if not one.stages] == []
    assert by_path()["outcome.train.lr"].stages == ("outcome",)
    assert (made_stale("report", STAGES), made_stale("outcome", STAGES)) == (("report",), ())
    after = upstream(STAGES, list(STAGES))
    for group in PipelineConfig.model_fields:
        stale = set(made_stale(group, STAGES))
        own = {name for name, stage in STAGES.items() if stage.section == group}
        assert own <= stale
        for name in STAGES:
            assert (name in stale) == (name in own or bool(stale & set(after[name]))), (group, name)


class Before(Record):
    rate: float = 0.5


class Grown(Record):
    rate: float = 0.5
    kind: str | None = None


def test_settings_at_their_defaults_are_part_of_the_content_so_a_new_one_makes_another_version() -> None:
    assert Grown().content() == {"rate": 0.5, "kind": None}
    assert Grown().digest() == fingerprint(Grown().content()) not in {Before().digest(), Grown(kind="x").digest()}
    assert PipelineConfig.model_validate(PipelineConfig().content()) == PipelineConfig()
    assert unseal(Grown, seal(Grown(kind="x")), "made") == Grown(kind="x")
    with pytest.raises(VersionError):
        unseal(Grown, seal(Before()), "made")


class Described(Record):
    """A record whose fields are described below them."""

    rate: float = Field(0.5, gt=0)
    """How many a second,
    counted over
      all lines."""
    inner: Before = Before()


def test_a_form_shows_a_description_of_several_lines_as_one_with_its_bounds() -> None:
    shown = Described.model_json_schema()["properties"]
    assert shown["rate"]["description"] == "How many a second, counted over all lines. Allowed: above 0."
    assert "description" not in shown["inner"]
    properties = [form.get("properties", {}) for form in PipelineConfig.model_json_schema()["$defs"].values()]
    assert not [name for form in properties for name, field in form.items() if "\n" in field.get("description", "")]
