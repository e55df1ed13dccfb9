"""45 files damaged by `mutated_videos.py` are read as the pipeline does: none crashes, hangs or lies unseen."""

import sys
from pathlib import Path

from mutated_videos import DAMAGE, make, read, table

BLIND = """
from trajpilot_core.video import child, pyav_backend, table
pyav_backend.PyavReader._note_damage = lambda *seen: None
child.main()
"""
FLIPPED = ("one bit flipped", "20 bits flipped", "bytes zeroed")


def test_damaged_files_end_as_right_frames_or_as_rejects(tmp_path: Path) -> None:
    """Planted: where the marks of the decoder are not looked at, more files have other pixels."""
    mutants, clean = make(tmp_path, 45, seed=0)
    reads = read(mutants, clean)
    assert {one.mutant.damage for one in reads} == set(DAMAGE)
    outcomes = [one.outcome for one in reads]
    assert {"crashed", "hung", "wrong frame"}.isdisjoint(outcomes), table(reads)
    n_wrong = outcomes.count("wrong pixels")
    assert n_wrong <= 2, table(reads)  # flips that decode cleanly: docs/decisions/video-backend.md
    assert outcomes.count("right") >= 5, table(reads)
    assert outcomes.count("part rejected") >= 3, table(reads)
    flipped = [mutant for mutant in mutants if mutant.damage in FLIPPED]
    blind = read(flipped, clean, (sys.executable, "-P", "-c", BLIND))
    assert sum(one.outcome == "wrong pixels" for one in blind) > n_wrong
