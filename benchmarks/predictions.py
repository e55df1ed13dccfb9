"""Predictions of the paper's shape on their way into the store and into integer blocks: memory and CPU seconds.

Run: `python benchmarks/predictions.py --share 0.1` (share 1: 60,186 test windows, 14 rows, 3 seeds: 13.7 M rows, a
minute or two). `--whole` holds the whole table first, as any caller with a table in hand does. Answers are random.
"""

import argparse
import hashlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from trajpilot_core.data.planning import PlanningData, WindowSet
from trajpilot_core.evaluation.prediction_arrays import PredictionCollector, Predictions, predictions_of
from trajpilot_core.evaluation.predictions import SCHEMA, prediction_table
from trajpilot_core.methods.base import Answers
from trajpilot_core.store.parquet import table_bytes, tables_bytes

WINDOWS, TAKES, LABELS, ROWS, SEEDS, AT_ONCE = 60_186, 383, 8_472, 14, 3, 1024
HORIZONS = {3: 0.2, 4: 0.19, 5: 0.17, 6: 0.16, 7: 0.145, 8: 0.135}
"""Horizon -> share of the windows."""


class Peak:
    """The most anonymous memory of this process inside a block, in bytes, seen every 10 ms."""

    def __enter__(self) -> "Peak":
        self.bytes, self._ended = 0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            status = Path("/proc/self/status").read_text(encoding="utf-8").split("RssAnon:")[1]
            self.bytes = max(self.bytes, 1024 * int(status.split()[0]))

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()


def corpus(share: float) -> PlanningData:
    """Draw windows on segments with labels; there are no features, motions or label vectors."""
    generator = torch.Generator().manual_seed(0)
    take_ids = tuple(f"egoexo:cmu_bike{i:04d}_{i % 9}" for i in range(TAKES))
    n_segments = 60 * TAKES
    windows = {}
    for horizon, part in HORIZONS.items():
        n = max(1, round(share * part * WINDOWS))
        take = torch.randint(TAKES, (n,), generator=generator).sort().values
        first = torch.randint(60 - horizon, (n,), generator=generator)
        ids = tuple(f"{take_ids[t]}:h{horizon}:{i:06d}" for i, t in enumerate(take.tolist()))
        segments = (60 * take + first)[:, None] + torch.arange(horizon)
        windows[horizon] = WindowSet(ids, take, torch.full((n,), 2), segments)
    none = torch.empty(0)
    return PlanningData(
        take_ids=take_ids,
        participants=take_ids,
        captures=take_ids,
        segment_ids=(),
        label_ids=tuple(f"egoexo:step {i} of a procedure" for i in range(LABELS)),
        features=none,
        motions=none,
        labels=torch.randint(LABELS, (n_segments,), generator=generator),
        bank=none,
        segment_take=torch.arange(TAKES).repeat_interleave(60),
        take_split=torch.full((TAKES,), 2),
        fold=torch.full((TAKES,), -2),
        windows=windows,
        rejects=[],
    )


def tables(data: PlanningData) -> Iterator[pa.Table]:
    """Yield the parts in the order of an evaluation: seed, horizon, part, row."""
    for seed in range(SEEDS):
        for horizon, windows in data.windows.items():
            for rows in torch.split(torch.arange(len(windows.take)), AT_ONCE):
                for row in range(ROWS):
                    yield prediction_table(f"row{row:02d}", drawn(len(rows), horizon, row), data, windows, rows, seed)


def drawn(n: int, horizon: int, row: int) -> Answers:
    """Draw answers; a third of the rows have a gate and name candidates."""
    ids_BHR, scores_BHR = torch.randint(LABELS, (n, horizon, 5)), torch.rand(n, horizon, 5)
    if row % 3:
        return Answers(ids_BHR, scores_BHR)
    gate_B = torch.rand(n)
    return Answers(ids_BHR, scores_BHR, gate=gate_B, opened=gate_B > 0.5, window=torch.randint(-1, n, (n,)))


def digest(found: Predictions) -> str:
    """Return what all blocks hold as one short number."""
    total = hashlib.sha256(repr((found.window_ids, found.take_ids, found.label_ids)).encode())
    for block in found.blocks:
        total.update(repr((block.variant, block.seed, block.horizon)).encode())
        for name in ("windows", "takes", "labels", "decoded", "rankings", "gate", "opened", "candidates"):
            total.update(np.ascontiguousarray(getattr(block, name)).tobytes())
    return total.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    data = corpus(arguments.share)
    begin, clock = time.process_time(), time.monotonic()
    with Peak() as peak:
        if arguments.whole:
            table = pa.concat_tables(tables(data))
            content, found = table_bytes(table), predictions_of(table)
        else:
            collected = PredictionCollector()
            content = tables_bytes(collected.passing(tables(data)), SCHEMA)
            found = collected.predictions()
    rows = sum(block.labels.size for block in found.blocks)
    file = hashlib.sha256(content).hexdigest()[:16]
    print(f"{rows:,} rows, {len(content) / 1e6:.0f} MB of Parquet {file}, blocks {digest(found)}")
    seconds = f"{time.process_time() - begin:.0f} CPU-s, {time.monotonic() - clock:.0f} s"
    print(f"peak {peak.bytes / 2**30:.2f} GiB, {seconds}")


if __name__ == "__main__":
    main()
