"""Settings of a query that would change nothing are refused before anything is read."""

from pathlib import Path

import pytest

from schemas.config import RunOptions
from schemas.predict import PlanQuery
from trajpilot_core.errors import InputError
from trajpilot_core.predict.run import predict


@pytest.mark.parametrize(
    ("idle", "named"),
    [
        ({"camera": "aria01_214-1"}, "--camera"),
        ({"timesync_start": 0}, "--timesync-start"),
        ({"camera": "aria01_214-1", "timesync_start": 3}, "--camera and --timesync-start"),
    ],
)
def test_what_says_how_to_read_a_timesync_file_is_refused_where_none_is_named(
    tmp_path: Path, idle: dict[str, str | int], named: str
) -> None:
    query = PlanQuery.model_validate({"video": "v.mp4", "start": "0-1", "goal": "8-9", **idle})
    with pytest.raises(InputError, match=f"^{named} without --timesync would change nothing; name the timesync file"):
        predict(query, RunOptions(root=str(tmp_path / "nothing")))
    assert not list(tmp_path.iterdir())
