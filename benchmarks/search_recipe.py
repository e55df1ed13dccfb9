"""Search the recipe of a learned row: one seeded random search, scored on dev; test data are not opened.

    python -m benchmarks.search_recipe --root <root> --row predictor [--data <corpus>] [--trials 12] [--minutes 4]

Without `--data` the corpus is the development world, which no claim uses: by latents, 1,000 training takes and 500 test
takes that nothing opens. Brings the stages before the row up to date, runs every trial as an ordinary execution of the
row's stage below the root (a killed search goes on where it was), prints the table of trials and writes it as JSON,
after every trial, and as Markdown. Another machine goes on from the JSON by `--earlier`. The chosen trial is left as
the output that counts. Minutes are those of one training on one thread, by the cost model of
`trajpilot_core/studies/recipe_search.py`; a trial trains every model of its stage, `--workers` at a time. For all rows
but the scorer there is one chain, which is fitted on all training takes: nothing reads the models of the folds.
"""

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from deployments.recipes import RECIPES, recipe
from schemas.comparison import DEVELOPMENT_SEED, development_world
from schemas.config import RunOptions
from schemas.search import SearchConfig, SearchedRow, TrialRow
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.order import upstream
from trajpilot_core.engine.stage import AnyStage
from trajpilot_core.errors import InputError, TrajPilotError
from trajpilot_core.report.committed import committed_under
from trajpilot_core.simworld.feature_space import describe_world
from trajpilot_core.stages import FEATURE_SPACE_STAGES, STAGES
from trajpilot_core.studies.claims.worlds.plan import in_one_chain
from trajpilot_core.studies.recipe_search import CORNERS, search, trials_table

DEVELOPMENT = "**Simulated**: the development world, by latents. It tests planners, not the pipeline."


def arguments() -> argparse.Namespace:
    """Read the command line."""
    cfg = SearchConfig()
    parser = argparse.ArgumentParser(prog="python -m benchmarks.search_recipe", description=__doc__)
    parser.add_argument("--root", required=True, help="of the search; no other run may use it meanwhile")
    parser.add_argument("--data", help="folder of a corpus; default: the development world, drawn below the root")
    parser.add_argument("--takes", type=int, default=1500, help="of the development world; a third are closed")
    parser.add_argument("--row", required=True, choices=get_args(SearchedRow))
    parser.add_argument("--recipe", default="claims", choices=sorted(RECIPES), help="what the trials differ from")
    parser.add_argument("--trials", type=int, default=cfg.trials)
    parser.add_argument("--minutes", type=float, default=cfg.minutes, help="of one training")
    parser.add_argument("--seed", type=int, default=cfg.seed)
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time")
    parser.add_argument("--max-reject-ratio", type=float, default=0.1, help="simulated worlds are broken on purpose")
    parser.add_argument("--earlier", type=Path, help="JSON of this search from elsewhere: its trials are not run again")
    parser.add_argument("--out", type=Path, default=None, help="folder of the table; default: <root>/search")
    return parser.parse_args()


def run(options: argparse.Namespace) -> None:
    """Search, print the table and write it."""
    cfg = SearchConfig(seed=options.seed, trials=options.trials, minutes=options.minutes)
    base, data, stages = recipe(options.recipe), options.data, STAGES
    if data is None:
        data, stages = f"{options.root}/world", FEATURE_SPACE_STAGES
        describe_world(development_world(DEVELOPMENT_SEED, options.takes), Path(data))
    base = base.replace(
        attention=base.attention.replace(variants=CORNERS), scorer=base.scorer.replace(ablations=(), plus=None)
    )
    if options.row != "scorer":
        base = base.replace(alignment=in_one_chain(base.alignment))
    where = RunOptions(
        root=options.root,
        data_root=data,
        workers=options.workers,
        max_reject_ratio=options.max_reject_ratio,
    )
    for name in needed(stages, options.row):
        said(f"{name}: {execute(stages[name], base, where, stages).message()}")
    out = options.out or Path(options.root) / "search"
    out.mkdir(parents=True, exist_ok=True)

    def keep(rows: list[TrialRow], line: str) -> None:
        found = {"search": cfg.content(), "recipe": options.recipe, "trials": [row.content() for row in rows]}
        (out / f"{options.row}.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        said(line)

    rows = search(options.row, cfg, base, where, stages, keep, read_trials(options.earlier, cfg))
    warning = DEVELOPMENT if options.data is None else committed_under(base, where).warning()
    table = trials_table(options.row, rows, cfg, warning)
    print(table)
    (out / f"{options.row}.md").write_text(table, encoding="utf-8")


def read_trials(file: Path | None, cfg: SearchConfig) -> list[TrialRow]:
    """Read the trials that a search left as JSON; none without a file.

    Raises:
        InputError: it is no such file, or of a search with other settings.
    """
    if file is None:
        return []
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        search_was, trials = found["search"], [TrialRow.model_validate(row) for row in found["trials"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{file} holds no trials of a search: {error}; name the JSON that a search wrote") from error
    if {**search_was, "trials": cfg.trials} != cfg.content():
        raise InputError(f"{file} is of a search with other settings; give the same --seed, --minutes and space")
    return trials


def needed(stages: Mapping[str, AnyStage], row: str) -> list[str]:
    """Return the stages that a stage reads from, through others too, in order."""
    reads, found, asked = upstream(stages, list(stages)), set[str](), [row]
    while asked:
        new = set(reads[asked.pop()]) - found
        found |= new
        asked += new
    return [name for name in stages if name in found]


def said(line: str) -> None:
    """Say how far the search is."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    try:
        run(arguments())
    except TrajPilotError as error:
        sys.exit(f"search_recipe: {error}")
