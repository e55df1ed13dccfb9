"""Search the recipe of a learned row: one seeded random search, scored on dev; test data are not opened.

    python -m benchmarks.search_recipe --root <root> --data <corpus> --row predictor [--trials 12] [--minutes 4]

Brings the stages before the row up to date, runs every trial as an ordinary execution of the row's stage below the
root (a killed search goes on where it was), prints the table of trials and writes it as JSON and Markdown. The chosen
trial is left as the output that counts. Minutes are those of one training on one thread, by the cost model of
`trajpilot_core/studies/recipe_search.py`; a trial trains every model of its stage, `--workers` at a time.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import get_args

from deployments.recipes import RECIPES, recipe
from schemas.config import RunOptions
from schemas.search import SearchConfig, SearchedRow
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.report.committed import committed_under
from trajpilot_core.stages import STAGES
from trajpilot_core.studies.recipe_search import search, trials_table


def arguments() -> argparse.Namespace:
    """Read the command line."""
    cfg = SearchConfig()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_recipe", description=__doc__)
    parser.add_argument("--root", required=True, help="of the search; no other run may use it meanwhile")
    parser.add_argument("--data", required=True, help="folder of the corpus")
    parser.add_argument("--row", required=True, choices=get_args(SearchedRow))
    parser.add_argument("--recipe", default="claims", choices=sorted(RECIPES), help="what the trials differ from")
    parser.add_argument("--trials", type=int, default=cfg.trials)
    parser.add_argument("--minutes", type=float, default=cfg.minutes, help="of one training")
    parser.add_argument("--seed", type=int, default=cfg.seed)
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time")
    parser.add_argument("--max-reject-ratio", type=float, default=0.1, help="simulated worlds are broken on purpose")
    parser.add_argument("--out", type=Path, default=None, help="folder of the table; default: <root>/search")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    """Search, print the table and write it."""
    cfg = SearchConfig(seed=options.seed, trials=options.trials, minutes=options.minutes)
    base = recipe(options.recipe)
    where = RunOptions(
        root=options.root,
        data_root=options.data,
        workers=options.workers,
        max_reject_ratio=options.max_reject_ratio,
    )
    for name in list(STAGES)[: list(STAGES).index(options.row)]:
        said(f"{name}: {execute(STAGES[name], base, where, STAGES).message()}")
    rows = search(options.row, cfg, base, where, STAGES, said)
    table = trials_table(options.row, rows, cfg, committed_under(base, where).warning())
    print(table)
    out = options.out or Path(options.root) / "search"
    out.mkdir(parents=True, exist_ok=True)
    found = {"search": cfg.content(), "recipe": options.recipe, "trials": [row.content() for row in rows]}
    (out / f"{options.row}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (out / f"{options.row}.md").write_text(table, encoding="utf-8")


def said(line: str) -> None:
    """Say how far the search is."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        run(arguments())
    except TrajPilotError as error:
        sys.exit(f"search_recipe: {error}")
