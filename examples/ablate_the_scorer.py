"""Ablate the Scorer: what its tables say without each of its inputs, then what single windows lose without motion.

python examples/ablate_the_scorer.py runs/demo
"""

import sys

import numpy as np
import polars as pl

import trajpilot_core as tp

WINDOWS = 20
HORIZON = 5
run = tp.open(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
print(run.warning)

# 1. Scorers that were trained without an input are rows of the tables, with intervals over takes.
metrics = run.table("metrics").filter(
    pl.col("variant").str.starts_with("scorer") & pl.col("reference").is_null(),
    pl.col("metric") == "M@1",
    pl.col("horizon").is_null(),
    pl.col("seed").is_null(),
    pl.col("cluster") == "take",
)
print("M@1 in percent, over all horizons:")
print(metrics.select("variant", "pooling", "value", "low", "high"))

# 2. The models answer arrays, too. Here test windows are planned with their head motion, without it, and with that of
# the window before: a planner that reads the motion of the ends answers differently.
vectors = dict(run.table("features").select("segment_id", "vector").iter_rows())
motions = dict(run.table("motions").select("segment_id", "motions").iter_rows())
windows = run.table("windows").filter((pl.col("split") == "test") & (pl.col("horizon") == HORIZON)).sort("window_id")
predictor = run.predictor()
changed = {"without": 0, "of another window": 0}
before = None
seen = 0
for window in windows.iter_rows(named=True):
    ends = [window["segment_ids"][0], window["segment_ids"][-1]]
    if any(end not in motions for end in ends):
        continue
    features = np.array([vectors[end] for end in ends])
    motion = np.array([motions[end] for end in ends], np.float32).reshape(2, 16, 6)
    if before is not None:
        plans = [predictor.predict(features, one, HORIZON, window["take_id"]) for one in (motion, None, before)]
        own, *others = [[step.label for step in plan[0].steps] for plan in plans]
        for name, other in zip(changed, others, strict=True):
            changed[name] += own != other
        seen += 1
    before = motion
    if seen == WINDOWS:
        break
print(f"\nOf {seen} test windows of H={HORIZON} the plan of the row that decides is another one:")
for name, count in changed.items():
    print(f"    {count:3d} with the head motion {name}" if name != "without" else f"    {count:3d} without head motion")
