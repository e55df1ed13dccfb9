"""The limits of a run as sentences, derived from its data: what the numbers do not show."""

from collections.abc import Sequence

from schemas.config import CompletedReport
from schemas.features import released_note
from schemas.results import Judgement
from trajpilot_core.evaluation.bootstrap import MIN_CLUSTERS
from trajpilot_core.report import health
from trajpilot_core.report.loaded import Loaded
from trajpilot_core.report.tables.ceilings import Ceilings
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.report.tables.results import Results

FEW_TAKES = 40
"""Below this number of takes, intervals over takes are too narrow. Source: docs/decisions/metrics.md."""
WORLD = (
    "The corpus is a simulated world with made-up tasks, head motion and rendering. Its numbers describe how this "
    "implementation behaves in that world. They are no evidence about people and cannot be compared with the paper's."
)
RECORDED = "The numbers apply to the released split that was scored and to the takes whose files were on disk."


def limits(loaded: Loaded, results: Results, ceilings: Ceilings, cfg: CompletedReport) -> list[str]:
    """Return the sentences that this run's data call for.

    Args:
        loaded: the tables; every requirement of the demo that does not hold is named.
        ceilings: their headline is one of the limits unless all are kept.
        cfg: settings of the report, which name the run that models come from.
    """
    (_, n_takes), n_seeds, lost = loaded.scored, len(loaded.seeds), health.lost_units(loaded.rejects)
    sentences = [WORLD if loaded.simulated else RECORDED, *_origins(cfg), *_released(cfg)]
    if "" in loaded.takes["video"].to_pylist():
        sentences.append(
            "No video was read: the lengths of takes come from the metadata. Where one differs from its video by a "
            "frame, the head motion is off by a thirtieth of a second. Takes with damaged videos are not detected."
        )
    if cfg.windows_per_horizon is not None:
        sentences.append(
            f"Every row was scored on a sample of at most {cfg.windows_per_horizon} test windows of each horizon "
            "(vlm.windows_per_horizon): do not compare its numbers with those of all windows."
        )
    if ceilings.state != "kept":
        sentences.append(ceilings.headline)
    if n_takes < MIN_CLUSTERS:
        sentences.append(f"Only {n_takes} test takes were scored: fewer than {MIN_CLUSTERS} give no interval at all.")
    elif n_takes < FEW_TAKES:
        sentences.append(
            f"Only {n_takes} test takes were scored: intervals over fewer than {FEW_TAKES} takes are too narrow."
        )
    seeds = "One seed was" if n_seeds == 1 else f"{n_seeds} seeds were"
    sentences.append(f"{seeds} trained: the intervals cover the spread over takes, not the spread between trainings.")
    sentences += _unmet(loaded.judgements)
    weak = [row_name(v) for v in results.variants() if v in results.undertrained]
    if weak:
        sentences.append(f"UNDERTRAINED rows are no evidence for or against anything: {'; '.join(weak)}.")
    tested, trained = (loaded.labels[name].to_numpy() for name in ("n_test", "n_train"))
    unseen = int(tested[trained == 0].sum())
    if unseen:
        share = 100.0 * unseen / int(tested.sum())
        sentences.append(f"{share:.1f} % of the test steps have a label that no training segment has.")
    n_lost = sum(lost.values())
    if n_lost:
        stages = ", ".join(f"{stage} {n}" for stage, n in lost.items() if n)
        sentences.append(f"{n_lost} rows were rejected ({stages}); they are part of no number.")
    if any(row["scale"] == "arbitrary" for row in loaded.poses):
        sentences.append(
            "Some head motions have an arbitrary scale (estimated from video): their lengths in metres have no meaning."
        )
    sentences.append(
        "Oracle is given the true head motion of the window. It is a condition, not an upper bound: the Scorer "
        "reads the labels of retrieved windows and chooses among many plans, and can be above it."
    )
    return sentences


def _origins(cfg: CompletedReport) -> list[str]:
    """State which models come from another run; empty where none does."""
    taken = {"E_tau": cfg.alignment_from, "the initial weights of the predictors": cfg.predictor_from}
    parts = [f"{what} from {run.place} (sha256 {run.sha256[:12]})" for what, run in taken.items() if run is not None]
    if not parts:
        return []
    return [f"Models of another run: {' and '.join(parts)}. Its training data counts as training data here."]


def _released(cfg: CompletedReport) -> list[str]:
    """State the limits of features that a corpus released; empty where videos were encoded."""
    if cfg.released is None:
        return []
    return [
        f"Appearance is {cfg.released}: {released_note(cfg.released)}. A row of such a file is longer than many "
        "segments. It then also covers what happens before and after them, including the step after Start; the column "
        "overhang_s of the features gives the excess. A file that is shifted by one row cannot be detected."
    ]


def _unmet(judgements: Sequence[Judgement]) -> list[str]:
    """Print the requirements of the demo that do not hold."""
    how = {
        "fails": "not seen here",
        "undertrained": "cannot be judged, a model is UNDERTRAINED",
        "not run": "could not be checked",
    }
    return [
        f"“{judgement.check.removeprefix('demo: ')}”: {how[judgement.verdict]}. {judgement.detail}."
        for judgement in judgements
        if judgement.check.startswith("demo: ") and judgement.verdict != "holds"
    ]
