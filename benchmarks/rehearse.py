"""A store of the paper's size through every stage after the features; memory, seconds and rows of each: docs/scale.md.

    python benchmarks/rehearse.py [--recipe atomic] [--whole] [--share 1] [--folder FOLDER] [--json FILE] [--workers 2]

The output of ingest, trajectories and features is sampled: with real shapes and random content, written by the declared
stages with another `run`, so that the executor makes keys, shards and manifests. Everything that decides memory or disk
is real: takes, segments, windows, labels, features, candidates. Trainings last one epoch; models are narrow where their
width costs only arithmetic. The stages up to the scorer run twice: at the real width of the text space (`wide`), and
in a narrow one up to the evaluation (`narrow`), which ranks every label at every step of every test window for every
row. With `--whole` every stage after the features runs once, with the recipe's own settings: for recipes that a CPU can
train (`laptop`). Each stage runs in its own process; memory and disk are those of its run record (engine/needs.py).
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from deployments.recipes import RECIPES, recipe
from schemas.annotation import (
    DOF,
    MOTIONS,
    CorpusCount,
    Label,
    ScenarioLabel,
    Segment,
    SegmentDetails,
    Take,
    Window,
    features_schema,
    motions_schema,
)
from schemas.arrow import arrow_schema, table_of
from schemas.base import Record
from schemas.config import FeatureConfig, IngestConfig, PipelineConfig, RunOptions
from schemas.poses import TrajectoryConfig
from schemas.training import TrainConfig
from trajpilot_core.corpora.records.annotations import label_rows
from trajpilot_core.corpora.records.closed_vocabulary import label_classes
from trajpilot_core.corpora.records.contents import contents_of
from trajpilot_core.corpora.records.tables import window_rows
from trajpilot_core.engine.execution.execute import execute
from trajpilot_core.engine.needs import last_note
from trajpilot_core.engine.stage import AnyStage, Source, Work
from trajpilot_core.stages import stages_of
from trajpilot_core.store.files import open_folder
from trajpilot_core.store.manifest import ARTIFACTS

CHECKOUT = Path(__file__).resolve().parents[1]
SAMPLED = ("ingest", "trajectories", "features")
"""Stages with sampled output."""
WIDE = ("text_bank", "alignment", "predictor", "scorer")
"""Stages that run at the real width of the text space, as far as the recipe has them."""
TEXT_WIDTH, NARROW_TEXT = 768, 64
"""Widths of EgoVLPv2 and of the narrow way."""
NARROW = {"width": 16, "layers": 1, "heads": 2, "hidden": 32, "queries": 2}
WIDE_BATCH, NARROW_BATCH = 64, 256
"""Windows per step of the predictor: the pooled loss, half of a step in the wide text space, compares every token with
the labels of its batch."""
QUERIES_PER_HORIZON = 1_200
GIB = 2**30

SEED = 20_260_520
CORPUS = "egoexo4d"
STEP_S = 4.0
"""Time from one segment of a take to the next, which is also their length."""
LABEL_SHARE, TAKE_SHARE, NOISE = 0.6, 0.4, 0.7
"""Standard deviations of the parts of label, take and segment in a feature: ends are recognised sometimes."""
METRES = 0.02
TEST_SHARE = 0.0715
"""Share of the takes: 60,186 of 842,295 windows. Source: docs/scale.md."""
TAKES_OF_CAPTURE = 2
SHORTEST_TAKE = 9
"""Segments per take, at least, so that it has a window of every horizon."""
Numbers = NDArray[np.int64]
Ways = dict[str, tuple[PipelineConfig, list[str]]]
"""Name of a way -> its settings and its stages, in order."""
R = TypeVar("R", bound=Record)


@dataclass(frozen=True)
class Sizes:
    """Counts of one store. Windows follow from them: every start, the recipe's horizons."""

    takes: int
    segments: int
    labels: int
    dev_share: float = 0.02
    """Share of the takes. Ranking every label for every dev window is most of the time of a training on a CPU, and only
    arithmetic; the other takes are trained on."""

    def scaled(self, share: float) -> Self:
        """Return `share` of every count, rounded."""
        counts = (max(1, round(share * n)) for n in (self.takes, self.segments, self.labels))
        return type(self)(*counts, dev_share=self.dev_share)


PAPER = Sizes(takes=2_549, segments=151_838, labels=8_472)
"""Source: paper, 4.1; segments as our reader counts them (docs/decisions/ingest.md)."""


@dataclass(frozen=True)
class Measured:
    """The cost of one stage."""

    way: str
    stage: str
    seconds: float
    cpu_s: float
    """CPU seconds of the process and its children."""
    peak_bytes: int
    disk_bytes: int
    rows: int


class StageFailed(Exception):
    """A stage ended with an error; the message is the end of its output."""


def changed(record: R, **changes: object) -> R:
    """Return a record with those changes that are settings of it."""
    return record.replace(**{name: value for name, value in changes.items() if name in type(record).model_fields})


def shortened(record: R, batch: int | None = None) -> R:
    """Return settings of a stage with one seed, and with one epoch of each of its trainings."""
    values = {name: getattr(record, name) for name in type(record).model_fields}
    trainings = {name: train for name, train in values.items() if isinstance(train, TrainConfig)}
    short = {
        name: train.replace(epochs=1, patience=None, batch=batch or train.batch) for name, train in trainings.items()
    }
    return changed(record, **short, **({"seeds": values["seeds"][:1]} if "seeds" in values else {}))


def wide_text(config: PipelineConfig) -> PipelineConfig:
    """Return settings with one seed, chain and epoch; all widths are real except those of predictor and scorer."""
    queries = QUERIES_PER_HORIZON * (config.ingest.max_horizon - config.ingest.min_horizon + 1)
    return config.replace(
        text_bank=config.text_bank.replace(encoder="bag_of_words", model=None, bag_width=TEXT_WIDTH),
        alignment=shortened(config.alignment).replace(folds=1, fold_share=None),
        predictor=changed(shortened(config.predictor, WIDE_BATCH), **NARROW),
        scorer=changed(shortened(config.scorer, 128), width=32, max_queries=queries, temperatures=(0.1,)),
        evaluation=config.evaluation.replace(shuffles=2),
        report=config.report.replace(frames=False),
    )


def narrow_text(wide: PipelineConfig) -> PipelineConfig:
    """Return settings under which all other stages, including the evaluation of all test windows, take minutes."""
    search = wide.latent.search.replace(samples=8, iterations=1, elites=2)
    return wide.replace(
        text_bank=wide.text_bank.replace(bag_width=NARROW_TEXT),
        alignment=changed(wide.alignment, **NARROW),
        predictor=shortened(wide.predictor, NARROW_BATCH),
        scorer=wide.scorer.replace(candidates=8),
        evaluation=wide.evaluation.replace(
            headroom_pools=tuple(pool for pool in wide.evaluation.headroom_pools if pool <= 8)
        ),
        latent=changed(shortened(wide.latent, NARROW_BATCH), **NARROW, candidates=8, search=search),
    )


def ways_of(config: PipelineConfig, *, whole: bool = False) -> Ways:
    """Return settings and stages of the sampled store and of the ways after it: one with the recipe's own settings if
    it is the whole, else the wide way and the narrow way with all other stages."""
    names = list(stages_of(config))
    store, rest = ([name for name in names if (name in SAMPLED) == is_sampled] for is_sampled in (True, False))
    if whole:
        config = config.replace(report=config.report.replace(frames=False))
        return {"store": (config, store), "whole": (config, rest)}
    wide = wide_text(config)
    of_wide = [name for name in names if name in WIDE]
    return {"store": (wide, store), "wide": (wide, of_wide), "narrow": (narrow_text(wide), rest)}


def run_stage(way: str, stage: str, config: PipelineConfig, root: Path, sizes: Sizes, workers: int) -> Measured:
    """Run one stage in its own process and return its cost. Raises StageFailed: it ended with an error."""
    folder = root.parent
    folder.mkdir(parents=True, exist_ok=True)
    options = RunOptions(root=str(root), data_root=str(folder), device="cpu", workers=workers, force=(stage,))
    request, answer, log = (folder / f"{stage}.{kind}" for kind in ("request.json", "answer.json", "log"))
    settings = {"config": config.model_dump(mode="json"), "options": options.model_dump(mode="json")}
    request.write_text(
        json.dumps({"stage": stage, "sizes": astuple(sizes), "answer": str(answer), **settings}), encoding="utf-8"
    )
    with log.open("w") as output:
        command = [sys.executable, __file__, "--child", str(request)]
        child = subprocess.run(command, cwd=CHECKOUT, stdout=output, stderr=subprocess.STDOUT, check=False)
    if child.returncode:
        raise StageFailed(f"{way}/{stage} ended with {child.returncode}: {log.read_text(encoding='utf-8')[-2000:]}")
    measured = Measured(way=way, stage=stage, **json.loads(answer.read_text(encoding="utf-8")))
    print(json.dumps(asdict(measured)), file=sys.stderr, flush=True)
    return measured


def cpu_s() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def as_child(request: Path) -> None:
    """Run the stage of a request and write its cost."""
    job = json.loads(request.read_text(encoding="utf-8"))
    config, options = PipelineConfig.model_validate(job["config"]), RunOptions.model_validate(job["options"])
    stages = planted(stages_of(config), Sizes(*job["sizes"]))
    imported_s, began = cpu_s(), time.monotonic()
    outcome = execute(stages[job["stage"]], config, options, stages)
    seconds, spent_s = time.monotonic() - began, cpu_s() - imported_s
    note = last_note(open_folder(options.root), job["stage"])  # None of a stage with nothing to compute
    peak, disk = (0, 0) if note is None else (note[1].memory_bytes or 0, note[1].disk_bytes)
    took = {"seconds": round(seconds, 2), "cpu_s": round(spent_s, 2), "peak_bytes": peak, "disk_bytes": disk}
    Path(job["answer"]).write_text(json.dumps(took | {"rows": outcome.n_out}), encoding="utf-8")


def rehearse(ways: Ways, sizes: Sizes, folder: Path, workers: int) -> list[Measured]:
    """Sample the store, then run the other ways concurrently, each in its own root.

    Raises StageFailed: a stage ended with an error; the other way still runs to its end.
    """

    def follow(way: str, root: Path) -> list[Measured]:
        settings, stages = ways[way]
        return [run_stage(way, stage, settings, root, sizes, workers) for stage in stages]

    first, *others = (way for way in ways if way != "store")
    roots = {way: folder / way / "root" for way in (first, *others)}
    measured = follow("store", roots[first])
    for way in others:
        shutil.rmtree(roots[way], ignore_errors=True)
        shutil.copytree(roots[first] / ARTIFACTS, roots[way] / ARTIFACTS, copy_function=os.link)
    with ThreadPoolExecutor() as concurrent:
        runs = [concurrent.submit(follow, way, root) for way, root in roots.items()]
    return measured + [cost for run in runs for cost in run.result()]


def table(measured: Sequence[Measured]) -> str:
    """Return the costs of all stages as a Markdown table."""
    header = ["way", "stage", "seconds", "CPU s", "peak memory, GiB", "disk, GB", "rows"]
    rows = [
        [
            m.way,
            m.stage,
            *(f"{n:,.1f}" for n in (m.seconds, m.cpu_s)),
            *(f"{n:.2f}" for n in (m.peak_bytes / GIB, m.disk_bytes / 1e9)),
            f"{m.rows:,}",
        ]
        for m in measured
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in (header, ["---"] * len(header), *rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="atomic", choices=sorted(RECIPES))
    parser.add_argument("--whole", action="store_true", help="run the recipe's own settings once, every epoch of them")
    parser.add_argument("--share", type=float, default=1.0, help="of the paper's takes, segments and labels")
    parser.add_argument("--folder", type=Path, help="folder of the store; default: a temporary one")
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--workers", type=int, default=2, help="trainings at a time")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        as_child(options.child)
        return
    config, folder = recipe(options.recipe), options.folder or Path(tempfile.mkdtemp(prefix="rehearse-"))
    dev_share = config.ingest.dev_share if options.whole else PAPER.dev_share
    sizes = replace(PAPER, dev_share=dev_share).scaled(options.share)
    try:
        measured = rehearse(ways_of(config, whole=options.whole), sizes, folder, options.workers)
    except StageFailed as error:
        sys.exit(str(error))
    finally:
        if options.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    print(table(measured))
    if options.json:
        figures = {"recipe": options.recipe, "sizes": asdict(sizes), "measured": [asdict(stage) for stage in measured]}
        options.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


def planted(stages: Mapping[str, AnyStage], sizes: Sizes) -> dict[str, AnyStage]:
    """Return the stages, the first three with sampled output."""
    source = Source("", facts={"rehearsal": [sizes.takes, sizes.segments, sizes.labels, SEED, sizes.dev_share]})
    ingest = replace(stages["ingest"], run=partial(write_tables, sizes=sizes), sources=lambda *_: [source])
    motions = replace(stages["trajectories"], run=write_motions)
    features = replace(stages["features"], run=write_features)
    return {**stages, "ingest": ingest, "trajectories": motions, "features": features}


def write_tables(work: Work[IngestConfig], sizes: Sizes) -> None:
    """Write the tables of ingest."""
    rng = np.random.default_rng(SEED)
    free = sizes.segments - SHORTEST_TAKE * sizes.takes
    if free < 0:
        raise ValueError(f"{sizes.segments} segments are fewer than {SHORTEST_TAKE} for each of {sizes.takes} takes")
    weight = rng.lognormal(0.0, 0.7, sizes.takes)  # uneven as in the corpus; the sum of the counts is exact
    counts = SHORTEST_TAKE + rng.multinomial(free, weight / weight.sum()).astype(np.int64)
    splits = splits_of(sizes.takes, sizes.dev_share, rng)
    takes = table_of(Take, [_take(i, int(n), split) for i, (n, split) in enumerate(zip(counts, splits, strict=True))])
    segments = segments_table(takes, counts, sizes, rng)
    texts = [segments.column(name).to_pylist() for name in ("label_id", "label", "split")]
    work.sink.table("takes", takes)
    work.sink.table("segments", segments)
    labels = table_of(Label, label_rows(zip(*texts, strict=True)))
    work.sink.table("labels", labels)
    work.sink.table("label_classes", label_classes(labels, None)[0])
    windows = windows_table(segments, (work.config.min_horizon, work.config.max_horizon))
    work.sink.table("windows", windows)
    work.sink.table("take_contents", contents_of(takes, segments, windows))
    schema = arrow_schema(SegmentDetails)
    known = {name: segments[name] for name in ("segment_id", "take_id")}
    nulls = [known.get(field.name, pa.nulls(segments.num_rows, field.type)) for field in schema]
    work.sink.table("details", pa.table(nulls, schema=schema))
    work.sink.table("scenario_labels", arrow_schema(ScenarioLabel).empty_table())
    work.sink.table("counts", arrow_schema(CorpusCount).empty_table())
    work.sink.count(segments.num_rows, segments.num_rows)


def splits_of(n_takes: int, dev_share: float, rng: np.random.Generator) -> list[str]:
    """Return the split of each take, equal within a capture. No split is empty if there are enough captures."""
    n = -(-n_takes // TAKES_OF_CAPTURE)
    if n < 3:
        return ["train"] * n_takes
    dev, test = (max(1, round(share * n)) for share in (dev_share, TEST_SHARE))
    named = np.array((["dev"] * dev + ["test"] * test + ["train"] * n)[:n])
    return [str(name) for name in rng.permutation(named)[np.arange(n_takes) // TAKES_OF_CAPTURE]]


def _take(i: int, n_segments: int, split: str) -> Take:
    """Return a take; the files that it names do not exist."""
    folder, capture = f"takes/t{i:05d}", f"c{i // TAKES_OF_CAPTURE:05d}"
    return Take(
        take_id=f"{CORPUS}:{i:08x}-0000-4000-8000-000000000000",
        corpus=CORPUS,
        name=f"rehearsal_{i:05d}",
        split=split,
        scenario=f"scenario {i % 8}",
        participant=str(i // (3 * TAKES_OF_CAPTURE)),
        capture=capture,
        video=f"{folder}/video.mp4",
        trajectory=f"{folder}/closed_loop_trajectory.csv",
        timesync=f"captures/{capture}/timesync.csv",
        calibration=f"{folder}/online_calibration.jsonl",
        camera="aria01_214-1",
        timesync_start=0,
        timesync_end=round(30 * STEP_S * n_segments),
        duration_s=STEP_S * n_segments,
        fps=30.0,
        n_frames=round(30 * STEP_S * n_segments),
    )


def segments_table(takes: pa.Table, counts: Numbers, sizes: Sizes, rng: np.random.Generator) -> pa.Table:
    """Return the segments, take by take; few labels are frequent, and each occurs."""
    take = np.repeat(np.arange(len(counts)), counts)
    position = np.arange(len(take)) - np.repeat(np.cumsum(counts) - counts, counts)
    rank = np.arange(sizes.labels)
    chance = 1 / (rank + 2.7)
    label = rng.choice(sizes.labels, len(take), p=chance / chance.sum())
    label[rng.permutation(len(take))[: sizes.labels]] = rank[: len(take)]
    ids = np.array(takes["take_id"].to_pylist())[take]
    text = np.array([f"verb{n % 150} the noun{n // 7 % 900} place{n}" for n in range(sizes.labels)])[label]
    columns = {
        "segment_id": np.char.add(np.char.add(ids, ":"), np.char.zfill(position.astype(str), 4)),
        "take_id": ids,
        "split": np.array(takes["split"].to_pylist())[take],
        "position": position,
        "run": np.zeros_like(position),
        "start_s": STEP_S * position,
        "end_s": STEP_S * (position + 1.0),
        "anchor_s": STEP_S * (position + 0.5),
        "raw_text": np.char.add("C ", text),
        "label": text,
        "label_id": text,
        "annotation_uid": ids,
        "annotator": np.full(len(take), "rehearsal"),
    }
    return pa.table(columns).cast(arrow_schema(Segment))


def windows_table(segments: pa.Table, horizons: tuple[int, int]) -> pa.Table:
    """Return all windows of the horizons from the first to the last."""
    take = segments["take_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    run = segments["run"].to_numpy()
    named = segments.select(["take_id", "split", "position"])
    ids = segments["segment_id"].combine_chunks()
    parts = []
    for horizon in range(horizons[0], horizons[1] + 1):
        rows = window_rows(take, run, horizon)
        first_segments = named.take(pa.array(rows[:, 0]))
        position = pc.utf8_lpad(first_segments["position"].cast(pa.string()), width=4, padding="0")
        offsets = pa.array(np.arange(0, rows.size + 1, horizon, dtype=np.int32))
        columns = {
            "window_id": pc.binary_join_element_wise(first_segments["take_id"], f"h{horizon}", position, ":"),
            "take_id": first_segments["take_id"],
            "split": first_segments["split"],
            "horizon": pa.array(np.full(len(rows), horizon)),
            "segment_ids": pa.ListArray.from_arrays(offsets, ids.take(pa.array(rows.ravel()))),
        }
        parts.append(pa.table(columns).cast(arrow_schema(Window)))
    return pa.concat_tables(parts)


def shards(work: Work[Any]) -> Iterator[tuple[str, int, pa.Table, Numbers, np.random.Generator]]:
    """Yield take id, its number, its segments in order of their ids, their labels as numbers, and randomness."""
    segments = work.inputs.table("segments", ["take_id", "segment_id", "start_s", "end_s", "label_id"])
    codes = segments["label_id"].combine_chunks().dictionary_encode().indices.to_numpy().astype(np.int64)
    takes = segments["take_id"].combine_chunks().dictionary_encode()
    place = takes.indices.to_numpy()
    first = np.flatnonzero(np.r_[True, place[1:] != place[:-1]])
    bounds = dict(zip(takes.dictionary.to_pylist(), zip(first, np.r_[first[1:], len(place)], strict=True), strict=True))
    for source in work.pending:
        begin, end = bounds[source.shard]
        rng = np.random.default_rng([SEED, int(begin)])
        yield source.shard, int(begin), segments.slice(begin, end - begin), codes[begin:end], rng


def effects_of(labels: Numbers, width: int) -> NDArray[np.float32]:
    """Return (S, width): a vector of unit variance for each label, equal wherever the label occurs."""
    basis = np.random.default_rng(SEED).standard_normal((32, width), np.float32) / np.sqrt(np.float32(32))
    codes = np.stack([np.random.default_rng([SEED, int(n)]).standard_normal(32, np.float32) for n in labels])
    effects: NDArray[np.float32] = codes @ basis
    return effects


def write_motions(work: Work[TrajectoryConfig]) -> None:
    """Deliver the motions of the pending takes."""
    cfg, width = work.config, MOTIONS * DOF
    for take, _, segments, labels, rng in shards(work):
        n = segments.num_rows
        values = effects_of(labels, width) + rng.standard_normal((1, width), np.float32)
        values += rng.standard_normal((n, width), np.float32)
        same = {"source": cfg.source, "frame": cfg.frame, "scale": "metric", "coverage": 1.0, "quality": 1.0}
        columns: dict[str, Any] = {"segment_id": segments["segment_id"], "take_id": segments["take_id"]}
        columns |= {name: [value] * n for name, value in {**same, "max_gap_s": 0.0}.items()}
        columns["motions"] = pa.FixedSizeListArray.from_arrays(pa.array((METRES * values).ravel()), width)
        work.sink.shard(take, pa.table(columns, schema=motions_schema()), [], n)


def write_features(work: Work[FeatureConfig]) -> None:
    """Deliver the features of the pending takes, as wide as those of the configured encoder, or as released ones."""
    cfg = work.config
    width, tokens = cfg.token_shape
    is_released = cfg.source == "released"
    schema = features_schema(width) if is_released else features_schema(width * tokens, tokens)
    for take, _, segments, labels, rng in shards(work):
        n = segments.num_rows
        values = LABEL_SHARE * effects_of(labels, width * tokens)
        values += TAKE_SHARE * rng.standard_normal((1, width * tokens), np.float32)
        values += NOISE * rng.standard_normal(values.shape, np.float32)
        times_s = np.linspace(segments["start_s"].to_numpy(), segments["end_s"].to_numpy(), cfg.n_frames, axis=1)
        offsets = pa.array(np.arange(0, times_s.size + 1, cfg.n_frames, dtype=np.int32))
        columns = {
            "segment_id": segments["segment_id"],
            "take_id": segments["take_id"],
            "encoder": ["rehearsal"] * n,
            "frame_times_s": pa.ListArray.from_arrays(offsets, pa.array(times_s.ravel())),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(values.astype(np.float16).ravel()), width * tokens),
        }
        work.sink.shard(take, pa.table({name: columns[name] for name in schema.names}, schema=schema), [], n)


if __name__ == "__main__":
    main()
