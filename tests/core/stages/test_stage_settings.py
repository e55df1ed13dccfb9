"""A stage and its settings: one field of PipelineConfig, whose type its functions take; lists of names and of pages."""

import inspect
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, get_args, get_origin

import pytest
from checkout import CHECKOUT

from schemas.base import Record
from schemas.config import FeatureConfig, PipelineConfig, TextConfig
from schemas.training import TrainConfig
from trajpilot_core.encoders.text.registry import TEXT_ENCODERS
from trajpilot_core.encoders.video.registry import VIDEO_ENCODERS
from trajpilot_core.engine.stage import AnyStage, Work
from trajpilot_core.errors import StoreError
from trajpilot_core.stages import EVERY_STAGE, latent, text_bank
from trajpilot_core.stages.trained import TrainedStage


def taken_settings(stage: AnyStage) -> Any:
    """Return the type of the settings that a stage works with; that its functions take the same one mypy checks."""
    trained = getattr(stage.run, "__self__", None)  # of a bound method
    function = trained.fits if isinstance(trained, TrainedStage) else stage.run
    (annotation, *_) = (one.annotation for one in inspect.signature(function).parameters.values())
    return get_args(annotation)[0]


def agrees(stage: AnyStage) -> bool:
    given = stage.config if stage.completed is None else inspect.signature(stage.completed).return_annotation
    return issubclass(given, stage.config) and issubclass(given, taken_settings(stage))


def test_the_functions_of_a_stage_take_the_settings_that_it_names_and_one_that_does_not_is_seen() -> None:
    for name, stage in EVERY_STAGE.items():
        assert agrees(stage), name
        assert type(getattr(PipelineConfig(), stage.section)) is stage.config, name

    def run(work: Work[FeatureConfig]) -> None: ...

    assert not agrees(replace(text_bank.STAGE, run=run))
    assert not agrees(replace(latent.STAGE, config=FeatureConfig)), "what completes its settings gives others"
    assert not agrees(replace(latent.STAGE, config=FeatureConfig, completed=None)), "its trainings take others"


def test_settings_that_are_no_field_of_the_pipeline_are_refused() -> None:
    for record in (TrainConfig, PipelineConfig, Record):
        words = f"stage text_bank names the settings {record.__name__}, but PipelineConfig"
        with pytest.raises(StoreError, match=words):
            replace(text_bank.STAGE, config=record)


def check_names(registry: Mapping[str, object], record: type[Record], field: str) -> None:
    """The guard: a Literal of the settings and the list of what it names hold the same words."""
    parts = [inner for part in get_args(record.model_fields[field].annotation) for inner in (part, *get_args(part))]
    names = sorted(name for part in parts if get_origin(part) is Literal for name in get_args(part))
    assert sorted(registry) == names, f"{record.__name__}.{field} names {names}, the list holds {sorted(registry)}"


def test_the_lists_hold_what_the_settings_name_and_a_word_that_only_one_has_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check_names(VIDEO_ENCODERS, FeatureConfig, "model")
    check_names(TEXT_ENCODERS, TextConfig, "encoder")
    with monkeypatch.context() as patched:
        patched.setitem(TEXT_ENCODERS, "unnamed", TEXT_ENCODERS["bag_of_words"])
        with pytest.raises(AssertionError, match=r"the list holds .*unnamed"):
            check_names(TEXT_ENCODERS, TextConfig, "encoder")
    monkeypatch.delitem(VIDEO_ENCODERS, "tiny")
    with pytest.raises(AssertionError, match=r"FeatureConfig\.model names .*tiny"):
        check_names(VIDEO_ENCODERS, FeatureConfig, "model")


STAGES_PAGE = CHECKOUT / "docs" / "stages.md"


def table_rows(text: str) -> list[str]:
    table = text.partition("| stage | reads | writes |")[2].partition("\n\n")[0]
    return re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)


def test_the_table_of_stages_has_every_stage_in_order_and_a_row_that_is_missing_or_elsewhere_is_seen() -> None:
    assert table_rows(STAGES_PAGE.read_text()) == list(EVERY_STAGE)
    for before, after in (
        (r"\| `scorer` .*\n", ""),
        ("`features` \\|", "`feature` |"),
        (r"(\| `planners` .*\n)(\| `latent` .*\n)", r"\2\1"),
    ):
        text, n_changed = re.subn(before, after, STAGES_PAGE.read_text())
        assert n_changed == 1
        assert table_rows(text) != list(EVERY_STAGE)
