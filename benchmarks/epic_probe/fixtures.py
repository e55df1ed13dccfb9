"""Renew tests/data/epic_probe: what the original answers with weights and inputs of the formula.

Run: `python -m benchmarks.epic_probe.fixtures --original FOLDER`. Only outputs are written.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.epic_probe.original import (
    ORIGIN,
    predictor_2_1_answers,
    predictor_answers,
    probe_answers,
)
from benchmarks.planners.double import in_double
from benchmarks.planners.fixtures import document

FILE = Path(__file__).parents[2] / "tests" / "data" / "epic_probe" / "vjepa2.json"
COMMAND = "python -m benchmarks.epic_probe.fixtures --original FOLDER"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.epic_probe.fixtures", description=__doc__)
    parser.add_argument(
        "--original",
        type=Path,
        required=True,
        help="checkout of facebookresearch/vjepa2 with app/vjepa_2_1",
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    with in_double():
        content = {
            "probe": probe_answers(options.original),
            "predictor": predictor_answers(options.original),
            "predictor_2_1": predictor_2_1_answers(options.original),
        }
    FILE.write_text(document(ORIGIN, content, COMMAND))
    print(f"{FILE.name}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
