"""How much a stage has to work on, from looks alone: manifests, one column of the windows, and schemas.

What a root does not hold yet counts as the paper's corpus has it. Imports neither torch nor Prefect.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from schemas.artifacts import Entry
from schemas.config import FeatureConfig, PipelineConfig, TextConfig
from schemas.plugins import is_plugin
from schemas.released import RELEASED_WIDTHS
from schemas.vjepa import TUBELET, VJEPA_SIZES
from schemas.world import WorldConfig
from trajpilot_core.errors import StoreError
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import stage_folder
from trajpilot_core.store.parquet import Readable, open_parquet, read_table

Entries = Mapping[str, tuple[str, Entry]]
"""Entry name -> (stage that wrote it, the entry)."""
PAPER_WINDOWS = {"train": 698_595, "dev": 83_514, "test": 60_186}
HIERARCHY = 4
"""Levels that a hierarchical feature joins."""
BERT_WIDTH, LARGE_WIDTH = 768, 1024
"""Text widths of EgoVLPv2, and of a larger encoder whose files nobody has looked at."""
PLUGIN_WIDTH = 1024
"""Assumed of a plugin's video encoder before its features are there: nothing is imported to plan a run."""


@dataclass(frozen=True)
class CorpusSizes:
    """Counts of a corpus and the widths of what is kept of it; the defaults are the paper's corpus."""

    config: PipelineConfig
    """Settings of the run: a stage's need depends on those of the models that it reads, too."""
    takes: int = 2_549
    segments: int = 151_838
    windows: Mapping[str, int] = field(default_factory=lambda: dict(PAPER_WINDOWS))
    """By split."""
    horizons: tuple[int, ...] = (3, 4, 5, 6, 7, 8)
    """Each has about as many windows."""
    labels: int = 8_472
    tokens: int = 1
    """Parts of a feature, each of `feature_width`."""
    feature_width: int = 0
    text_width: int = 0
    assumed: tuple[str, ...] = ()
    """Which of the counts are not known from the root; widths follow from the settings until features are there."""
    data_root: str | None = None
    """Where the corpus lies, of a stage that is about to begin: a simulated world describes itself there."""

    @property
    def feature_numbers(self) -> int:
        """Numbers of one segment's feature."""
        return self.tokens * self.feature_width

    @property
    def all_windows(self) -> int:
        """Windows of all splits."""
        return sum(self.windows.values())

    @property
    def positions(self) -> int:
        """Positions of all windows together."""
        return self.all_windows * sum(self.horizons) // max(1, len(self.horizons))

    @property
    def longest(self) -> int:
        """Positions of the longest window."""
        return max(self.horizons, default=0)

    def of_a_horizon(self, split: str) -> int:
        """Return about how many windows of a split one horizon has."""
        return -(-self.windows.get(split, 0) // max(1, len(self.horizons)))


def paper_sizes(config: PipelineConfig) -> CorpusSizes:
    """Return the sizes of the paper's corpus, with the widths that the settings give."""
    width, tokens = feature_shape(config.features)
    every = ("takes", "segments", "windows", "labels")
    text = _text_width(config.text_bank)
    return CorpusSizes(config, tokens=tokens, feature_width=width, text_width=text, assumed=every)


def feature_shape(cfg: FeatureConfig) -> tuple[int, int]:
    """Return the numbers of one token of a segment's feature, and its tokens; no encoder is loaded."""
    tokens = cfg.n_frames // TUBELET if cfg.tokens == "temporal" else 1
    if cfg.source == "released":
        return RELEASED_WIDTHS[cfg.released], tokens
    tokens += cfg.ahead_tubelets is not None
    width = PLUGIN_WIDTH if is_plugin(cfg.model) else VJEPA_SIZES[cfg.model].width
    return width * (HIERARCHY if cfg.hierarchical else 1), tokens


def _text_width(cfg: TextConfig) -> int:
    if cfg.encoder == "bag_of_words":
        return cfg.bag_width
    return BERT_WIDTH if cfg.encoder == "egovlpv2" else LARGE_WIDTH


def sizes_of(folder: Folder, entries: Entries, config: PipelineConfig) -> CorpusSizes:
    """Return the sizes of what lies below a root, as far as it does; else those of the paper.

    Args:
        folder: the root.
        entries: what is known of it.
        config: the settings of the run.
    """
    found: dict[str, Any] = {}
    for name, count in (("takes", "takes"), ("segments", "segments"), ("text_bank", "labels"), ("labels", "labels")):
        if name in entries:
            found[count] = entries[name][1].rows
    if "windows" in entries:
        found |= _windows(folder, *entries["windows"])
    shape = _vector_shape(folder, entries, "features")
    if shape is not None:
        found |= {"tokens": shape[1], "feature_width": shape[0] // shape[1]}
    shape = _vector_shape(folder, entries, "text_bank")
    if shape is not None:
        found["text_width"] = shape[0]
    sizes = paper_sizes(config)
    return replace(sizes, **found, assumed=tuple(name for name in sizes.assumed if name not in found))


def _windows(folder: Folder, producer: str, entry: Entry) -> dict[str, Any]:
    """Count windows by split; where that would be a download, from the number of all and the paper's shares."""
    path = folder.local(f"{stage_folder(producer)}/{entry.files[0].name}")
    try:
        table = None if path is None else read_table(path, ["split", "horizon"])
    except StoreError:
        table = None  # whoever reads the table reports it
    if table is None:
        every = sum(PAPER_WINDOWS.values())
        return {"windows": {split: -(-entry.rows * n // every) for split, n in PAPER_WINDOWS.items()}}
    counted = table.group_by(["split", "horizon"]).aggregate([([], "count_all")]).to_pylist()
    windows = dict.fromkeys(PAPER_WINDOWS, 0)
    for row in counted:
        windows[row["split"]] = windows.get(row["split"], 0) + row["count_all"]
    return {"windows": windows, "horizons": tuple(sorted({row["horizon"] for row in counted}))}


def _vector_shape(folder: Folder, entries: Entries, name: str) -> tuple[int, int] | None:
    """Return how many numbers a vector of a table has, and in how many tokens; None where it is not there."""
    producer, entry = entries.get(name, ("", None))
    if entry is None or not entry.files:
        return None
    path = f"{stage_folder(producer)}/{entry.files[0].name}"
    try:
        source: Readable = folder.local(path) or folder.read(path)
        with open_parquet(source) as file:
            schema: pa.Schema = file.schema_arrow
    except StoreError:
        return None  # likewise
    if "vector" not in schema.names:
        return None
    return schema.field("vector").type.list_size, int((schema.metadata or {}).get(b"tokens", b"1"))


def world_sizes(config: PipelineConfig, world: WorldConfig) -> CorpusSizes:
    """Return the most that a simulated world has: its deliberate faults cost takes, segments and windows."""
    takes = world.train_takes + world.test_takes
    horizons = range(config.ingest.min_horizon, config.ingest.max_horizon + 1)
    each = sum(max(0, world.segments - horizon + 1) for horizon in horizons)
    dev = max(config.ingest.dev_min * world.takes_per_capture, round(config.ingest.dev_share * world.train_takes))
    by_split = {"train": max(0, world.train_takes - dev), "dev": dev, "test": world.test_takes}
    return replace(
        paper_sizes(config),
        takes=takes,
        segments=takes * world.segments,
        windows={split: n * each for split, n in by_split.items()},
        horizons=tuple(horizons),
        labels=world.tasks * world.positions * world.alternatives,
        assumed=(),
    )
