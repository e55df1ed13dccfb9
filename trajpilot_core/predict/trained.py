"""What a run has left under its root, as far as a prediction needs it: tables, models, settings, and that they fit.

The outputs that count now may be of several runs: a prediction with a scorer that was fitted on other features than
those next to it would look like any other. So what every stage says that it read is compared with what is there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from schemas.annotation import Take
from schemas.arrow import rows_of
from schemas.artifacts import Manifest
from schemas.config import EvaluationConfig, FeatureConfig, IngestConfig
from schemas.results import Judgement
from schemas.trajectories import TrajectoryConfig
from trajpilot_core.engine.key import producers, resolve_inputs
from trajpilot_core.engine.last_run import recall_run
from trajpilot_core.engine.stage import Stage
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.methods import METHODS
from trajpilot_core.stages import STAGES
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import StageInputs, read_entry_table, refuse_mixed

TABLES = ("takes", "segments", "scenario_labels", "labels", "windows", "motions", "features", "text_bank", "folds")
MODELS = ("e_tau", "predictors", "scorers")
READER = Stage(
    name="predict",
    reads=(*TABLES, *MODELS),
    writes=(),
    config=EvaluationConfig,
    run=lambda _: None,
    version=1,
    summary="what a prediction reads; no stage of the pipeline",
)


@dataclass(frozen=True)
class TrainedRoot:
    """The outputs that count under a root."""

    folder: Folder
    inputs: StageInputs
    manifests: Mapping[str, Manifest]
    """Stage -> output, for every stage that wrote something that a prediction reads."""
    takes: tuple[Take, ...]
    data_root: str | None
    """Corpus of the last run; None where it was not noted."""
    ingest: IngestConfig
    trajectories: TrajectoryConfig
    features: FeatureConfig

    @property
    def local_data(self) -> str | None:
        """Corpus of the last run, where it lies on this machine."""
        return None if self.data_root is None or "://" in self.data_root else self.data_root

    @cached_property
    def plugin_rows(self) -> tuple[str, ...]:
        """Rows of plugins that the run was evaluated with, as its manifest names them."""
        evaluation = current_manifest(self.folder, "evaluation")
        return () if evaluation is None else EvaluationConfig.model_validate(evaluation.config).plugin_rows

    def rows(self, table: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return columns of one of the tables as rows."""
        return cast("list[dict[str, Any]]", self.inputs.table(table, columns).to_pylist())

    def undertrained(self, seed: int) -> frozenset[str]:
        """Return the rows that do not count as trained, by the evaluation of the root; none where it has not run."""
        manifest = current_manifest(self.folder, "evaluation")
        if manifest is None or manifest.inputs.get("scorers") != self.inputs.entries["scorers"][1].fingerprint:
            return frozenset()
        checks = rows_of(Judgement, read_entry_table(self.folder, manifest, "judgements"))
        return undertrained_rows(checks, {one.id: one.models for one in METHODS}, seed)


def open_trained(root: str, allowed: tuple[str, ...]) -> TrainedRoot:
    """Find the outputs that count under a root, and check that they are made from each other.

    Args:
        root: of a run that has come as far as `scorer`.
        allowed: protocols that may be opened.

    Raises:
        StoreError: a stage has not run, or one was made from another output than the one that counts now.
    """
    folder = open_folder(root, allowed)
    inputs = resolve_inputs(folder, READER, STAGES)
    writers = sorted({producers(STAGES)[name] for name in READER.reads}, key=list(STAGES).index)
    manifests = {stage: manifest for stage in writers if (manifest := current_manifest(folder, stage)) is not None}
    refuse_mixed(inputs, manifests, folder.url)
    last = recall_run(root, allowed)
    return TrainedRoot(
        folder,
        inputs,
        manifests,
        tuple(rows_of(Take, inputs.table("takes"))),
        last.data_root if last else None,
        IngestConfig.model_validate(manifests["ingest"].config),
        TrajectoryConfig.model_validate(manifests["trajectories"].config),
        FeatureConfig.model_validate(manifests["features"].config),
    )
