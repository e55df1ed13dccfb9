"""Trajectory-action alignment: E_tau, one per chain and seed, frozen afterwards (paper, 3.3)."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from schemas.arrow import table_of
from schemas.results import CurvePoint
from schemas.training import AlignmentConfig
from trajpilot_core.data.contributions import Contributions, part_of
from trajpilot_core.data.cross_fitting import E_TAU, Chain, chains, draw_folds, model_key
from trajpilot_core.data.imported_fits import folds_for
from trajpilot_core.engine.stage import Inputs, Source, Stage, Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.stages.pretrained import e_tau_sources, import_e_tau, settings_of_e_tau

if TYPE_CHECKING:
    from trajpilot_core.data.planning import MotionData
    from trajpilot_core.training.jobs import TrainingJob

VERSION = 6  # raise when the numbers that this module writes change


def trainings(cfg: AlignmentConfig) -> dict[str, tuple[Chain, int]]:
    """Return training -> its chain and seed: one E_tau for each."""
    return {model_key(chain, seed, E_TAU): (chain, seed) for chain in chains(cfg.folds) for seed in cfg.seeds}


def sources(inputs: Inputs, cfg: AlignmentConfig, data_root: str) -> list[Source]:
    """Return one source per training: what the takes that it is fitted and measured on contribute, or its model."""
    if cfg.pretrained is not None:
        return e_tau_sources(inputs, cfg, trainings(cfg))
    takes = Contributions.read(inputs, ("segments", "motions"))
    fold_of, bank = draw_folds(takes.train, cfg), part_of(inputs, "text_bank")
    facts = {chain: {**takes.facts(fold_of, chain), "text bank": bank} for chain in chains(cfg.folds)}
    return [Source(name, facts=facts[chain]) for name, (chain, _) in trainings(cfg).items()]


def run(work: Work[AlignmentConfig]) -> None:
    """Fit one E_tau per chain and seed on the segments of its takes, keep the best epoch on dev; or import it."""
    if work.config.pretrained is not None:
        import_e_tau(work, trainings(work.config))
        return
    from trajpilot_core.data.planning import load_motion_data
    from trajpilot_core.training.fit_alignment import train_alignment
    from trajpilot_core.training.jobs import SHARED, fitted_takes, hand_over, put_tensors, run_jobs

    cfg = work.config
    data = load_motion_data(work.inputs)
    shared = work.runtime.scratch / "alignment"
    put_tensors(shared, SHARED, {"motions": data.motions, "labels": data.labels, "bank": data.bank})
    train = [take for take, split in zip(data.take_ids, data.take_split.tolist(), strict=True) if split == 0]
    fold_of = draw_folds(train, cfg)
    pending = {source.shard for source in work.pending}
    of_chain: dict[Chain, list[int]] = {}
    for name, (chain, seed) in trainings(cfg).items():
        if name in pending:
            of_chain.setdefault(chain, []).append(seed)
    jobs = [job for chain, seeds in of_chain.items() for job in chain_jobs(data, fold_of, chain, seeds, work)]

    def ended(job: "TrainingJob") -> None:
        with work.sink.training(job.key) as share:
            share.table("alignment_curves", table_of(CurvePoint, hand_over(job, "e_tau", share)))
            fitted = fitted_takes(job, data.segment_take, data.take_ids)
            share.models("e_tau", {"text_width": str(data.bank.shape[1]), **fitted})

    run_jobs(jobs, train_alignment, work.runtime, ended)


def conclude(work: Work[AlignmentConfig]) -> None:
    """Write the folds and the settings of the models, and count the segments with head motion."""
    takes = Contributions.read(work.inputs, ())
    fold_of = folds_for(takes.train, work.config)
    folds = {"take_id": pa.array(fold_of, pa.string()), "fold": pa.array(fold_of.values(), pa.int64())}
    work.sink.table("folds", pa.table(folds))
    work.sink.models("e_tau", {"config": settings_of_e_tau(work.config).model_dump_json()})
    segments, motions = (work.inputs.table(name, ["segment_id"])["segment_id"] for name in ("segments", "motions"))
    with_motion = pc.sum(pc.is_in(segments, value_set=pc.unique(motions))).as_py() or 0
    work.sink.count(with_motion, with_motion)


def chain_jobs(
    data: "MotionData", fold_of: Mapping[str, int], chain: Chain, seeds: list[int], work: Work[AlignmentConfig]
) -> "list[TrainingJob]":
    """Write which segments a chain is fitted and measured on, and return its trainings, one per seed.

    Args:
        data: the segments.
        fold_of: training take -> its fold.
        chain: the chain.
        seeds: of the trainings.
        work: the stage's work.
    """
    import torch

    from trajpilot_core.data.chains import fitting_takes
    from trajpilot_core.data.planning import NO_FOLD, rows_of_takes
    from trajpilot_core.training.jobs import OWN, chain_job, put_tensors

    shared = work.runtime.scratch / "alignment"
    fold = torch.tensor([fold_of.get(take, NO_FOLD) for take in data.take_ids])
    fit = rows_of_takes(data.segment_take, fitting_takes(data.take_split, fold, chain))
    dev = rows_of_takes(data.segment_take, (data.take_split == 1).nonzero().squeeze(1))
    if len(fit) == 0 or len(dev) == 0:
        raise TrainingError(
            f"chain {chain.name}: {len(fit)} segments with a trajectory to fit on and {len(dev)} in dev; both are "
            "needed: look at the rejects of trajectories"
        )
    put_tensors(shared / chain.name, OWN, {"fit": fit, "dev": dev})
    return [chain_job(work, chain, seed, E_TAU, shared / chain.name, shared) for seed in seeds]


STAGE = Stage(
    name="alignment",
    reads=("takes", "take_contents", "segments", "motions", "text_bank"),
    writes=("e_tau", "alignment_curves", "folds"),
    config=AlignmentConfig,
    run=run,
    version=VERSION,
    summary="Trains E_tau, the trajectory encoder, which brings head motion into the text space",
    shard_by="training",
    sources=sources,
    pure_sources=True,
    uses_gpu=True,
    lowers=("alignment.train.batch",),
    conclude=conclude,
    outside_shards=("seeds", "folds", "holdout_share", "fold_share", "fold_seed", "pretrained"),
)
