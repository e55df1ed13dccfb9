"""The flow of the claims tells of a fault of the program where its world stands, and refuses early what it must."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from schemas.claims import ClaimsConfig, ClaimsRun
from schemas.config import PipelineConfig
from schemas.results import GateRow
from trajpilot_core.errors import InputError
from trajpilot_core.studies.claims.evidence.tables import RUN_FILE, Origin, write_claims_table
from trajpilot_core.studies.claims.worlds import collect
from trajpilot_core.studies.claims.worlds.plan import make

WORLD = make("no_scene", 0, ClaimsConfig())


class Faulty:
    """Stands in for the task: every world ends with a fault that nobody expected."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, *arguments: object) -> SimpleNamespace:
        self.submitted += 1
        fault = ZeroDivisionError(f"division by zero, in {arguments[2].root}/no_scene-s0")  # type: ignore[attr-defined]
        return SimpleNamespace(wait=lambda: None, state=SimpleNamespace(result=lambda raise_on_failure: fault))


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    from flows import claims as flow_module

    task = Faulty()
    monkeypatch.setattr(flow_module, "compute_world", task)
    monkeypatch.setattr(flow_module, "write_pages", lambda docs: [])
    monkeypatch.setattr(collect, "planned", lambda config: (WORLD,))
    return task


def run_flow(tmp_path: Path) -> ClaimsRun:
    from flows.claims import claims_worlds

    config = PipelineConfig()
    run: ClaimsRun = claims_worlds.fn(config, config, str(tmp_path / "runs"), str(tmp_path), "cpu", ("no_scene-s0",))
    return run


def test_a_fault_of_the_program_is_published_with_its_world_and_raised_in_the_end(tmp_path: Path, task: Faulty) -> None:
    with pytest.raises(ZeroDivisionError):
        run_flow(tmp_path)
    text = (tmp_path / "claims" / RUN_FILE).read_text()
    first, *others = ClaimsRun.model_validate_json(text).jobs
    assert first.status == "failed"
    assert first.note == "a fault of the program: ZeroDivisionError: division by zero, in no_scene-s0"
    assert {(job.status, job.note) for job in others} == {("not run", "world failed")}
    assert str(tmp_path) not in text


def test_nothing_is_computed_where_the_tables_would_lose_a_world(tmp_path: Path, task: Faulty) -> None:
    (tmp_path / "claims").mkdir()
    gate = GateRow(
        horizon=None, seed=1, open_rate=50.0, gain_opened=1.0, gain_overall=0.5, harmed=1.0, n_opened=5, n_windows=10
    )
    write_claims_table(tmp_path / "claims", "gate", [(Origin("base", 1), gate)])
    with pytest.raises(InputError, match=r"gate\.parquet would lose base seed 1"):
        run_flow(tmp_path)
    assert task.submitted == 0


def test_a_fault_of_the_program_is_logged_when_it_happens(caplog: pytest.LogCaptureFixture) -> None:
    from tasks.claims import fault_is_logged

    with pytest.raises(ZeroDivisionError), fault_is_logged("no_scene-s0"):
        raise ZeroDivisionError("division by zero")
    assert caplog.messages == [
        "no_scene-s0   stopped: ZeroDivisionError('division by zero'); the other worlds go on",
    ]
    with fault_is_logged("base-s0"):
        pass
    assert len(caplog.messages) == 1
