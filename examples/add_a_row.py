"""Add a row: score a planner of your own on the windows of a finished run, next to the rows of its tables.

    python examples/add_a_row.py runs/demo

The planner here knows no head motion: it asks which label stood most often at a position of training windows with the
same Start. To make a row a part of every run, write it as one file of trajpilot_core/methods/ (docs/architecture.md).
"""

import sys
from collections import Counter, defaultdict

import numpy as np
import polars as pl

import trajpilot_core as tp
from trajpilot_core.metrics import window_values

HORIZON = 5
RANKED = 5
run = tp.open(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
print(run.warning)

# Windows as codes of labels: (windows, H).
label_of = dict(run.table("segments").select("segment_id", "label_id").iter_rows())
names = sorted(set(label_of.values()))
code_of = {name: code for code, name in enumerate(names)}
windows = run.table("windows").filter(pl.col("horizon") == HORIZON).sort("window_id")


def codes(split: str) -> np.ndarray:
    """Return the label codes (N, H) of the windows of a split, in order of their ids."""
    rows = windows.filter(pl.col("split") == split)["segment_ids"].to_list()
    return np.array([[code_of[label_of[segment]] for segment in row] for row in rows])


# The planner: counts of training windows, never of others.
train, test = codes("train"), codes("test")
counts: dict[tuple[int, int], Counter[int]] = defaultdict(Counter)
anywhere = [Counter(train[:, position].tolist()) for position in range(HORIZON)]
for window in train.tolist():
    for position, label in enumerate(window):
        counts[position, window[0]][label] += 1


def ranked(position: int, start: int) -> list[int]:
    """Return the five most frequent labels at a position after a Start, filled up by those of any Start."""
    first = [label for label, _ in counts[position, start].most_common(RANKED)]
    rest = [label for label, _ in anywhere[position].most_common(2 * RANKED) if label not in first]
    rest += [label for label in range(2 * RANKED) if label not in (*first, *rest)]
    return (first + rest)[:RANKED]


# This row is told the true Start, so that it is an upper bound for a planner that must recognise it.
rankings = np.array([[ranked(position, window[0]) for position in range(HORIZON)] for window in test.tolist()])
values = window_values(test, rankings[:, :, 0], rankings, ("M@1", "M@5", "MSeq"))
print(f"{len(test)} test windows of H={HORIZON}, in percent:")
print("    Start counts (told the true Start): M@1 {:.1f}, M@5 {:.1f}, MSeq {:.1f}".format(*values.mean(axis=0)))

# The rows of the run on the same windows.
metrics = run.table("metrics").filter(
    pl.col("reference").is_null(),
    pl.col("metric").is_in(["M@1", "M@5", "MSeq"]),
    pl.col("horizon") == HORIZON,
    pl.col("seed").is_null(),
    pl.col("pooling") == pl.col("pooling").first(),
)
print(metrics.pivot("metric", index="variant", values="value").sort("M@1", descending=True))
