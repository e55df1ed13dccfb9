"""What counts as damage when a stage decides whether its input is too bad."""

import pytest

from schemas.artifacts import Manifest
from trajpilot_core.errors import InputError
from trajpilot_core.stages.outcome import check_ratio


def manifest(n_in: int, rejected: dict[str, int]) -> Manifest:
    n_out = n_in - sum(rejected.values())
    return Manifest(
        format=1, stage="ingest", version=1, key="k", config={}, inputs={}, entries={}, n_in=n_in, n_out=n_out,
        rejected=rejected, libraries={},
    )  # fmt: skip


def test_what_a_filter_leaves_out_is_no_damage() -> None:
    check_ratio(manifest(100, {"ANNOTATOR_NOT_CHOSEN": 60, "UNSURE": 20, "VIDEO_MISSING": 2}), 0.1)


def test_damage_is_measured_against_what_the_filters_leave() -> None:
    with pytest.raises(InputError, match=r"3 of 20 rows \(15%\).*VIDEO_MISSING 3"):
        check_ratio(manifest(100, {"ANNOTATOR_NOT_CHOSEN": 80, "VIDEO_MISSING": 3}), 0.1)
