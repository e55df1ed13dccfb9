"""An encoder is one file and a line of the list: toys run through their stages, and doctor knows what they need."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, get_args, get_origin

import numpy as np
import pytest
import toy_text_encoder
import toy_video_encoder
from one_more_name import one_more_name
from planning_world import WorldSize, planning_world, run_stage
from test_features import features, plain, root, vectors, whole

from schemas.base import Record
from schemas.config import FeatureConfig, PipelineConfig, TextConfig
from trajpilot_core.doctor.weights import check_text_weights, check_weights
from trajpilot_core.encoders.text.registry import TEXT_ENCODERS, encoder_files
from trajpilot_core.encoders.video.registry import VIDEO_ENCODERS
from trajpilot_core.stages import text_bank

__all__ = ["root"]


@pytest.fixture(autouse=True)
def toys(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The toys in the lists, and their names among those that the settings take."""
    monkeypatch.setitem(VIDEO_ENCODERS, "mean_colour", toy_video_encoder.SPEC)
    monkeypatch.setitem(TEXT_ENCODERS, "letters", toy_text_encoder.SPEC)
    with one_more_name("mean_colour", (FeatureConfig, "model")), one_more_name("letters", (TextConfig, "encoder")):
        yield


def looking() -> FeatureConfig:
    return FeatureConfig(model="mean_colour", size_px=64, n_frames=4, batch=4)  # type: ignore[arg-type]


def letters(folder: Path | None) -> TextConfig:
    return TextConfig(encoder="letters", model=folder and str(folder))  # type: ignore[arg-type]


def test_the_stage_features_runs_with_a_video_encoder_that_is_one_file(root: Path, tmp_path: Path) -> None:
    table = whole(features(root, plain(), tmp_path, looking()))
    assert set(table["encoder"].to_pylist()) == {"mean_colour:v1"}
    assert vectors(table).shape == (15, 3)
    colours = np.repeat([(220, 40, 40), (40, 220, 40), (40, 40, 220)], 5, axis=0) / 255
    takes = [take.removeprefix("t:") for take in table["take_id"].to_pylist()]
    assert takes == sorted(takes)
    assert (vectors(table).argmax(axis=1) == colours.argmax(axis=1)).all()


def test_the_stage_text_bank_runs_with_a_text_encoder_that_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "letters.json").write_text('"abcs"')
    memory = planning_world(WorldSize(tasks=2, steps=3, alternatives=2))
    run_stage(text_bank.STAGE, letters(tmp_path), memory, tmp_path)
    bank = memory.tables["text_bank"].to_pylist()
    assert len(bank) == 12
    assert all(row["encoder"].startswith("letters:") and len(row["vector"]) == 4 for row in bank)
    (source,) = text_bank.sources(memory, letters(tmp_path), "")  # type: ignore[arg-type]
    assert source.files == encoder_files(letters(tmp_path)) == (str(tmp_path / "letters.json"),)


def test_doctor_asks_for_the_weights_that_an_encoder_needs_and_for_no_others(tmp_path: Path) -> None:
    base = PipelineConfig()
    found = check_weights(base.replace(features=looking(), text_bank=letters(None)))
    assert [(row.what, row.expected, row.verdict) for row in found] == [("weights of text_bank", "letters", "bad")]
    assert check_text_weights(letters(tmp_path)).verdict == "bad"


def check_names(registry: Mapping[str, object], record: type[Record], field: str) -> None:
    """The guard: a Literal of the settings and the list of what it names hold the same words."""
    parts = [inner for part in get_args(record.model_fields[field].annotation) for inner in (part, *get_args(part))]
    names = sorted(name for part in parts if get_origin(part) is Literal for name in get_args(part))
    assert sorted(registry) == names, f"{record.__name__}.{field} names {names}, the list holds {sorted(registry)}"


def test_the_lists_hold_what_the_settings_name() -> None:
    check_names(VIDEO_ENCODERS, FeatureConfig, "model")
    check_names(TEXT_ENCODERS, TextConfig, "encoder")


def test_a_word_that_only_the_list_or_only_the_settings_have_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(TEXT_ENCODERS, "unnamed", toy_text_encoder.SPEC)
        with pytest.raises(AssertionError, match=r"the list holds .*unnamed"):
            check_names(TEXT_ENCODERS, TextConfig, "encoder")
    monkeypatch.delitem(VIDEO_ENCODERS, "tiny")
    with pytest.raises(AssertionError, match=r"FeatureConfig\.model names .*tiny"):
        check_names(VIDEO_ENCODERS, FeatureConfig, "model")
