"""Look at one test take of a finished run: what was done, what a row predicted, and where it was wrong.

python examples/look_at_a_take.py runs/demo
"""

import sys

import polars as pl

import trajpilot_core as tp

run = tp.open(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
print(run.warning)
print(run.tables())

# Every table of the run is a polars frame; its name is the one that `run.tables()` lists.
takes, segments, labels = run.table("takes"), run.table("segments"), run.table("labels")
take = takes.filter(pl.col("split") == "test").sort("take_id").row(0, named=True)
print(f"\n{take['name']}, {take['scenario']}")
done = segments.filter(pl.col("take_id") == take["take_id"]).join(labels, on="label_id").sort("start_s")
print(done.select("start_s", "end_s", "label"))

# The predictions hold one line per window, row of the tables, seed and position.
predictions = run.table("predictions").join(run.table("windows").select("window_id", "take_id"), on="window_id")
middle = (pl.col("position") > 0) & (pl.col("position") < pl.col("horizon") - 1)
mine = predictions.filter((pl.col("take_id") == take["take_id"]) & middle)
print("\nMiddle steps that each row got right, of all windows of this take:")
print(
    mine.group_by("variant")
    .agg(right=(pl.col("decoded_id") == pl.col("label_id")).mean(), steps=pl.len())
    .sort("right", descending=True)
)
