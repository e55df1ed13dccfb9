"""A stage and its settings: one field of PipelineConfig, whose type its functions take."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import get_args

import pytest

from schemas.base import Record
from schemas.config import FeatureConfig, PipelineConfig, ReportConfig, TextConfig
from schemas.training import TrainConfig
from trajpilot_core.engine.stage import AnyStage, Inputs, Source, Work
from trajpilot_core.errors import StoreError
from trajpilot_core.stages import EVERY_STAGE, latent, text_bank
from trajpilot_core.stages.trained import TrainedStage


def parameter(function: Callable[..., object], position: int) -> object:
    return list(inspect.signature(function).parameters.values())[position].annotation


def taken_settings(stage: AnyStage) -> Iterator[tuple[str, object]]:
    """Yield (function of a stage, type of the settings that it takes)."""
    trained = next(iter(stage.run.args), None) if isinstance(stage.run, partial) else None
    if isinstance(trained, TrainedStage):
        yield "trainings", parameter(trained.trainings, 1)
        yield "facts", parameter(trained.facts, 1)
        yield "fits", get_args(parameter(trained.fits, 0))[0]
        if trained.conclude is not None:
            yield "conclude", get_args(parameter(trained.conclude, 0))[0]
        return
    yield "run", get_args(parameter(stage.run, 0))[0]
    if stage.sources is not None:
        yield "sources", parameter(stage.sources, 1)
    if callable(stage.uses_gpu):
        yield "uses_gpu", parameter(stage.uses_gpu, 0)


def disagreements(stage: AnyStage) -> list[str]:
    given = stage.config if stage.completed is None else inspect.signature(stage.completed).return_annotation
    found = [] if issubclass(given, stage.config) else ["completed"]
    return found + [
        name for name, taken in taken_settings(stage) if not (isinstance(taken, type) and issubclass(given, taken))
    ]


def test_the_functions_of_a_stage_take_the_settings_that_it_names() -> None:
    for name, stage in EVERY_STAGE.items():
        assert disagreements(stage) == [], name
        assert type(getattr(PipelineConfig(), stage.section)) is stage.config, name


def test_a_stage_whose_functions_take_other_settings_is_seen() -> None:
    def run(work: Work[FeatureConfig]) -> None: ...
    def sources(inputs: Inputs, config: ReportConfig, data_root: str) -> list[Source]: ...
    def on_gpu(config: TextConfig) -> bool: ...

    assert disagreements(replace(text_bank.STAGE, run=run)) == ["run"]
    assert disagreements(replace(text_bank.STAGE, sources=sources, uses_gpu=on_gpu)) == ["sources"]
    assert disagreements(replace(latent.STAGE, config=FeatureConfig)) == ["completed"]
    assert disagreements(replace(latent.STAGE, config=FeatureConfig, completed=None)) == ["trainings", "facts", "fits"]


def test_settings_that_are_no_field_of_the_pipeline_are_refused() -> None:
    for record in (TrainConfig, PipelineConfig, Record):
        words = f"stage text_bank names the settings {record.__name__}, but PipelineConfig"
        with pytest.raises(StoreError, match=words):
            replace(text_bank.STAGE, config=record)


def test_a_stage_finds_its_own_settings_in_those_of_the_pipeline() -> None:
    config = PipelineConfig(text_bank=TextConfig(batch=3))
    assert text_bank.STAGE.settings(config) == TextConfig(batch=3)
    assert text_bank.STAGE.section == "text_bank"
