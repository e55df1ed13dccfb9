"""What the kills of the stack take for a fault, with each fault planted."""

from pathlib import Path

from pool_fixture import artifact_bytes
from stack_kills import committed, faults

SHARD, STAGE = "artifacts/features/shards/a/record.json", "artifacts/ingest/k/manifest.json"


def put(path: Path, text: str = "x") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.with_suffix(".new").write_text(text)
    path.with_suffix(".new").rename(path)


def test_a_finished_shard_that_is_written_again_and_files_that_differ_are_faults(tmp_path: Path) -> None:
    for name in (SHARD, STAGE):
        put(tmp_path / name)
    before, wanted = committed(tmp_path), artifact_bytes(tmp_path)
    put(tmp_path / "artifacts/ingest/k/run_record.json", "another day")
    assert faults(tmp_path, before, wanted) == []
    put(tmp_path / SHARD)
    assert faults(tmp_path, before, wanted) == [f"{SHARD} was finished and is written again"]
    (tmp_path / STAGE).unlink()
    put(tmp_path / "artifacts/more")
    names = (STAGE, "artifacts/more")
    assert faults(tmp_path, {}, wanted) == [f"{name} is not as it was to be" for name in sorted(names)]
