"""What must hold after a kill, and after the recovery from it. Every function returns the problems that it found."""

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from countdown import Operation

from trajpilot_core.errors import StoreError
from trajpilot_core.stages import STAGES
from trajpilot_core.store.damage import verify
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.garbage import find_garbage, remove_garbage
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import read_entry_table

SIDE = "run_record.json"
"""Describes the run; differs from run to run."""
UNIQUE = {"takes": "take_id", "windows": "window_id"} | dict.fromkeys(("segments", "motions", "features"), "segment_id")
"""Tables whose rows have names."""
Tree = dict[str, str]
"""File below `artifacts` -> sha256."""


def row_of(name: str, problems: list[str], /, **facts: object) -> dict[str, Any]:
    """Return a row of the log."""
    return {"row": name, **facts, "problems": problems, "verdict": "red" if problems else "green"}


def tree(root: Path) -> Tree:
    """Return what lies below the artifacts, side files and temporary files left out."""
    files = [path for path in (root / "artifacts").rglob("*") if path.is_file() and path.name != SIDE]
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
        if not path.name.startswith(".tmp-")
    }


def temporaries(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob(".tmp-*")}


def nothing_torn(root: Path, reference: Tree) -> list[str]:
    """After a kill: what is visible is whole and as it was to be, and the rest is known to `gc`."""
    problems = [f"verify: {damage.path}: {damage.problem}" for damage in verify(str(root), repair=False)]
    for path, digest in tree(root).items():
        if path not in reference:
            problems.append(f"orphan: {path} is not in the undisturbed run")
        elif reference[path] != digest:
            problems.append(f"incomplete: {path} has other bytes than in the undisturbed run")
    try:
        named = {path for group in find_garbage(str(root)) for path in group.files}
    except StoreError as error:  # a current output is damaged
        return [*problems, f"gc: {error}"]
    return problems + [f"gc does not know {path}" for path in sorted(temporaries(root) - named)]


def recovered(root: Path, reference: Tree, stages: list[str]) -> list[str]:
    """After the recovery: these stages have the files of the undisturbed run, no more and no fewer."""

    def of_stages(files: Tree) -> Tree:
        fronts = tuple(f"artifacts/{stage}/" for stage in stages)
        return {path: digest for path, digest in files.items() if path.startswith(fronts)}

    return differences(of_stages(tree(root)), of_stages(reference))


def differences(found: Tree, reference: Tree) -> list[str]:
    """Say what is lost, what is there twice, and what has other bytes."""
    problems = [f"lost: {path}" for path in sorted(reference.keys() - found.keys())]
    problems += [f"twice: {path} is not in the undisturbed run" for path in sorted(found.keys() - reference.keys())]
    both = sorted(found.keys() & reference.keys())
    return problems + [f"bytes: {path} differs" for path in both if found[path] != reference[path]]


def swept(root: Path, reference: Tree) -> list[str]:
    """In the end: all that is left over goes with `gc`, and nothing else does."""
    problems = differences(tree(root), reference)
    remove_garbage(str(root), 0.0)
    problems += [f"gc left {path}" for path in sorted(temporaries(root))]
    problems += [f"gc left {path}" for path in sorted((root / "scratch").iterdir())]
    return problems + differences(tree(root), reference) + [str(item) for item in verify(str(root), repair=False)]


def no_row_twice(root: Path) -> list[str]:
    folder = open_folder(str(root))
    problems = []
    for stage in STAGES.values():
        manifest = current_manifest(folder, stage.name)
        for entry in (entry for entry in stage.writes if manifest and entry in UNIQUE):
            counts = Counter(read_entry_table(folder, manifest, entry, [UNIQUE[entry]])[0].to_pylist())
            problems += [f"twice: {row} in {entry}" for row, n in counts.items() if n > 1]
    return problems


def durable(trace: list[Operation]) -> list[str]:
    """Every rename follows the fsync of its file and is followed by that of its folder before the next rename."""
    problems = []
    synced: set[tuple[int, str]] = set()
    waiting: dict[int, str] = {}
    for operation in trace:
        if operation.kind == "fsync":
            synced.add((operation.pid, operation.path))
            if waiting.get(operation.pid, "") and Path(waiting[operation.pid]).parent == Path(operation.path):
                waiting.pop(operation.pid)
        elif operation.kind == "rename" and operation.path.startswith("artifacts/"):
            if (operation.pid, operation.source) not in synced:
                problems.append(f"order: {operation.path} was renamed before its fsync")
            if operation.pid in waiting:
                problems.append(f"order: the folder of {waiting[operation.pid]} was not synced before the next rename")
            waiting[operation.pid] = operation.path
    return problems


@dataclass(frozen=True)
class Redone:
    """What was done twice because of a kill."""

    shards: int
    """Shards that were written out before and were written again."""
    epochs: dict[str, int]
    """Training -> epochs that were begun twice; trainings without any are left out."""
    clips: int
    """Clips that were encoded twice."""

    def too_much(self, trainings: int) -> list[str]:
        """Say what is more than a kill may cost where so many trainings run side by side."""
        problems = [] if self.shards <= 1 else [f"{self.shards} shards were done again"]
        problems += [f"{name}: {n} epochs were done again" for name, n in self.epochs.items() if n > 1]
        if len(self.epochs) > trainings:
            problems.append(f"{len(self.epochs)} trainings lost an epoch, {trainings} run at a time")
        return problems


def redone(killed: list[Operation], recovery: list[Operation], stage: str) -> Redone:
    """Compare what the killed run and the recovery did in the stage of the kill."""
    runs = [Counter(work_of(trace, stage)) for trace in (killed, recovery)]
    twice = {work: min(runs[0][work], runs[1][work]) for work in runs[0].keys() & runs[1].keys()}
    epochs = Counter(path.rsplit("/", 1)[0] for kind, path in twice if kind == "epoch")
    kinds = [kind for kind, _ in twice]
    return Redone(kinds.count("shard"), dict(epochs), kinds.count("clip"))


def work_of(trace: list[Operation], stage: str) -> list[tuple[str, str]]:
    found = []
    for operation in trace:
        if operation.stage != stage:
            continue
        if operation.kind in ("epoch", "clip"):
            found.append((operation.kind, operation.path))
        elif operation.kind == "rename" and "/shards/" in operation.path and operation.path.endswith(".parquet"):
            found.append(("shard", operation.path.rpartition("/")[0]))  # whatever number of tables it has
    return found
