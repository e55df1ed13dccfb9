"""What a plan promises holds whatever happened to the corpus, the settings and the root before: random histories."""

import os
import random
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from toy_stages import TOYS, options, write_corpus

from schemas.config import EvaluationConfig, FeatureConfig, PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import Outcome, execute
from trajpilot_core.engine.planning import plan as planning
from trajpilot_core.engine.planning.plan import PlanRow, plan
from trajpilot_core.errors import TrajPilotError

NAMES = list(TOYS)
STEPS = 25


class History:
    """A corpus, a root and settings that things happen to."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.corpus = write_corpus(folder / "corpus")
        self.root = folder / "root"
        self.config, self.stages = PipelineConfig(), dict(TOYS)

    def listed(self) -> list[str]:
        return (self.corpus / "takes.txt").read_text().split()

    def one_of(self, pattern: str) -> list[Path]:
        """One of the files of that name below the root, if there are any."""
        files = sorted(self.root.rglob(pattern))
        return [self.chance.choice(files)] if files else []

    def one_json(self) -> list[Path]:
        return self.one_of(self.chance.choice(["current", "manifest.json", "sources.json", "record.json"]))

    def write(self) -> None:
        words = self.chance.choices(["1", "2", "3", "bad"], k=self.chance.randint(0, 3))
        (self.corpus / f"{self.chance.choice(self.listed())}.txt").write_text(" ".join(words))

    def touch(self) -> None:
        os.utime(self.corpus / f"{self.chance.choice(self.listed())}.txt")

    def add(self) -> None:
        name = f"take{self.chance.randint(0, 9)}"
        (self.corpus / f"{name}.txt").write_text("1")
        (self.corpus / "takes.txt").write_text("\n".join(sorted({*self.listed(), name})))

    def remove(self) -> None:
        kept = self.listed()[1:] or self.listed()
        (self.corpus / "takes.txt").write_text("\n".join(kept))

    def configure(self) -> None:
        batch, seed = self.chance.randint(2, 4), self.chance.randint(0, 1)
        self.config = PipelineConfig(features=FeatureConfig(batch=batch), evaluation=EvaluationConfig(seed=seed))

    def upgrade(self) -> None:
        name = self.chance.choice(NAMES)
        self.stages[name] = replace(self.stages[name], version=self.chance.randint(1, 2))

    def revert(self) -> None:
        self.config, self.stages = PipelineConfig(), dict(TOYS)

    def delete(self) -> None:
        for path in self.one_of("data-*"):
            path.unlink()

    def forget(self) -> None:
        for path in self.one_json():
            path.unlink()

    def damage(self) -> None:
        for path in self.one_json():
            path.write_text("{}")

    def go_on(self) -> RunOptions:
        """Let up to three things happen; return what a run is asked for then."""
        happenings = [self.write, self.touch, self.add, self.remove, self.configure]
        happenings += [self.upgrade, self.revert, self.delete, self.forget, self.damage]
        for _ in range(self.chance.randint(0, 3)):
            self.chance.choice(happenings)()
        first = self.chance.choice([0, 0, 0, 1, 2])
        only = (NAMES[first],) if self.chance.random() < 0.2 else ()
        asked = only or NAMES[first:]
        force = tuple(name for name in asked if self.chance.random() < 0.2)
        since = NAMES[first] if first and not only else None
        return options(self.root, self.corpus, max_reject_ratio=1.0, only=only, from_stage=since, force=force)


def broken(row: PlanRow, done: Outcome) -> list[str]:
    """The promises of a row that what was done does not keep."""
    kept = {
        "compute": row.compute is None
        or (done.computed == row.compute if row.bound == "exactly" else done.computed <= row.compute),
        "reused": row.reused is None
        or (done.reused == row.reused if row.bound == "exactly" else done.reused >= row.reused),
        "fresh": row.state != "fresh" or done.cached,
        "why": bool(row.why),
    }
    return [name for name, holds in kept.items() if not holds]


def promises(folder: Path, seed: int) -> list[tuple[str, ...]]:
    """Plan and run through one history; return what was not kept."""
    history, found = History(folder, seed), []
    for _ in range(STEPS):
        run = history.go_on()
        for row in plan(history.stages, history.config, run):
            if row.asked:
                try:
                    done = execute(history.stages[row.stage], history.config, run, history.stages)
                except TrajPilotError:
                    break  # what a damaged or absent input stops is no matter of numbers
                found += [(row.stage, promise, row.why) for promise in broken(row, done)]
    shutil.rmtree(folder)
    return found


def test_exactly_is_exact_and_at_most_is_a_bound_after_any_history(tmp_path: Path) -> None:
    assert [promises(tmp_path / "history", seed) for seed in range(2)] == [[], []]


def test_a_plan_that_overlooks_outputs_of_before_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "usable_manifest", lambda *_: None)
    assert {promise for _, promise, _ in promises(tmp_path / "history", 1)} >= {"compute", "reused"}
