"""Renew tests/data/planners: what the originals answer with weights and inputs of the formula.

Run: `python -m benchmarks.planners.fixtures --original FOLDER`. Only outputs are written; weights, inputs and sizes are
in the code that both this and the tests call.
"""

import argparse
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.planners import hard_viterbi_fixtures, pdpp_fixtures, schema_fixtures, viterbi_fixtures
from benchmarks.planners.double import in_double
from benchmarks.planners.originals import SCHEMA_ORIGIN, VITERBI_PLAN_NET_ORIGIN
from benchmarks.planners.pdpp_original import PDPP_ORIGIN

FOLDER = Path(__file__).parents[2] / "tests" / "data" / "planners"
COMMAND = "python -m benchmarks.planners.fixtures --original FOLDER"
PARTS: dict[str, tuple[str, Callable[[Path], Mapping[str, Any]]]] = {
    "schema.json": (SCHEMA_ORIGIN, schema_fixtures.fixtures),
    "viterbi_plan_net.json": (VITERBI_PLAN_NET_ORIGIN, viterbi_fixtures.fixtures),
    "hard_viterbi.json": (SCHEMA_ORIGIN, hard_viterbi_fixtures.fixtures),
    "pdpp.json": (PDPP_ORIGIN, pdpp_fixtures.fixtures),
}
"""File -> its origin, and what computes its content."""
DIGITS = 12
"""The tests compare to 1e-9."""


def plain(value: Any) -> Any:
    """Return tensors as nested lists of rounded numbers, records and dictionaries as dictionaries."""
    if isinstance(value, Tensor):
        return plain(value.detach().tolist())
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, Mapping):
        return {key: plain(part) for key, part in value.items()}
    return [plain(part) for part in value] if isinstance(value, list) else value


def document(origin: str, content: Mapping[str, Any], command: str = COMMAND) -> str:
    """Return a file's text: JSON, one key of the first level a line."""
    parts = {"origin": f"{origin}; renewed by `{command}`", **plain(content)}
    lines = [f"{json.dumps(key)}: {json.dumps(value, separators=(',', ':'))}" for key, value in parts.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planners.fixtures", description=__doc__)
    parser.add_argument("--original", type=Path, required=True, help="folder with SCHEMA, PDPP and ViterbiPlanNet")
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS))
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.parts:
        origin, fixtures = PARTS[name]
        with in_double():
            content = fixtures(options.original)
        (FOLDER / name).write_text(document(origin, content))
        print(f"{name}: {(FOLDER / name).stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
