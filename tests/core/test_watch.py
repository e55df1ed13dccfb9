"""The look at the data root: told once, and only after two equal looks."""

from pathlib import Path

import pytest

from schemas.config import PipelineConfig
from trajpilot_core.stages.watch import noticed


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
