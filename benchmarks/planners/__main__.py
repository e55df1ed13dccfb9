"""Time our planners against the originals in this process, one thread; exit 1 where a ratio is below what is wanted."""

import argparse
import sys
from pathlib import Path

import torch

from benchmarks.planners import hard_viterbi, pdpp_sampling, schema_forward, soft_viterbi

PARTS = {
    "soft_viterbi": soft_viterbi.measure,
    "schema": schema_forward.measure,
    "pdpp": pdpp_sampling.measure,
    "hard_viterbi": hard_viterbi.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planners", description=__doc__)
    parser.add_argument("--original", type=Path, required=True, help="folder with SCHEMA, PDPP and ViterbiPlanNet")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    ratios = [ratio for part in options.parts for ratio in PARTS[part](options.original)]
    for ratio in ratios:
        print(
            f"{ratio.name}: ours {ratio.ours_s:.4f} s, the original {ratio.theirs_s:.4f} s, "
            f"{ratio.factor:.1f} times (wanted {ratio.wanted:g})"
        )
    return int(any(ratio.factor < ratio.wanted for ratio in ratios))


if __name__ == "__main__":
    sys.exit(main())
