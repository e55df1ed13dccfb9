"""Real trainings shared out over four process workers, one of which is lost: the bytes of one process come out."""

from pathlib import Path

import pytest
from once import Worlds
from pool_fixture import (
    artifact_bytes,
    copied,
    deploy_groups,
    killed_first,
    online,
    options,
    shared_out,
    small,
    table_of,
    wait_for,
    worker,
)

from schemas.world import soak_world

pytestmark = [pytest.mark.campaign, pytest.mark.timeout(900)]
BEFORE = ("ingest", "trajectories", "features", "text_bank", "alignment")
NAMES = ("one", "two", "three", "four")


def test_four_workers_make_the_same_models_and_a_killed_training_is_done_again(
    prefect_server: str, worlds: Worlds, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from contextlib import ExitStack

    from prefect.client.orchestration import get_client

    from trajpilot_core.engine.execution.execute import execute
    from trajpilot_core.stages import STAGES

    config = small().replace(alignment=small().alignment.replace(folds=2))
    data, before, single = tmp_path / "data", tmp_path / "before", tmp_path / "single"
    worlds.copy(soak_world(), data)
    for stage in BEFORE:
        execute(STAGES[stage], config, options(before, data), STAGES)
    execute(STAGES["predictor"], config, options(copied(before, single), data), STAGES)
    monkeypatch.setenv("PREFECT_API_URL", prefect_server)
    run = options(copied(before, tmp_path / "root"), data, group_video_s=1.0)
    with ExitStack() as workers, get_client(sync_client=True) as client:
        deploy_groups(client)
        marks = [workers.enter_context(worker(prefect_server, "trajpilot-gpu", tmp_path, name)) for name in NAMES]
        wait_for(lambda: online(client, "trajpilot-gpu") >= set(NAMES))
        with killed_first(marks[0], monkeypatch):
            rows = table_of(shared_out(run, "predictor", config), "predictor")
    assert [row["state"] for row in rows] == ["done"] * 7
    assert [row["attempts"] for row in rows].count(2) == 1
    assert {row["where"] for row in rows} > {"this run"}
    assert artifact_bytes(tmp_path / "root") == artifact_bytes(single)
