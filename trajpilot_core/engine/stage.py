"""A stage: its declaration, the arguments of its `run`, and its results. Imports neither torch nor Prefect.

`Config` is the record of settings of one stage, a field of PipelineConfig.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Generic, Protocol, TypeAlias, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pydantic import JsonValue

from schemas.base import Record, canonical_json
from schemas.config import PipelineConfig
from schemas.rejects import Reject
from trajpilot_core.errors import StoreError
from trajpilot_core.store.tensors import Models, Tensors

Config = TypeVar("Config", bound=Record)


class Inputs(Protocol):
    """The declared inputs of a stage; anything else raises StoreError."""

    def table(self, name: str, columns: Sequence[str] | None = None) -> pa.Table:
        """Read a table that the stage declared in `reads`, verified against its digests."""
        ...

    def vectors(self, name: str, column: str) -> NDArray[np.generic]:
        """Read a fixed-size vector column of a declared table into one (N, D) array, rows as in `table`; verified."""
        ...

    def models(self, name: str) -> Models:
        """Open the models of a declared entry; each model is read and verified on demand."""
        ...

    def document(self, name: str) -> bytes:
        """Read a document that the stage declared."""
        ...

    def parts(self, name: str) -> Mapping[str, str]:
        """Return the digests of the parts of a declared entry without reading it.

        Returns:
            For a table of a sharded stage, shard -> digest; for models, key -> digest; for any other entry,
            "" -> fingerprint.
        """
        ...


class Sink(Protocol):
    """Where a stage writes its results. They become visible when the stage commits."""

    def table(self, name: str, table: pa.Table) -> None:
        """Write a table that the stage declared in `writes`."""
        ...

    def table_in_parts(self, name: str, parts: Iterable[pa.Table], schema: pa.Schema) -> None:
        """Write a declared table from parts, each of which may be dropped before the next is made.

        Args:
            name: the entry.
            parts: tables of `schema`; the bytes equal those of `table` with all of them joined.
            schema: their columns.
        """
        ...

    def model(self, name: str, key: str, tensors: Tensors) -> None:
        """Write one model of a declared entry to its own file, so that no other model need be in memory.

        Args:
            name: the entry; `models` completes it.
            key: of the model, e.g. `final/s0/traj`.
            tensors: parameter name -> array of any shape.
        """
        ...

    def models(self, name: str, about: Mapping[str, str]) -> None:
        """Complete a declared entry of models; `about` applies to all models that `model` wrote."""
        ...

    def document(self, name: str, content: bytes) -> None:
        """Write a document (HTML, LaTeX, JSON) that the stage declared, under its name."""
        ...

    def reject(self, rejects: Iterable[Reject]) -> None:
        """Add rows to the stage's rejects table."""
        ...

    def count(self, n_in: int, n_out: int) -> None:
        """Record rows in and out; the commit fails if n_in != n_out + units lost to rejects."""
        ...

    def shard(self, shard: str, table: pa.Table, rejects: Sequence[Reject], n_in: int) -> None:
        """Commit one shard of a sharded stage immediately (its table may be empty); n_in = rows + units lost."""
        ...

    def training(self, shard: str) -> AbstractContextManager["Sink"]:
        """Open the share of one training, for a stage whose shards are trainings.

        What is written to it (`table`, `model`, `models`) is committed as a whole when the block succeeds.
        """
        ...


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
    pure_sources: bool = False
    """`sources` depends only on the declared inputs and the settings (its data root is empty), so that it need not be
    called again for equal ones: `status` of a large corpus takes seconds."""
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
