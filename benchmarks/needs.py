"""Compare what the stages say that they need with what they take: stated and measured anonymous memory, and disk.

    python benchmarks/needs.py --folder <scratch> [--shapes small medium labels widths] [--stages ...] [--workers 1]

Writes a root of each shape (`needs_store.py`), runs every stage in a process of its own with one epoch of each
training, and reads RssAnon of its process tree every 10 ms from /proc. Ends with status 1 where a statement is less
than what was measured, or more than twice that.
"""

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from needs_store import StoreShape, write_store

from schemas.base import Record
from schemas.config import PipelineConfig, RunOptions
from schemas.training import TrainConfig
from trajpilot_core.engine.needs import MB, Needs
from trajpilot_core.engine.planning.stated import manifests_of, stated_needs
from trajpilot_core.stages import STAGES
from trajpilot_core.store.files import open_folder

CHECKOUT = Path(__file__).parents[1]
MEASURED = ("text_bank", "alignment", "predictor", "scorer", "evaluation", "report")
SHAPES = {
    "tiny": StoreShape(takes=30, segments=12, labels=40, feature_width=64, text_width=32),
    "small": StoreShape(takes=60, segments=40, labels=500, feature_width=64, text_width=64),
    "medium": StoreShape(takes=400, segments=60, labels=500, feature_width=64, text_width=64, horizons=(3, 8)),
    "labels": StoreShape(takes=60, segments=40, labels=4000, feature_width=64, text_width=64, horizons=(3, 8)),
    "widths": StoreShape(takes=100, segments=40, labels=500, feature_width=1664, text_width=768, horizons=(3, 8)),
}
MOST = 2.0
"""A statement may be so many times what was measured."""
SAMPLED_S = 0.01
RUN = """
import sys
from pathlib import Path
from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.stages import STAGES
if __name__ == "__main__":
    config, run = (Path(path).read_text() for path in sys.argv[2:])
    config, run = PipelineConfig.model_validate_json(config), RunOptions.model_validate_json(run)
    print(execute(STAGES[sys.argv[1]], config, run, STAGES).message())
"""


class Peak(NamedTuple):
    """What one stage took."""

    stage: str
    stated: int
    measured: int

    @property
    def times(self) -> float:
        """Stated over measured."""
        return self.stated / self.measured

    @property
    def is_right(self) -> bool:
        """Whether the statement is an upper bound, and no wild one."""
        return 1 <= self.times <= MOST


def settings() -> PipelineConfig:
    """Return small models, one epoch each, with batches and candidates of the paper's main experiment."""
    base = PipelineConfig()

    def train(batch: int) -> TrainConfig:
        return TrainConfig(epochs=1, patience=None, precision="fp32", batch=batch)

    return base.replace(
        text_bank=base.text_bank.replace(encoder="bag_of_words"),
        alignment=base.alignment.replace(width=64, layers=2, hidden=256, folds=1, seeds=(0,), train=train(1024)),
        predictor=base.predictor.replace(width=64, layers=2, heads=4, hidden=256, train=train(1024)),
        scorer=base.scorer.replace(
            width=64, candidates=32, prefetch=48, max_queries=3000, ablations=(), train=train(256)
        ),
        evaluation=base.evaluation.replace(bootstrap=200, shuffles=2, headroom_pools=(1, 4)),
    )


def written_root(folder: Path, shape: StoreShape, config: PipelineConfig, workers: int) -> RunOptions:
    """Write a root and return the options of runs on it."""
    run = RunOptions(root=str(folder / "root"), data_root=str(folder), device="cpu", workers=workers, ignore_needs=True)
    write_store(shape, config, run)
    return run


def peak_of(stage: str, config: PipelineConfig, run: RunOptions) -> Peak:
    """Run one stage in a process of its own, and return its peak next to what it states before it begins."""
    stated = needs_of(stage, config, run).host.bytes
    return Peak(stage, stated, measured(stage, config, run))


def needs_of(stage: str, config: PipelineConfig, run: RunOptions) -> Needs:
    """Return what a stage states."""
    folder = open_folder(run.root)
    return stated_needs(STAGES, config, run, manifests_of(folder, STAGES), folder).by_stage[stage]


def measured(stage: str, config: PipelineConfig, run: RunOptions) -> int:
    """Return the peak anonymous memory of all processes of a stage, in bytes."""
    given = [_note(run, "config", config), _note(run, "run", run)]
    command = [sys.executable, "-c", RUN, stage, *given]
    process = subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.DEVNULL)
    peak = 0
    while process.poll() is None:
        peak = max(peak, sum(anonymous(one) for one in tree(process.pid)))
        time.sleep(SAMPLED_S)
    if process.returncode:
        raise SystemExit(f"{stage} failed with {process.returncode}")
    return peak


def _note(run: RunOptions, name: str, record: Record) -> str:
    path = Path(run.root).parent / f"{name}.json"
    path.write_text(record.model_dump_json())
    return str(path)


def tree(process: int) -> list[int]:
    """Return a process and all that it started, directly or not."""
    found = [process]
    for one in found:
        try:
            for thread in Path(f"/proc/{one}/task").iterdir():
                children = (thread / "children").read_text()
                found += [int(child) for child in children.split()]
        except OSError:
            continue  # it has ended
    return found


def anonymous(process: int) -> int:
    """Return the bytes of anonymous memory that a process has; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon")), 0)


def show(shape: str, peak: Peak) -> None:
    """Print one line."""
    verdict = "" if peak.is_right else "  WRONG"
    figures = f"stated {peak.stated / MB:8,.0f} MB  measured {peak.measured / MB:8,.0f} MB  x {peak.times:.2f}"
    print(f"{shape:9s} {peak.stage:12s} {figures}{verdict}", flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["small", "medium", "labels", "widths"])
    parser.add_argument("--stages", nargs="+", choices=MEASURED, default=MEASURED)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args(arguments)
    peaks = []
    for shape in given.shapes:
        folder = given.folder / shape
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        config = settings()
        run = written_root(folder, SHAPES[shape], config, given.workers)
        for stage in given.stages:
            peaks.append(peak_of(stage, config, run))
            show(shape, peaks[-1])
    sys.exit(0 if all(peak.is_right for peak in peaks) else 1)


if __name__ == "__main__":
    main()
