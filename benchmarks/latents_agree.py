"""Features by latents against features of rendered still frames on the same takes, and what sampling such worlds costs.

Run: `python benchmarks/latents_agree.py --folder runs/latents` prints probes and distances of both (rendering and
encoding takes a CPU minute, once per world); `--fast 2500` prints the seconds of tables, motions and features by
latents. Worlds are those of the claims but for their seed, which no claim uses. Source: docs/decisions/latents.md.
"""

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np

from deployments.recipes.worlds import claims
from schemas.checks import GeometryConfig, LeakConfig
from schemas.comparison import DEVELOPMENT_SEED, development_world
from schemas.config import FeatureConfig, PipelineConfig
from schemas.world import LatentMapConfig, WorldConfig
from trajpilot_core.arrays import Array
from trajpilot_core.corpora.egoexo4d.takes import take_id
from trajpilot_core.corpora.records.tables import Tables
from trajpilot_core.encoders.video.embed import load_embedder, torch_threads
from trajpilot_core.simworld.feature_space import by_take, still_world, world_tables
from trajpilot_core.simworld.sample import sample_world
from trajpilot_core.simworld.world.truth import World
from trajpilot_core.stages.feature_space import latent_maker, motions_table, still_features
from trajpilot_core.studies.latents_agreement import Reading, readings, segment_facts


def by_latents(world: World, tables: Tables, cfg: FeatureConfig) -> Array:
    """Return the (S, D) features by latents."""
    truth, maker = {take_id(take.uid): take for take in world.takes}, latent_maker(world, cfg)
    made = [maker.make(truth[name], (a, b))[1] for name, (_, a, b) in by_take(tables.segments).items()]
    return np.concatenate(made).astype(np.float64)


def by_frames(world: World, tables: Tables, cfg: FeatureConfig, folder: Path) -> Array:
    """Return the (S, D) features of rendered frames; they are kept in `folder`."""
    kept = folder / f"frames-{still_world(world.config, cfg.size_px).digest()[:12]}-{cfg.digest()[:12]}.npy"
    if not kept.exists():
        folder.mkdir(parents=True, exist_ok=True)
        truth = {take_id(take.uid): take for take in world.takes}
        made = partial(still_features, world, load_embedder(cfg, "cpu", folder / "encoder"))
        with torch_threads(cfg):
            parts = [made(truth[name], (a, b))[1] for name, (_, a, b) in by_take(tables.segments).items()]
        np.save(kept, np.concatenate(parts))
    return np.asarray(np.load(kept), np.float64)


def compare(config: WorldConfig, recipe: PipelineConfig, folder: Path) -> None:
    """Print the table of one world."""
    cfg = recipe.features
    world = sample_world(still_world(config, cfg.size_px))
    tables = world_tables(world, recipe.ingest)
    facts = segment_facts(world, tables)
    sides = (by_frames(world, tables, cfg, folder), by_latents(world, tables, cfg))
    found = [readings(side, facts, LeakConfig(), GeometryConfig()) for side in sides]
    n_test = int(facts.is_test.sum())
    print(f"seed {config.seed}: {len(facts.ids)} segments of {len(facts.take_ids)} takes, {n_test} segments tested\n")
    print("| | by frames | by latents | guessing |\n|---|---|---|---|")
    for frames, latents in zip(*found, strict=True):
        chance = "" if frames.chance is None else f"{frames.chance:.1f}"
        print(f"| {frames.name} | {printed(frames)} | {printed(latents)} | {chance} |")


def printed(reading: Reading) -> str:
    """Return a share with its standard error, or a distance."""
    return f"{reading.value:.2f}" if reading.error is None else f"{reading.value:.1f} ± {reading.error:.1f}"


def time_world(config: WorldConfig, recipe: PipelineConfig) -> None:
    """Print the CPU seconds of every step of a world by latents."""
    clock, seconds = time.process_time(), dict[str, float]()

    def done(what: str) -> None:
        nonlocal clock
        seconds[what], clock = time.process_time() - clock, time.process_time()

    world = sample_world(config)
    done("sampling")
    tables = world_tables(world, recipe.ingest)
    done("tables")
    motions_table(world, tables.segments)
    done("motions")
    by_latents(world, tables, recipe.features)
    done("features")
    parts = ", ".join(f"{what} {part:.1f}" for what, part in seconds.items())
    takes = config.train_takes + config.test_takes
    print(f"{takes} takes, {tables.segments.num_rows} segments: {sum(seconds.values()):.1f} CPU s ({parts})")


def main() -> None:
    """Parse the arguments and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--takes", type=int, default=120, help="takes of the compared world")
    parser.add_argument("--seed", type=int, default=DEVELOPMENT_SEED, help="its seed")
    parser.add_argument("--folder", type=Path, default=Path("runs/latents"), help="where features by frames are kept")
    parser.add_argument("--fast", type=int, default=0, help="time a world of so many takes instead")
    asked = parser.parse_args()
    if asked.fast:
        time_world(development_world(asked.seed, asked.fast), claims())
        return
    print(f"map fixed on {LatentMapConfig().fixed_on}, digest {LatentMapConfig().digest()[:12]}")
    compare(development_world(asked.seed, asked.takes), claims(), asked.folder)


if __name__ == "__main__":
    main()
