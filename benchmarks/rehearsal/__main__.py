"""Build a store of the paper's size, run every stage after features, print what each took and would take on a GPU.

Two cores, 24 GiB of memory and 40 GB of disk are enough for the whole; figures marked `derived` are arithmetic.
"""

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from benchmarks.rehearsal.accelerator import Card, needs
from benchmarks.rehearsal.ends import ENDS
from benchmarks.rehearsal.laptop import at_most_hours, hours_table, of_epochs
from benchmarks.rehearsal.latents import of_latents
from benchmarks.rehearsal.runner import Measured, PartFailed, Place, run_part
from benchmarks.rehearsal.settings import Part, Way, parts_of
from benchmarks.rehearsal.sizes import DEV_SHARE, PAPER
from benchmarks.rehearsal.steps import predictor_step
from benchmarks.rehearsal.table import derived_table, load, measured_table, save
from deployments.recipes import RECIPES, recipe
from trajpilot_core.store.manifest import ARTIFACTS

GAP = "\n\n"


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rehearsal", description=__doc__)
    parser.add_argument("--recipe", default="atomic", choices=sorted(RECIPES))
    parser.add_argument("--share", type=float, default=1.0, help="of the paper's takes, segments and labels")
    parser.add_argument("--folder", type=Path, default=None, help="where the store lies; default: one that is deleted")
    parser.add_argument("--parts", nargs="*", default=None, help="run these alone; what they read must lie there")
    parser.add_argument("--ends", nargs="*", default=None, metavar="END", help="run these ends, all if none is named")
    parser.add_argument("--steps", type=int, nargs="*", help="time steps of the real predictor on so many windows")
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time")
    parser.add_argument("--epochs", type=int, default=None, help="of trainings, where a recipe runs as it stands")
    parser.add_argument("--json", type=Path, default=None, help="write the figures there")
    parser.add_argument("--against", type=Path, default=None, help="figures of a smaller size, for the growth")
    parser.add_argument("--tflops", type=float, default=989.0, help="of a GPU in bf16; default: an H100's or H200's")
    parser.add_argument("--fp32-tflops", type=float, default=67.0, help="of that GPU in fp32")
    parser.add_argument("--utilisation", type=float, default=0.4, help="share of either that is reached")
    parser.add_argument("--memory-gib", type=float, default=80.0, help="of that GPU")
    return parser.parse_args()


def run(options: argparse.Namespace, folder: Path) -> None:
    """Run what was asked for and print it."""

    def seen(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    if options.ends is not None:
        for name in options.ends or ENDS:
            (folder / name).mkdir(parents=True, exist_ok=True)
            print(f"{name}: {ENDS[name](folder / name, seen)}", flush=True)
        return
    config = recipe(options.recipe)
    if options.steps:
        for windows in options.steps:
            print(f"{predictor_step(config, windows)} (measured)", flush=True)
        return
    as_it_stands = config.features.source == "released"
    sizes = replace(PAPER, dev_share=DEV_SHARE) if as_it_stands else PAPER
    scaled, parts = sizes.scaled(options.share), parts_of(config)
    if as_it_stands and options.epochs:
        scaled, parts = replace(scaled, labels=sizes.labels), of_epochs(parts, options.epochs)
    place = Place(folder, scaled, options.workers)
    asked_for = [part for part in parts if options.parts is None or part.name in options.parts]
    measured = rehearse(asked_for, place, seen)
    small, before = load(options.against) if options.against else (place.sizes, [])
    card = Card(options.tflops, options.fp32_tflops, options.utilisation, options.memory_gib)
    is_for_gpu = not as_it_stands  # such a recipe is for no GPU
    asked = [*needs(config, PAPER), *of_latents(config, PAPER)] if is_for_gpu else []
    tables = [measured_table(measured, before, place.sizes.segments / small.segments)]
    if as_it_stands and options.epochs:
        tables.append(hours_table(at_most_hours(measured, config, options.epochs, options.share), config))
    print(*tables, *([derived_table(asked, card)] if asked else []), sep=GAP)
    if options.json:
        save(options.json, options.recipe, place.sizes, measured, asked, card)


def rehearse(parts: Sequence[Part], place: Place, seen: Callable[[str], None]) -> list[Measured]:
    """Run the store, then both ways side by side, each in a root of its own; return the figures in the order of parts.

    Raises:
        PartFailed: a part ended with an error; the other way is run to its end.
    """

    def follow(way: Way) -> list[Measured]:
        here = place if way != "narrow" else place._replace(folder=place.folder / way)
        return [one for part in parts if part.way == way for one in run_part(part, here, seen)]

    stored = follow("store")
    share_store(place.root, place.folder / "narrow" / "root")
    with ThreadPoolExecutor() as both:
        wide, narrow = both.submit(follow, "wide"), both.submit(follow, "narrow")
    return [*stored, *wide.result(), *narrow.result()]


def share_store(root: Path, other: Path) -> None:
    """Link the finished stages of a root into another one that has none."""
    if (root / ARTIFACTS).exists() and not (other / ARTIFACTS).exists():
        shutil.copytree(root / ARTIFACTS, other / ARTIFACTS, copy_function=os.link)


def main() -> None:
    options = arguments()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="rehearsal-"))
    try:
        run(options, folder)
    except PartFailed as error:
        sys.exit(str(error))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


main()
