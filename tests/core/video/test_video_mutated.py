"""45 files damaged by `mutated_videos.py` are read as the pipeline does: none crashes, hangs or lies unseen."""

import sys
from pathlib import Path

import pytest
from mutated_videos import DAMAGE, Mutant, Pixels, make, read, table

BLIND = """
from trajpilot_core.video import child, pyav_backend, table
pyav_backend.PyavReader._note_damage = lambda *seen: None
child.main()
"""


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Mutant], dict[str, Pixels]]:
    return make(tmp_path_factory.mktemp("damaged"), 45, seed=0)


def test_damaged_files_end_as_right_frames_or_as_rejects(damaged: tuple[list[Mutant], dict[str, Pixels]]) -> None:
    mutants, clean = damaged
    reads = read(mutants, clean)
    assert {one.mutant.damage for one in reads} == set(DAMAGE)
    outcomes = [one.outcome for one in reads]
    assert {"crashed", "hung", "wrong frame"}.isdisjoint(outcomes), table(reads)
    assert outcomes.count("wrong pixels") <= 2, table(
        reads
    )  # flips that decode cleanly: docs/decisions/video-backend.md
    assert outcomes.count("right") >= 5, table(reads)
    assert outcomes.count("part rejected") >= 3, table(reads)


def test_the_comparison_sees_frames_of_a_decoder_that_hides_damage(
    damaged: tuple[list[Mutant], dict[str, Pixels]],
) -> None:
    """Planted: the marks of the decoder are not looked at; the comparison counts what that lets through."""
    mutants, clean = damaged
    flipped = [mutant for mutant in mutants if mutant.damage in ("one bit flipped", "20 bits flipped", "bytes zeroed")]
    n_wrong = [
        sum(one.outcome == "wrong pixels" for one in read(flipped, clean, command))
        for command in ((sys.executable, "-P", "-m", "trajpilot_core.video.child"), (sys.executable, "-P", "-c", BLIND))
    ]
    assert n_wrong[1] > n_wrong[0]


def test_files_of_one_seed_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = (make(tmp_path / name, 10, seed=3)[0] for name in ("one", "two"))
    assert [mutant.path.read_bytes() for mutant in one] == [mutant.path.read_bytes() for mutant in two]
