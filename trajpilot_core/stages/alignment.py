"""Trajectory-action alignment: E_tau, one per chain and seed, frozen afterwards (paper, 3.3)."""

import hashlib
from typing import TYPE_CHECKING

import pyarrow as pa

from schemas.arrow import table_of
from schemas.results import CurvePoint
from schemas.training import AlignmentConfig
from trajpilot_core.engine.stage import Stage, Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.stages.needs_of_trainings import alignment_needs

if TYPE_CHECKING:
    from torch import Tensor

    from trajpilot_core.data.chains import Chain
    from trajpilot_core.data.planning import MotionData
    from trajpilot_core.training.jobs import TrainingJob

VERSION = 4  # raise when the numbers that this module writes change


def run(work: Work[AlignmentConfig]) -> None:
    """Draw the folds, fit one E_tau per chain and seed on the segments of its takes, keep the best epoch on dev."""
    from trajpilot_core.data.planning import load_motion_data
    from trajpilot_core.training.fit_alignment import train_alignment
    from trajpilot_core.training.jobs import fitted_takes, hand_over, run_jobs

    cfg = work.config
    data = load_motion_data(work.inputs)
    fold_of = draw_folds([t for t, s in zip(data.take_ids, data.take_split.tolist(), strict=True) if s == 0], cfg)
    jobs = make_jobs(data, fold_of, cfg, work)
    run_jobs(jobs, train_alignment, work.runtime)
    rows = [row for job in jobs for row in hand_over(job, "e_tau", work.sink)]
    takes, folds = list(fold_of), list(fold_of.values())
    work.sink.table("folds", pa.table({"take_id": pa.array(takes, pa.string()), "fold": pa.array(folds, pa.int64())}))
    about = {"config": cfg.model_dump_json(), "text_width": str(data.bank.shape[1])}
    about["fitted_takes"] = fitted_takes(jobs, data.segment_take, data.take_ids)
    work.sink.models("e_tau", about)
    work.sink.table("alignment_curves", table_of(CurvePoint, rows))
    work.sink.count(len(data.labels), len(data.labels))


def draw_folds(train_takes: list[str], cfg: AlignmentConfig) -> dict[str, int]:
    """Return take_id -> fold for the training takes, by the order of sha256(seed:take) (D 28).

    Cross-fitting: the takes are dealt out to folds 0 .. K-1; with a `fold_share` each fold takes that share, and the
    rest is -1. Cheap mode (one fold): the first `holdout_share` of them
    are fold 0, held out of every fit; the others are -1, fitted.

    Raises:
        TrainingError: too few training takes for that.
    """
    seed = cfg.seeds[0]
    order = sorted(train_takes, key=lambda take: hashlib.sha256(f"{seed}:{take}".encode()).hexdigest())
    if len(order) < max(2, cfg.folds):
        raise TrainingError(
            f"{len(order)} training takes cannot be dealt out to {max(2, cfg.folds)} parts; add takes, or lower "
            "alignment.folds with --set"
        )
    if cfg.folds == 1:
        held = min(len(order) - 1, max(1, round(cfg.holdout_share * len(order))))
        folds = {take: 0 if i < held else -1 for i, take in enumerate(order)}
    else:
        folds = {take: fold_of_rank(i, len(order), cfg) for i, take in enumerate(order)}
    return dict(sorted(folds.items()))


def fold_of_rank(rank: int, n_takes: int, cfg: AlignmentConfig) -> int:
    """Return the fold of the training take of that rank; -1, fitted by every chain, past the folds' shares."""
    if cfg.fold_share is None:
        return rank % cfg.folds
    fold = rank // max(1, round(cfg.fold_share * n_takes))
    return fold if fold < cfg.folds else -1


def make_jobs(
    data: "MotionData", fold_of: dict[str, int], cfg: AlignmentConfig, work: Work[AlignmentConfig]
) -> "list[TrainingJob]":
    """Write the tensors of the trainings to scratch and name the trainings."""
    import torch

    from trajpilot_core.data.chains import chains
    from trajpilot_core.data.planning import NO_FOLD
    from trajpilot_core.training.jobs import SHARED, put_tensors

    scratch = work.runtime.scratch / "alignment"
    put_tensors(scratch, SHARED, {"motions": data.motions, "labels": data.labels, "bank": data.bank})
    fold = torch.tensor([fold_of.get(take, NO_FOLD) for take in data.take_ids])
    return [job for chain in chains(cfg.folds) for job in chain_jobs(data, fold, chain, cfg, work)]


def chain_jobs(
    data: "MotionData", fold: "Tensor", chain: "Chain", cfg: AlignmentConfig, work: Work[AlignmentConfig]
) -> "list[TrainingJob]":
    """Write which segments a chain is fitted and measured on, and return its trainings, one per seed.

    Args:
        data: the segments.
        fold: long, shape (takes,).
        chain: the chain.
        cfg: the stage's configuration.
        work: the stage's work.
    """
    from trajpilot_core.data.chains import fitting_takes
    from trajpilot_core.data.planning import rows_of_takes
    from trajpilot_core.training.fit_alignment import E_TAU
    from trajpilot_core.training.jobs import OWN, TrainingJob, put_tensors

    scratch = work.runtime.scratch / "alignment"
    fit = rows_of_takes(data.segment_take, fitting_takes(data.take_split, fold, chain))
    dev = rows_of_takes(data.segment_take, (data.take_split == 1).nonzero().squeeze(1))
    if len(fit) == 0 or len(dev) == 0:
        raise TrainingError(
            f"chain {chain.name}: {len(fit)} segments with a trajectory to fit on and {len(dev)} in dev; both are "
            "needed: look at the rejects of trajectories"
        )
    put_tensors(scratch / chain.name, OWN, {"fit": fit, "dev": dev})
    return [
        TrainingJob(
            name=f"{chain.name}/{E_TAU}",
            seed=seed,
            variant=E_TAU,
            folder=scratch / f"{chain.name}-s{seed}",
            own=scratch / chain.name,
            shared=scratch,
            config=cfg.model_dump_json(),
            device=work.runtime.device,
            checkpoint_s=work.runtime.checkpoint_s,
        )
        for seed in cfg.seeds
    ]


STAGE = Stage(
    name="alignment",
    reads=("takes", "segments", "motions", "text_bank"),
    writes=("folds", "e_tau", "alignment_curves"),
    config=AlignmentConfig,
    run=run,
    version=VERSION,
    summary="Trains E_tau, the trajectory encoder, which brings head motion into the text space",
    uses_gpu=True,
    needs=alignment_needs,
)
