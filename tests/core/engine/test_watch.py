"""The look at the data root: told once, and only after two equal looks."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from toy_stages import TOYS, run_toys

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.planning.watch import noticed
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError

CONFIG = PipelineConfig()
FIRST = next(iter(TOYS))


def looks(run: RunOptions, n: int, stages: Mapping[str, AnyStage] = TOYS) -> list[int]:
    """How many changes each of `n` looks tells."""
    return [len(noticed(stages, CONFIG, run)) for _ in range(n)]


def test_a_change_is_told_once_after_two_equal_looks(run: RunOptions, corpus: Path) -> None:
    stages = {FIRST: TOYS[FIRST]}
    run_toys(run, stages)
    assert noticed(stages, CONFIG, run) == ()
    (corpus / "take1.txt").write_text("7 8 9")
    (corpus / "takes.txt").write_text("take0\ntake1\ntake9\n")
    (corpus / "take9.txt").write_text("4 5 6")
    assert noticed(stages, CONFIG, run) == ()
    (told,) = noticed(stages, CONFIG, run)
    assert told.startswith(f"{FIRST}: ")
    assert noticed(stages, CONFIG, run) == ()
    run_toys(run, stages)
    assert noticed(stages, CONFIG, run) == ()


def test_a_run_at_work_and_a_take_that_no_run_mends_start_no_other_run(run: RunOptions, corpus: Path) -> None:
    """Stage after stage becomes fresh while the files stay as they are: no news."""
    assert looks(run, 2) == [0, 3]
    for until in TOYS:
        run_toys(run, until=until)
        assert looks(run, 3) == [0, 0, 0], until
    (corpus / "take1.txt").unlink()
    assert [n > 0 for n in looks(run, 4)] == [False, True, False, False]


def test_a_file_that_nothing_reads_is_no_news_and_the_next_change_is(run: RunOptions, corpus: Path) -> None:
    run_toys(run)
    (corpus / b"caf\xe9.txt".decode(errors="surrogateescape")).write_text("no text")
    assert looks(run, 3) == [0, 0, 0]
    (corpus / "take1.txt").write_text("7 7")
    assert [n > 0 for n in looks(run, 3)] == [False, True, False]


def test_a_damaged_note_is_forgotten_and_a_data_root_that_is_gone_is_an_error(run: RunOptions) -> None:
    """A share that is not mounted must not start a run."""
    looks(run, 1)
    (Path(run.root) / "watch.json").write_text("{")
    assert looks(run, 2) == [0, 3]
    with pytest.raises(InputError, match="is no folder"):
        noticed(TOYS, CONFIG, run.replace(data_root=f"{run.data_root}/nowhere"))


def test_a_download_that_is_under_way_is_not_told(run: RunOptions, corpus: Path) -> None:
    stages = {FIRST: TOYS[FIRST]}
    run_toys(run, stages)
    for k in range(5, 8):
        (corpus / "takes.txt").write_text("\n".join(f"take{n}" for n in range(k)))
        (corpus / f"take{k - 1}.txt").write_text("1 2")
        assert looks(run, 1, stages) == [0], k
