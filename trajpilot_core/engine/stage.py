"""A stage: its declaration, the arguments of its `run`, and its results. Imports neither torch nor Prefect.

`Config` is the record of settings of one stage, a field of PipelineConfig.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar, cast

import pyarrow as pa
from pydantic import JsonValue

from schemas.base import Record, canonical_json
from schemas.config import PipelineConfig
from trajpilot_core.engine.sink import Sink
from trajpilot_core.errors import StoreError
from trajpilot_core.store.reading import Inputs

Config = TypeVar("Config", bound=Record)


def no_progress(done: int, total: int, what: str) -> None:
    """Ignore progress."""


@dataclass(frozen=True)
class Runtime:
    """Where and how a stage runs; nothing here may change what it computes."""

    data_root: str
    """Corpus root, a folder or an allowed URL; paths in tables are relative to it."""
    device: str
    """`cpu`, `cuda` or `cuda:<number>`, resolved."""
    workers: int
    scratch: Path
    """Private folder for checkpoints of running trainings; kept after a crash, named by the stage's key."""
    progress: Callable[[int, int, str], None] = no_progress
    checkpoint_s: float = 0.0
    """Seconds between the checkpoints of a training; 0: one after every epoch."""
    training_scratch: Mapping[str, Path] = field(default_factory=dict)
    """Training to compute -> private folder for its checkpoints, kept after a crash, named by the key of its shard."""


@dataclass(frozen=True)
class Source:
    """Inputs of one unit of work from outside the store; their digests are part of the key.

    A stage that is not sharded returns at most one, with an empty shard name.
    """

    shard: str
    """Take id, name of a training, or "" where the stage is not sharded."""
    files: tuple[str, ...] = ()
    """Paths relative to the data root (weights: absolute); their sha256 enters the key, also that of a missing file."""
    facts: Mapping[str, JsonValue] = field(default_factory=dict)
    """Everything else that determines the content: the take's record, its segment intervals."""

    @cached_property
    def canonical_facts(self) -> str:
        """The facts as canonical JSON, cached because several keys of a plan use them."""
        return canonical_json(dict(self.facts))


@dataclass(frozen=True)
class Work(Generic[Config]):
    """What a stage's `run` receives."""

    inputs: Inputs
    config: Config
    """The stage's own settings, nothing left to `auto`."""
    pending: tuple[Source, ...]
    """The sources to compute; for a sharded stage those whose shard is missing."""
    sink: Sink
    runtime: Runtime
    trained: Mapping[str, Inputs] = field(default_factory=dict)
    """Training -> what it has written; passed to `conclude` only."""


@dataclass(frozen=True)
class Output:
    """The output of a stage that drops rows, as the report counts it."""

    unit: str
    """What one row is, in the plural."""
    entry: str
    columns: tuple[str, ...]
    """Those of the entry that the count needs."""
    count: Callable[[pa.Table], int] = lambda table: int(table.num_rows)


@dataclass(frozen=True)
class Stage(Generic[Config]):
    """Declaration of one stage, from which key, plan, status, tasks and deployments are derived."""

    name: str
    reads: tuple[str, ...]
    """Entries of earlier stages, e.g. ("segments", "takes")."""
    writes: tuple[str, ...]
    """Entries that it commits; a stage sharded by take writes exactly one table. For a stage whose shards are trainings
    the first is the entry of their models."""
    config: type[Record]
    """Its settings: the type of exactly one field of PipelineConfig. Stages may share one."""
    run: Callable[[Work[Config]], None]
    version: int
    summary: str
    """One line for people: inputs -> outputs. Also the description of its deployment."""
    shard_by: str | None = None
    sources: Callable[[Inputs, Config, str], list[Source]] | None = None
    """(declared inputs, its settings, data root) -> inputs from outside the store. Must not import torch."""
    uses_gpu: bool | Callable[[Config], bool] = False
    """Whether a model runs in it; some stages decide by their settings."""
    output: Output | None = None
    """What the report counts; None: the stage drops no rows."""
    video_s: Callable[[Source], float] | None = None
    """Seconds of video of one shard. With it the stage can be shared out in groups of takes."""
    conclude: Callable[[Work[Config]], None] | None = None
    """For a stage whose shards are trainings, which may run elsewhere: write the rest once all exist, i.e. facts about
    all models, the entries that belong to no training, counts and rejects. It may read what the trainings have
    written (`Work.trained`), and answer and score with their models."""
    outside_shards: tuple[str, ...] = ()
    """Settings that enter no shard key because the list of shards and their sources already reflect them."""
    completed: Callable[[PipelineConfig], Config] | None = None
    """(all settings) -> its own with what follows from those of other stages; None: they are used unchanged."""
    narrowed: Callable[[PipelineConfig], tuple[str, ...] | None] | None = None
    """(all settings) -> entries to read instead of `reads`; None: `reads`."""
    lowers: tuple[str, ...] = ()
    """Settings, as `--set` names them, that reduce memory or disk; errors name them."""

    def __post_init__(self) -> None:
        if settings_field(self.config) is None:
            raise StoreError(
                f"stage {self.name} names the settings {self.config.__name__}, but PipelineConfig has no or several "
                "fields of that type; name the type of one of its fields, or add a field (schemas/config.py)"
            )

    @property
    def section(self) -> str:
        """Name of the field of PipelineConfig that holds its settings, e.g. `features`."""
        name = settings_field(self.config)
        assert name is not None
        return name

    def settings(self, config: PipelineConfig) -> Config:
        """Return the settings of this stage out of those of the pipeline."""
        settings = getattr(config, self.section)
        assert isinstance(settings, self.config)
        return cast(Config, settings)

    def under(self, config: PipelineConfig) -> "Stage[Config]":
        """Return the stage with the reads that apply under the settings of a run."""
        reads = self.narrowed(config) if self.narrowed is not None else None
        return self if reads is None else replace(self, reads=reads)

    def settings_of_shards(self, config: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return the settings, as JSON, that enter the keys of its shards."""
        return {name: value for name, value in config.items() if name not in self.outside_shards}

    @property
    def is_shared_out(self) -> bool:
        """Return whether other processes may compute its shards."""
        return self.video_s is not None or self.conclude is not None

    def on_gpu(self, config: Config) -> bool:
        """Return whether a model runs in the stage under its settings `config`."""
        return self.uses_gpu(config) if callable(self.uses_gpu) else self.uses_gpu


AnyStage: TypeAlias = Stage[Any]
"""A stage in a collection of stages, whose settings differ."""


def settings_field(record: type[Record]) -> str | None:
    """Return the name of the only field of PipelineConfig with this type; None where there is not exactly one."""
    names = [name for name, field in PipelineConfig.model_fields.items() if field.annotation is record]
    return names[0] if len(names) == 1 else None
