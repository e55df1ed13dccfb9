"""The outputs of a run that a prediction needs: tables, models, settings, and a check that they match.

The current outputs may be of several runs, and a prediction with a scorer that was fitted on other features would look
like any other. The inputs in the manifest of every stage are therefore compared with the current outputs.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from schemas.annotation import Take
from schemas.arrow import rows_of
from schemas.artifacts import Manifest
from schemas.config import CompletedEvaluation, EvaluationConfig, FeatureConfig, IngestConfig
from schemas.poses import TrajectoryConfig
from schemas.results import Judgement
from trajpilot_core.engine.key import producers, resolve_inputs
from trajpilot_core.engine.settings import recall_run
from trajpilot_core.engine.stage import Stage
from trajpilot_core.evaluation.trained_rows import undertrained_rows
from trajpilot_core.methods import METHODS
from trajpilot_core.stages import STAGES
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import Inputs, read_entry_table, refuse_mixed

TABLES = ("takes", "segments", "scenario_labels", "labels", "windows", "motions", "features", "text_bank", "folds")
MODELS = ("e_tau", "predictors", "scorers")
READER = Stage[EvaluationConfig](
    name="predict",
    reads=(*TABLES, *MODELS),
    writes=(),
    config=EvaluationConfig,
    run=lambda _: None,
    version=1,
    summary="inputs of a prediction; not a stage of the pipeline",
)


@dataclass(frozen=True)
class TrainedRoot:
    """The current outputs under a root."""

    folder: Folder
    inputs: Inputs
    manifests: Mapping[str, Manifest]
    """Stage -> output, for every stage whose output a prediction reads."""
    takes: Mapping[str, Take]
    """By take id."""
    data_root: str | None
    """Corpus of the last run; None where it was not recorded."""
    ingest: IngestConfig
    trajectories: TrajectoryConfig
    features: FeatureConfig

    @cached_property
    def plugin_rows(self) -> tuple[str, ...]:
        """Return the rows of plugins in the evaluation of the run, by its manifest."""
        evaluation = current_manifest(self.folder, "evaluation")
        return () if evaluation is None else CompletedEvaluation.model_validate(evaluation.config).plugin_rows

    @cached_property
    def segments(self) -> dict[str, dict[str, Any]]:
        """Return segment id -> its row."""
        rows = self.rows("segments", ("segment_id", "take_id", "start_s", "end_s", "label_id"))
        return {row["segment_id"]: row for row in rows}

    @cached_property
    def labels(self) -> dict[str, str]:
        """Return label id -> its text."""
        return {row["label_id"]: row["label"] for row in self.rows("labels", ("label_id", "label"))}

    def label(self, label_id: str) -> str:
        """Return the text of a label."""
        return self.labels.get(label_id, label_id)

    def rows(self, table: str, columns: tuple[str, ...]) -> list[dict[str, Any]]:
        """Return columns of one of the tables as rows."""
        return cast("list[dict[str, Any]]", self.inputs.table(table, columns).to_pylist())

    def undertrained(self, seed: int) -> frozenset[str]:
        """Return the rows that do not count as trained by the evaluation of the root; none where it has not run."""
        manifest = current_manifest(self.folder, "evaluation")
        if manifest is None or manifest.inputs.get("scorers") != self.inputs.entries["scorers"][1].fingerprint:
            return frozenset()
        checks = rows_of(Judgement, read_entry_table(self.folder, manifest, "judgements"))
        return undertrained_rows(checks, {row.id: row.models for row in METHODS}, seed)


def open_trained(root: str) -> TrainedRoot:
    """Find the current outputs under the root of a run that has finished `scorer`; check that they belong together.

    Raises StoreError: a stage has not run, or one was made from another output than the current one.
    """
    folder = open_folder(root)
    inputs = resolve_inputs(folder, READER, STAGES)
    writers = sorted({producers(STAGES)[name] for name in READER.reads}, key=list(STAGES).index)
    manifests = {stage: manifest for stage in writers if (manifest := current_manifest(folder, stage)) is not None}
    refuse_mixed(inputs, manifests, folder.url)
    last = recall_run(root)
    return TrainedRoot(
        folder,
        inputs,
        manifests,
        {take.take_id: take for take in rows_of(Take, inputs.table("takes"))},
        last.data_root if last else None,
        IngestConfig.model_validate(manifests["ingest"].config),
        TrajectoryConfig.model_validate(manifests["trajectories"].config),
        FeatureConfig.model_validate(manifests["features"].config),
    )
