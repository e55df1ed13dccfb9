"""Planning in latents in simulated worlds: the informative one, and the controls that must break what it shows.

    python -m benchmarks.latent_worlds --root runs/latent_worlds [--world straight ...] [--dry]

Every world goes through the stages of a run, one after the other, in one thread; a killed call goes on where it was.
At the end, and after `--world`, the tables of the worlds that are done are written into docs/latent, from which
`trajpilot docs` renders docs/latent.md. `--part development` computes the world that recipes are chosen on; nothing of
it is published. Settings: schemas/latent_worlds.py; reasons: docs/decisions/latent-planning.md.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from deployments.recipes.worlds import latents_in_worlds
from deployments.settings import one_thread_per_process
from schemas.latent_worlds import LATENT_WORLDS, LatentWorldsConfig, LatentWorldsPart
from trajpilot_core.errors import TrajPilotError
from trajpilot_core.studies.claims.worlds.jobs import WorldsRoot
from trajpilot_core.studies.latent_worlds.tables import FOLDER, publish_part, require_fixed
from trajpilot_core.studies.latent_worlds.worlds import plan_lines, planned, run_world


def arguments(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line, or `given`."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latent_worlds", description=__doc__)
    parser.add_argument("--root", required=True, help="everything that is computed lies below it")
    parser.add_argument("--part", default="final", choices=get_args(LatentWorldsPart))
    parser.add_argument("--world", nargs="*", default=[], choices=LATENT_WORLDS, help="these alone; default: all")
    parser.add_argument("--device", default="cpu", help="where the models run")
    parser.add_argument("--docs", type=Path, default=Path("docs"), help="tables go into its folder latent")
    parser.add_argument("--dry", action="store_true", help="print what would be computed")
    return parser.parse_args(given)


def run(options: argparse.Namespace) -> None:
    """Compute the worlds of a part and write the tables of those that are done.

    Raises:
        InputError: the final worlds are asked for with other settings than those that were fixed.
    """
    cfg, recipe = LatentWorldsConfig(), latents_in_worlds()
    part, runs = planned(options.part, cfg), WorldsRoot(options.root, options.device)
    if options.dry:
        for line in plan_lines(part, cfg, recipe):
            said(line)
        return
    require_fixed(part, cfg, recipe)
    for world in part.worlds:
        if not options.world or world.name in options.world:
            run_world(world, recipe, runs, said)
    if options.part == "final":
        said(f"tables: {publish_part(part, cfg, recipe, runs, options.docs / FOLDER)}")


def said(line: str) -> None:
    """Say how far it is."""
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    one_thread_per_process()
    try:
        run(arguments())
    except TrajPilotError as error:
        sys.exit(f"latent_worlds: {error}")
