"""Trajectory-action alignment: E_tau, one per chain and seed, frozen after this stage (paper, 3.3)."""

from itertools import product

import pyarrow as pa
import pyarrow.compute as pc

from schemas.training import AlignmentConfig
from trajpilot_core.data.cross_fitting import E_TAU, Chain, Contributions, chains, draw_folds, part_of
from trajpilot_core.data.imported_fits import folds_for
from trajpilot_core.engine.stage import Work
from trajpilot_core.errors import TrainingError
from trajpilot_core.stages.pretrained import HERE, e_tau_facts, import_e_tau, settings_of_e_tau
from trajpilot_core.stages.trained import Facts, Fits, TrainedStage, Trainings, named, prepared
from trajpilot_core.store.reading import Inputs

VERSION = 7  # raise when the numbers that this module writes change


def trainings(inputs: Inputs, cfg: AlignmentConfig) -> Trainings:
    """Return one E_tau for each chain and seed."""
    return named(product(chains(cfg.folds), cfg.seeds, (E_TAU,)))


def facts(inputs: Inputs, cfg: AlignmentConfig, known: Trainings) -> dict[str, Facts]:
    """Return what the takes that each training is fitted and measured on contribute, or the model it imports."""
    if cfg.pretrained is not None:
        return e_tau_facts(inputs, cfg, known)
    takes = Contributions.read(inputs, ("segments", "motions"))
    fold_of, bank = draw_folds(takes.train, cfg), part_of(inputs, "text_bank")
    by_chain = {chain: {**takes.facts(fold_of, chain), "text bank": bank} for chain in chains(cfg.folds)}
    return {name: by_chain[chain] for name, (chain, *_) in known.items()}


def fits(work: Work[AlignmentConfig], wanted: Trainings) -> Fits | None:
    """Prepare one E_tau per chain and seed on the segments of its takes; or import it.

    Raises TrainingError: no segment to fit on, or none in dev.
    """
    if work.config.pretrained is not None:
        import_e_tau(work, wanted)
        return None
    import torch

    from trajpilot_core.data.chains import fitting_takes
    from trajpilot_core.data.planning import NO_FOLD, load_motion_data, rows_of_takes
    from trajpilot_core.training.fit_alignment import FIT, AlignmentTask
    from trajpilot_core.training.jobs import fitted_takes

    data = load_motion_data(work.inputs)
    train = [take for take, split in zip(data.take_ids, data.take_split.tolist(), strict=True) if split == 0]
    fold_of = draw_folds(train, work.config)
    fold = torch.tensor([fold_of.get(take, NO_FOLD) for take in data.take_ids])
    dev = rows_of_takes(data.segment_take, (data.take_split == 1).nonzero().squeeze(1))

    def task(chain: Chain, seed: int) -> AlignmentTask:
        fit = rows_of_takes(data.segment_take, fitting_takes(data.take_split, fold, chain))
        if len(fit) == 0 or len(dev) == 0:
            raise TrainingError(
                f"chain {chain.name}: {len(fit)} segments with a trajectory to fit on and {len(dev)} in dev, but both "
                "need at least one; look at the rejects of trajectories"
            )
        return AlignmentTask(data.motions, data.labels, data.bank, fit, dev)

    jobs, width = prepared(work, wanted, "alignment", task), {"text_width": str(data.bank.shape[1])}
    return Fits(jobs, FIT, lambda job: width | fitted_takes(job, data.segment_take, data.take_ids))


def conclude(work: Work[AlignmentConfig]) -> None:
    """Write the folds and the settings of the models; count the segments with head motion."""
    takes = Contributions.read(work.inputs, ())
    fold_of = folds_for(takes.train, work.config)
    folds = {"take_id": pa.array(fold_of, pa.string()), "fold": pa.array(fold_of.values(), pa.int64())}
    work.sink.table("folds", pa.table(folds))
    work.sink.models("e_tau", {"config": settings_of_e_tau(work.config).model_dump_json()})
    segments, motions = (work.inputs.table(name, ["segment_id"])["segment_id"] for name in ("segments", "motions"))
    with_motion = pc.sum(pc.is_in(segments, value_set=pc.unique(motions))).as_py() or 0
    work.sink.count(with_motion, with_motion)


STAGE = TrainedStage("e_tau", "alignment_curves", trainings, facts, fits, conclude, results=("folds",)).stage(
    name="alignment",
    reads=("takes", "take_contents", "segments", "motions", "text_bank"),
    config=AlignmentConfig,
    version=VERSION,
    summary="Trains E_tau, the trajectory encoder, which maps head motion into the text space",
    lowers=("alignment.train.batch",),
    outside_shards=HERE,
)
