"""The flow of the claims tells of a fault of the program where its world stands, and refuses early what it must."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from schemas import claims as fixed
from schemas.claims import ClaimsConfig, ClaimsRun
from schemas.config import PipelineConfig
from trajpilot_core.errors import InputError
from trajpilot_core.studies.claims.evidence.tables import RUN_FILE
from trajpilot_core.studies.claims.worlds import collect
from trajpilot_core.studies.claims.worlds.plan import make

WORLD = make("no_style", 3, ClaimsConfig())


class Ended:
    """Stands in for the future of a world that has ended."""

    def __init__(self, found: object) -> None:
        self.state = SimpleNamespace(result=lambda raise_on_failure: found)

    def wait(self) -> None:
        pass


class Faulty:
    """Stands in for the task: every world ends with a fault that nobody expected."""

    def __init__(self) -> None:
        self.submitted = 0

    def submit(self, *arguments: object) -> "Ended":
        self.submitted += 1
        fault = ZeroDivisionError(f"division by zero, in {arguments[2].root}/no_style-s3")  # type: ignore[attr-defined]
        return Ended(fault)


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Faulty:
    from flows import claims as flow_module

    task = Faulty()
    monkeypatch.setattr(flow_module, "compute_world", task)
    monkeypatch.setattr(flow_module, "as_completed", list)
    monkeypatch.setattr(flow_module, "write_pages", lambda docs: [])
    monkeypatch.setattr(collect, "planned", lambda config: (WORLD,))
    monkeypatch.setattr(fixed, "RUN_DIGEST", collect.digest_of(ClaimsConfig(), PipelineConfig()))
    return task


def run_flow(tmp_path: Path) -> ClaimsRun:
    from flows.claims import claims_worlds

    run: ClaimsRun = claims_worlds.fn(PipelineConfig(), str(tmp_path / "runs"), str(tmp_path), "cpu", ("no_style-s3",))
    return run


def test_a_fault_of_the_program_is_published_with_its_world_and_raised_in_the_end(tmp_path: Path, task: Faulty) -> None:
    with pytest.raises(ZeroDivisionError):
        run_flow(tmp_path)
    text = (tmp_path / "claims" / RUN_FILE).read_text()
    first, *others = ClaimsRun.model_validate_json(text).jobs
    assert first.status == "failed"
    assert first.note == "a fault of the program: ZeroDivisionError: division by zero, in no_style-s3"
    assert {(job.status, job.note) for job in others} == {("not run", "world failed")}
    assert str(tmp_path) not in text


def test_the_tables_of_a_world_are_there_when_it_ends(
    tmp_path: Path, task: Faulty, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import claims as flow_module

    later = make("base", 3, ClaimsConfig())
    monkeypatch.setattr(collect, "planned", lambda config: (WORLD, later))
    monkeypatch.setattr(flow_module, "chosen", lambda config, names: (WORLD, later))
    published: list[set[str]] = []

    def one_by_one(futures: list[Ended]) -> Iterator[Ended]:
        for future in futures:
            yield future
            run = ClaimsRun.model_validate_json((tmp_path / "claims" / RUN_FILE).read_text())
            published.append({job.world for job in run.jobs if job.status == "failed"})

    monkeypatch.setattr(flow_module, "as_completed", one_by_one)
    monkeypatch.setattr(fixed, "RUN_DIGEST", collect.digest_of(ClaimsConfig(), PipelineConfig()))
    with pytest.raises(ZeroDivisionError):
        run_flow(tmp_path)
    assert published == [{"no_style"}, {"no_style", "base"}]


def test_nothing_is_computed_next_to_tables_of_other_settings(tmp_path: Path, task: Faulty) -> None:
    (tmp_path / "claims").mkdir()
    run = ClaimsRun(date="2026-11-21", config_digest="0" * 64, machines=("2 cores",), device="cpu", jobs=())
    (tmp_path / "claims" / RUN_FILE).write_text(run.model_dump_json())
    with pytest.raises(InputError, match="tables of other settings"):
        run_flow(tmp_path)
    assert task.submitted == 0


@pytest.mark.parametrize("digest", [None, "0" * 64])
def test_nothing_is_computed_with_settings_that_are_not_the_fixed_ones(
    tmp_path: Path, task: Faulty, monkeypatch: pytest.MonkeyPatch, digest: str | None
) -> None:
    monkeypatch.setattr(fixed, "RUN_DIGEST", digest)
    with pytest.raises(InputError, match="not fixed yet" if digest is None else "not those that were fixed"):
        run_flow(tmp_path)
    assert task.submitted == 0


def test_a_fault_of_the_program_is_logged_when_it_happens(caplog: pytest.LogCaptureFixture) -> None:
    from tasks.claims import fault_is_logged

    with pytest.raises(ZeroDivisionError), fault_is_logged("no_style-s3"):
        raise ZeroDivisionError("division by zero")
    assert caplog.messages == [
        "no_style-s3   stopped: ZeroDivisionError('division by zero'); the other worlds go on",
    ]
    with fault_is_logged("base-s3"):
        pass
    assert len(caplog.messages) == 1
