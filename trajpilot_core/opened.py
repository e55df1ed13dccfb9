"""A finished run as a Python object, for notebooks and scripts: `import trajpilot_core as tp; run = tp.open(ROOT)`.

Nothing is written below the root, and every file is checked against its digest before it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from schemas.annotation import SIMULATED
from schemas.artifacts import Manifest
from schemas.config import RunOptions
from schemas.features import FeatureSourceConfig, ReleasedName, released_note
from schemas.predict import Plan, PlanQuery, PlanRow
from trajpilot_core.engine.settings import recall_run
from trajpilot_core.errors import InputError
from trajpilot_core.stages import EVERY_STAGE
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.reading import Inputs, current_manifests, read_entry_table
from trajpilot_core.store.tensors import Models, Tensors

if TYPE_CHECKING:
    from trajpilot_core.predict.answers import LoadedChain
    from trajpilot_core.predict.trained import TrainedRoot

READER = "opened"
"""Name of the reader in errors of the store."""


@dataclass(frozen=True)
class OpenRun:
    """The current outputs below a root, as they were when it was opened."""

    folder: Folder
    outputs: Mapping[str, Manifest]
    """Stage -> its output, without stages that have none."""

    @property
    def root(self) -> str:
        """The folder or address of the root."""
        return self.folder.url

    @cached_property
    def warning(self) -> str:
        """The note to print with every figure of this run; empty for recorded corpora and own features."""
        simulated = SIMULATED in self.table("takes")["corpus"].to_list()
        notes = ["SIMULATED world: these numbers say nothing about real data."] if simulated else []
        features = self.outputs.get("features")
        if features is not None and features.config.get("source") == "released":
            name = features.config.get("released", FeatureSourceConfig().released)
            notes.append(f"Features: {released_note(cast(ReleasedName, name))}.")
        return " ".join(notes)

    def tables(self) -> dict[str, str]:
        """Return table -> the stage that wrote it."""
        return self._entries("table")

    def table(self, name: str) -> pl.DataFrame:
        """Read a whole table.

        Raises:
            InputError: there is no table of this name.
            StoreError: it is damaged.
        """
        stage_of = self.tables()
        if name not in stage_of:
            raise InputError(f"{self.root} has no table {name!r}; it has {', '.join(sorted(stage_of))}")
        frame = pl.from_arrow(read_entry_table(self.folder, self.outputs[stage_of[name]], name))
        assert isinstance(frame, pl.DataFrame)
        return frame

    def models(self) -> list[str]:
        """Return the names of all models, `predictors/final/s0/traj` for one, sorted."""
        entries = self._entries("models")
        return sorted(f"{entry}/{key}" for entry in entries for key in self._models(entry).keys)

    def model(self, name: str) -> Tensors:
        """Read the parameters of one model of `models`: parameter name -> array of its shape, read-only.

        Raises:
            InputError: no model has this name.
            StoreError: it is damaged.
        """
        if name not in self.models():
            raise InputError(f"{self.root} has no model {name!r}; it has {', '.join(self.models()) or 'none'}")
        entry, _, key = name.partition("/")
        return self._models(entry).read(key)

    def predictor(self, seed: int | None = None, device: str = "cpu") -> "Predictor":
        """Load the models of a seed (None: the first), ready for any number of queries.

        Raises:
            InputError: there are no models of this seed.
            StoreError: the run has no `scorer` yet, or its outputs do not belong together.
        """
        from trajpilot_core.predict.answers import load_chain

        return Predictor(self._trained, load_chain(self._trained, seed, device))

    def predict(
        self, video: str, start: str, goal: str, horizon: int = 5, *, device: str = "auto", **more: object
    ) -> Plan:
        """Plan what happens between two clips of a video, as `trajpilot predict` does, without writing anything.

        Args:
            video: video file of a head camera.
            start: interval of the first action, seconds of video, `12.0-15.5` for one.
            goal: interval of the last one.
            horizon: steps of the plan, Start and Goal included.
            device: where the models run.
            more: further fields of `schemas.predict.PlanQuery`: poses, trajectory, seed.

        Raises:
            InputError: the video, an interval, the horizon or a file of the query cannot be used.
            ValidationError: a field of the query is wrong.
        """
        from trajpilot_core.predict.run import planned

        query = {"video": video, "start": start, "goal": goal, "horizon": horizon, **more}
        last = recall_run(self.root)
        run = RunOptions(root=self.root, data_root=last.data_root if last else "", device=device)
        return planned(PlanQuery.model_validate(query), run)[0]

    def compare(self, other: "OpenRun | str") -> pl.DataFrame:
        """Return the metrics of both runs on the windows that both scored, in percent, paired over takes.

        Raises:
            InputError: a run has no evaluation, or they are of different corpora or answers.
        """
        from trajpilot_core.evaluation.comparison import metrics, open_side

        second = other.root if isinstance(other, OpenRun) else other
        pairing = metrics(open_side(self.root), open_side(second))
        return pl.DataFrame([vars(metric) for metric in pairing.metrics], infer_schema_length=None)

    @cached_property
    def _trained(self) -> "TrainedRoot":
        from trajpilot_core.predict.trained import open_trained

        return open_trained(self.root)

    def _entries(self, kind: str) -> dict[str, str]:
        """Return entry -> stage, of the entries of a kind."""
        return {
            name: stage
            for stage, manifest in self.outputs.items()
            for name, entry in manifest.entries.items()
            if entry.kind == kind
        }

    def _models(self, entry: str) -> Models:
        stage = self._entries("models")[entry]
        return Inputs(self.folder, READER, {entry: (stage, self.outputs[stage].entries[entry])}).models(entry)


@dataclass(frozen=True)
class Predictor:
    """Answers to your own queries by the rows of the tables, with the models of one seed."""

    trained: "TrainedRoot"
    chain: "LoadedChain"

    def predict(
        self,
        features: NDArray[Any],
        motions: NDArray[Any] | None = None,
        horizon: int = 5,
        take_id: str | None = None,
    ) -> tuple[PlanRow, ...]:
        """Answer one query; the first row is the final answer.

        Args:
            features: (2, D) of the Start and Goal clip, as in the table `features`.
            motions: (2, 16, 6), as in the table `motions`; None: only rows that need no head motion answer.
            horizon: steps of the plan, Start and Goal included.
            take_id: take of this corpus that contains the clips, which is then not retrieved; None: none does.

        Raises:
            InputError: an array of another shape or with non-finite numbers, a horizon without models, or an unknown
                take.
        """
        from trajpilot_core.predict.answers import Clips, answer_with
        from trajpilot_core.predict.plan import plan_rows

        data = self.chain.view.data
        if take_id is not None and take_id not in data.take_ids:
            raise InputError(f"this corpus has no take {take_id!r}; use None for a video of your own")
        width = data.features[0].numel()
        checked = _finite(features, (2, width), "features").astype(np.float16)
        moved = None if motions is None else _finite(motions, (2, 16, 6), "motions").astype(np.float32)
        given = answer_with(self.chain, Clips(checked, moved), horizon, take_id)
        return plan_rows(given, self.trained, self.trained.undertrained(given.seed))


def _finite(values: NDArray[Any], shape: tuple[int, ...], what: str) -> NDArray[Any]:
    array = np.asarray(values)
    if array.shape != shape:
        raise InputError(f"{what} have the shape {array.shape}; {shape} is needed")
    if not np.isfinite(array.astype(np.float64)).all():
        raise InputError(f"{what} contain numbers that are not finite")
    return array


def open_run(root: str) -> OpenRun:
    """Open the current outputs below a root, a folder or an address.

    Raises:
        InputError: nothing was computed there.
    """
    folder = open_folder(root)
    manifests = current_manifests(folder, EVERY_STAGE)
    outputs = {name: manifest for name, manifest in manifests.items() if manifest is not None}
    if not outputs:
        raise InputError(f"{root} holds no output of any stage; give the --root of a run")
    return OpenRun(folder, outputs)
