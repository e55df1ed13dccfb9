"""The numbers of the paper's tables, one record a cell, read from the roots of finished runs.

A table of several benchmarks takes one run for each; benchmarks without a run have no cells.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from schemas.annotation import SIMULATED
from schemas.arrow import rows_of
from schemas.artifacts import Manifest
from schemas.config import CompletedEvaluation, IngestConfig
from schemas.results import Judgement, Metric
from schemas.training import PredictorConfig, ScorerConfig
from trajpilot_core.engine.settings import recall_run
from trajpilot_core.errors import InputError
from trajpilot_core.evaluation.comparison import EVALUATION, INGEST, Side, corpora_of, open_side
from trajpilot_core.paper.published import ATOMIC_CORPUS, BENCHMARKS, CLOSED_ATOMIC
from trajpilot_core.report.tables.results import results_of
from trajpilot_core.stages import EVERY_STAGE as STAGES
from trajpilot_core.store.files import Folder, open_folder
from trajpilot_core.store.locations import resolved
from trajpilot_core.store.manifest import current_manifest
from trajpilot_core.store.reading import Inputs
from trajpilot_core.studies.paper_tables.base import CellAddress, PaperCell, PaperRun
from trajpilot_core.studies.paper_tables.labels import LABELS

RECIPE_HINT = "trajpilot run --recipe atomic, keystep, goalstep, egoper or atomic_closed"


def read_run(root: str) -> PaperRun:
    """Read the current evaluation of a root; without an evaluation, the current outputs of the stages.

    Raises:
        InputError: there is no output, or an input of the evaluation is gone.
    """
    side = _whole(root)
    table = side.table
    metrics, judgements = table(EVALUATION, "metrics"), table(EVALUATION, "judgements")
    results = results_of(
        [] if metrics is None else rows_of(Metric, metrics),
        [] if judgements is None else rows_of(Judgement, judgements),
    )
    made = side.outputs.get("predictor")
    predictor = None if made is None else PredictorConfig.model_validate(made.config)
    is_classes = predictor is not None and predictor.head == "classes"
    settings: dict[str, float] = {}
    if predictor is not None and is_classes and EVALUATION in side.outputs:
        labels = table(INGEST, "labels", ("label_id",))
        assert labels is not None
        decoding = ScorerConfig.model_validate(side.outputs["scorer"].config).decoding
        settings = {"labels": float(labels.num_rows), "lambda_bridge": predictor.bridge_weight}
        settings |= {"transition_weight": decoding.weight, "smoothing": decoding.smoothing}
        settings["temperature"] = decoding.temperature
    return PaperRun(
        root,
        _dataset(side, is_classes),
        results,
        settings,
        SIMULATED in corpora_of(side),
        table,
        Inputs(side.folder, "paper", {n: (s, e) for s, made in side.outputs.items() for n, e in made.entries.items()}),
        recall_run(side.folder.url),
    )


def _whole(root: str) -> Side:
    """Return an evaluation with the outputs made from the same inputs; without one, the current outputs of the root."""
    folder = open_folder(root if "://" in root else str(resolved(root)))
    if current_manifest(folder, EVALUATION) is None:
        counts = _joined(folder, {})
        if INGEST in counts:
            return Side(root, folder, counts)
    side = open_side(root)
    lacking = [stage for stage in (INGEST, "predictor", "scorer", EVALUATION) if stage not in side.outputs]
    if lacking:
        raise InputError(f"{root}: the output of {', '.join(lacking)} is gone; run it again")
    return replace(side, outputs=_joined(side.folder, side.outputs))


def _joined(folder: Folder, outputs: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """Add the current outputs of the root that were made from the same inputs."""
    joined = dict(outputs)
    fingerprints = {name: entry.fingerprint for manifest in joined.values() for name, entry in manifest.entries.items()}
    for stage in (name for name in STAGES if name not in outputs):
        manifest = current_manifest(folder, stage)
        if manifest is not None and all(manifest.inputs.get(n) == fingerprints.get(n, "") for n in STAGES[stage].reads):
            joined[stage] = manifest
            fingerprints |= {name: entry.fingerprint for name, entry in manifest.entries.items()}
    return joined


def _dataset(side: Side, is_classes: bool) -> str:
    """Return the name of a run's benchmark in the paper's tables; other runs are named by corpus and vocabulary."""
    corpus = IngestConfig.model_validate(side.outputs[INGEST].config).corpus
    evaluation = side.outputs.get(EVALUATION)
    answers = "labels" if evaluation is None else CompletedEvaluation.model_validate(evaluation.config).vocabulary
    if is_classes:
        return BENCHMARKS.get(corpus, f"{corpus} ranked by class heads")
    if answers == "classes":
        return CLOSED_ATOMIC if corpus == ATOMIC_CORPUS else f"{corpus} answered by classes"
    return corpus if corpus not in BENCHMARKS.values() else f"{corpus} with an open vocabulary"


def cells_of(runs: Sequence[PaperRun]) -> list[PaperCell]:
    """Return every cell of the paper's tables that the runs fill: of several with a number for a cell, the first.

    Raises:
        InputError: a run fills none, or simulated and recorded runs are mixed.
    """
    if len({run.is_simulated for run in runs}) > 1:
        kinds = ", ".join(f"{run.name} {'simulated' if run.is_simulated else 'recorded'}" for run in runs)
        raise InputError(
            f"simulated and recorded runs cannot share a table ({kinds}); write each kind to its own folder"
        )
    filled: dict[tuple[str, CellAddress], PaperCell] = {}
    for run in runs:
        cells = [cell for table in LABELS.values() for cell in table.cells(run)]
        if not cells:
            raise InputError(
                f"{run.name} is a run on {run.dataset} and fills no table of the paper; give roots of {RECIPE_HINT}"
            )
        for cell in cells:
            filled.setdefault((cell.table, cell.address), cell)
    return list(filled.values())
