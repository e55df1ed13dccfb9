"""What lies below a root at the moment of a kill, and what its recovery made of it."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path

from safetensors import safe_open

COMMITS = ("manifest.json", "record.json")
"""Completion markers: of a stage, and of a shard."""
RUN_RECORD = ("run_record.json",)
"""Files that tell of the run, not of its result."""
CHECKPOINT = "checkpoint.safetensors"
INTERVAL = 1
"""Epochs between checkpoints (RunOptions.checkpoint_s is 0 in these runs)."""


@dataclass(frozen=True)
class Training:
    """How far one training was."""

    name: str
    kept: int
    """Epochs that its checkpoint holds."""
    told: int
    """Epochs that it had done."""

    @property
    def lost(self) -> int:
        """Epochs done that the checkpoint does not hold."""
        return max(0, self.told - self.kept)

    @property
    def resumed(self) -> str:
        """How its log line begins when it goes on."""
        return f"training {self.name} seed"


@dataclass(frozen=True)
class Moment:
    """What was finished below a root."""

    commits: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Marker -> inode and time of last change; a marker that is written again differs."""
    trainings: dict[str, Training] = field(default_factory=dict)
    """Folder in scratch -> training."""
    last_s: float = 0.0
    """When something was last finished, seconds since 1970; 0: never."""

    def shards(self, stage: str) -> int:
        """Finished shards of a stage."""
        return sum(f"artifacts/{stage}/shards/" in name for name in self.commits)

    def is_finished(self, stage: str) -> bool:
        """Whether the stage is committed."""
        return any(name.startswith(f"artifacts/{stage}/") and name.endswith(COMMITS[0]) for name in self.commits)


def look(root: Path) -> Moment:
    """Note what is finished below a root."""
    commits, last_s = {}, 0.0
    for path in sorted(root.glob("artifacts/**/*.json")):
        if path.name in COMMITS:
            stat = path.stat()
            commits[str(path.relative_to(root))] = (stat.st_ino, stat.st_mtime_ns)
            last_s = max(last_s, stat.st_mtime)
    trainings = {}
    for path in sorted(root.glob(f"scratch/**/{CHECKPOINT}")):
        trainings[str(path.parent.relative_to(root))] = training_in(path.parent)
        last_s = max(last_s, path.stat().st_mtime)
    return Moment(commits, trainings, last_s)


def training_in(folder: Path) -> Training:
    """Read how far the training in a folder is; only one in a process of its own tells its epochs.

    The epochs are read before the checkpoint: a training that outlived the kill goes on while it is looked at.
    """
    note = folder / "epochs.json"
    told = json.loads(note.read_text())[0] if note.is_file() else 0
    with safe_open(folder / CHECKPOINT, "pt") as file:
        facts = json.loads(file.metadata()["progress"])
    return Training(facts["name"], facts["epoch"], max(told, facts["epoch"]))


def digests(root: Path) -> dict[str, str]:
    """Return relative path -> sha256 of every file that counts: artifacts and reports, whatever run wrote them."""
    found = {}
    for top in ("artifacts", "reports"):
        for path in sorted((root / top).rglob("*")):
            if path.is_file() and path.name not in RUN_RECORD and not path.name.startswith(".tmp-"):
                found[str(path.relative_to(root))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def differences(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """Say which files are missing, too many or different."""
    lost = [f"missing {name}" for name in sorted(wanted.keys() - found.keys())]
    more = [f"too many {name}" for name in sorted(found.keys() - wanted.keys())]
    return lost + more + [f"different {n}" for n in sorted(found.keys() & wanted.keys()) if found[n] != wanted[n]]


def written_twice(before: Moment, after: Moment) -> list[str]:
    """Return the finished shards and stages that were written again."""
    return [name for name, mark in before.commits.items() if after.commits.get(name) != mark]


def faults(before: Moment, after: Moment, outcomes: dict[str, tuple[int, int]], log: str | None) -> list[str]:
    """Say what a recovery did that it should not.

    Args:
        before: at the kill.
        after: at the end.
        outcomes: sharded stage -> (reused, computed) of the run that completed.
        log: what the run that completed logged; None: it is the run that was disturbed.
    """
    found = [f"{name} was finished and is written again" for name in written_twice(before, after)]
    found += [f"{t.name} lost {t.lost} epochs" for t in before.trainings.values() if t.lost > INTERVAL]
    if log is None:
        return found
    for stage, (reused, _) in outcomes.items():
        if reused != before.shards(stage):
            found.append(f"{stage}: {before.shards(stage)} shards were finished, {reused} were reused")
    return found + [f"{t.name} started again" for t in before.trainings.values() if t.kept and t.resumed not in log]
