"""The look at the data root: told once, and only after two equal looks."""

from pathlib import Path

import pytest

from schemas.config import PipelineConfig
from trajpilot_core.engine.planning.watch import noticed
from trajpilot_core.errors import InputError


@pytest.fixture
def world(tmp_path: Path) -> Path:
    from toy_stages import write_corpus

    return write_corpus(tmp_path / "corpus")


def test_a_change_is_told_once_after_two_equal_looks(world: Path, tmp_path: Path) -> None:
    from toy_stages import TOYS, options, run_toys

    run, config = options(tmp_path / "root", world), PipelineConfig()
    until = next(iter(TOYS))
    stages = {until: TOYS[until]}
    run_toys(run, stages, until=until)
    assert noticed(stages, config, run) == ()
    (world / "take1.txt").write_text("7 8 9")
    (world / "takes.txt").write_text("take0\ntake1\ntake9\n")
    (world / "take9.txt").write_text("4 5 6")
    assert noticed(stages, config, run) == ()
    told = noticed(stages, config, run)
    assert len(told) == 1
    assert told[0].startswith(f"{until}: ")
    assert noticed(stages, config, run) == ()
    run_toys(run, stages, until=until)
    assert noticed(stages, config, run) == ()


def test_a_run_at_work_and_a_take_that_no_run_mends_start_no_other_run(world: Path, tmp_path: Path) -> None:
    """Stage after stage becomes fresh while the files stay as they are: no news."""
    from toy_stages import TOYS, options, run_toys

    run, config = options(tmp_path / "root", world), PipelineConfig()
    assert noticed(TOYS, config, run) == ()
    assert len(noticed(TOYS, config, run)) == 3
    for until in TOYS:
        run_toys(run, TOYS, until=until)
        assert [noticed(TOYS, config, run) for _ in range(3)] == [()] * 3, until
    (world / "take1.txt").unlink()
    assert [bool(noticed(TOYS, config, run)) for _ in range(4)] == [False, True, False, False]


def test_a_file_that_nothing_reads_is_no_news_and_the_next_change_is(world: Path, tmp_path: Path) -> None:
    from toy_stages import TOYS, options, run_toys

    run, config = options(tmp_path / "root", world), PipelineConfig()
    run_toys(run)
    (world / b"caf\xe9.txt".decode(errors="surrogateescape")).write_text("no text")
    assert [noticed(TOYS, config, run) for _ in range(3)] == [()] * 3
    (world / "take1.txt").write_text("7 7")
    assert [bool(noticed(TOYS, config, run)) for _ in range(3)] == [False, True, False]


def test_a_damaged_note_is_forgotten_and_a_data_root_that_is_gone_is_an_error(world: Path, tmp_path: Path) -> None:
    """A share that is not mounted must not start a run."""
    from toy_stages import TOYS, options

    run, config = options(tmp_path / "root", world), PipelineConfig()
    noticed(TOYS, config, run)
    (tmp_path / "root" / "watch.json").write_text("{")
    assert [len(noticed(TOYS, config, run)) for _ in range(2)] == [0, 3]
    with pytest.raises(InputError, match="is no folder"):
        noticed(TOYS, config, run.replace(data_root=str(tmp_path / "nowhere")))


def test_a_download_that_is_under_way_is_not_told(world: Path, tmp_path: Path) -> None:
    from toy_stages import TOYS, options, run_toys

    run, config = options(tmp_path / "root", world), PipelineConfig()
    until = next(iter(TOYS))
    stages = {until: TOYS[until]}
    run_toys(run, stages, until=until)
    for k in range(5, 8):
        names = [f"take{n}" for n in range(k)]
        (world / "takes.txt").write_text("\n".join(names))
        (world / names[-1]).with_suffix(".txt").write_text("1 2")
        assert noticed(stages, config, run) == (), k
