"""The attentive probe on EPIC-KITCHENS-100: which verb, noun and action follow a clip. One grid of trainings per seed.

Source: paper, appendix on EPIC-KITCHENS-100; docs/decisions/epic-probe.md.
"""

import json
from typing import TYPE_CHECKING

import numpy as np

from schemas.annotation import Take
from schemas.arrow import rows_of, table_of
from schemas.config import PipelineConfig
from schemas.events import ProbeConfig, ProbeScore
from schemas.results import CurvePoint, Judgement
from trajpilot_core.arrays import Codes
from trajpilot_core.corpora.records.videos import video_of
from trajpilot_core.data.cross_fitting import FINAL, model_key, part_of
from trajpilot_core.encoders.video.registry import video_encoder_files
from trajpilot_core.engine.stage import Source, Stage, Work
from trajpilot_core.errors import InputError
from trajpilot_core.metrics.epic_kitchens import ActionPart
from trajpilot_core.store.reading import Inputs

if TYPE_CHECKING:
    from trajpilot_core.data.action_clips import ClipData
    from trajpilot_core.training.fit_probe import ChosenProbe, ProbeTask
    from trajpilot_core.training.jobs import TrainingJob

ENTRY, VARIANT, FLOOR = "probe_models", "probe", "majority"
READS = ("segments", "details", "features")
VERSION = 4  # raise when the numbers that this stage writes change


def trainings(cfg: ProbeConfig) -> dict[str, int]:
    """Return training -> seed."""
    return {model_key(FINAL, seed, VARIANT): seed for seed in cfg.seeds}


def completed(config: PipelineConfig) -> ProbeConfig:
    """Return the settings of the stage, with an encoder where it encodes clips itself, and without one elsewhere."""
    encoder = (config.probe.encoder or config.features) if config.probe.tokens == "full" else None
    return config.probe.replace(encoder=encoder)


def sources(inputs: Inputs, cfg: ProbeConfig, data_root: str) -> list[Source]:
    """Return one source per seed: all clips, since the stage also answers the tested ones; with `full` their videos.

    Raises InputError: the settings have no probe, or enable every patch in a run without videos or encoder.
    """
    if cfg.tokens is None:
        raise InputError("a corpus without plans is scored by the probe: set probe.tokens=temporal, or full")
    facts = {name: part_of(inputs, name) for name in READS}
    files: tuple[str, ...] = ()
    if cfg.encoder is not None:
        if cfg.encoder.source != "encoded":
            raise InputError("probe.tokens=full encodes clips of videos: set features.source=encoded")
        takes = rows_of(Take, inputs.table("takes"))
        videos = sorted(video_of(take, "probe.tokens=full") for take in takes)
        files, facts = (*videos, *video_encoder_files(cfg.encoder)), {**facts, "takes": part_of(inputs, "takes")}
    return [Source(name, files, facts) for name in trainings(cfg)]


def run(work: Work[ProbeConfig]) -> None:
    """Fit the pending grids, let dev choose one trial of each, and answer the tested clips with it."""
    import torch

    from trajpilot_core.data.action_clips import load_clips
    from trajpilot_core.models.attentive_probe import AttentiveProbe
    from trajpilot_core.training.fit_probe import FIT, answers, choose_probe, load_probe, probe_task
    from trajpilot_core.training.jobs import chain_job, put_task, run_jobs

    if not work.pending:
        return
    if work.config.encoder is not None:
        from trajpilot_core.stages.full_probe import run_full

        run_full(work)
        return
    data, scratch = load_clips(work.inputs), work.runtime.scratch / "probe"
    refuse_late(data, work.config)
    task = probe_task(data)
    put_task(scratch, scratch, task)
    pending = {source.shard for source in work.pending}
    seeds = [seed for name, seed in trainings(work.config).items() if name in pending]
    jobs = [chain_job(work, FINAL, seed, VARIANT, scratch, scratch) for seed in seeds]

    def ended(job: "TrainingJob") -> None:
        chosen = choose_probe(FIT.result(job), work.config)
        model = load_probe(lambda: AttentiveProbe(task.shape(work.config)), chosen, work.runtime.device)
        classes = {part: codes.cpu().numpy() for part, codes in task.classes.items()}
        rankings = answers(model, torch.from_numpy(data.tokens[data.rows("test")]), classes)
        commit(job.key, job.seed, chosen, rankings, work, task, data)

    run_jobs(jobs, FIT, work.runtime, ended)


def refuse_late(data: "ClipData", cfg: ProbeConfig) -> None:
    """Raise InputError where the last frame of a clip is later than `gap_s` before its action, and may show it."""
    late = data.last_frame_s > data.action_s - cfg.gap_s + 1e-6  # frame times are rounded
    if late.any():
        at = int(late.argmax())
        raise InputError(
            f"probe: the last frame of {int(late.sum())} of {len(late)} clips is later than {cfg.gap_s:g} s before the "
            f"action (probe.gap_s), such as {data.segment_ids[at]}: {data.last_frame_s[at]:.3f} s, action at "
            f"{data.action_s[at]:.3f} s; set ingest.epic_kitchens.anchor=start and its gap_s, or lower probe.gap_s"
        )


def commit(
    name: str,
    seed: int,
    chosen: "ChosenProbe",
    rankings: "dict[ActionPart, Codes]",
    work: Work[ProbeConfig],
    task: "ProbeTask",
    data: "ClipData",
) -> None:
    """Commit the chosen probe, the curves of the grid, and scores and checks of the tested clips."""
    from trajpilot_core.evaluation.action_scores import AnsweredRow, TestedClips, action_scores, check_splits
    from trajpilot_core.training.fit_probe import floor_rankings

    cfg, rows = work.config, data.rows("test")
    takes, numbers = np.unique([data.take_ids[row] for row in rows], return_inverse=True)
    tested = TestedClips(data.clips.of(rows), numbers)
    answered = [
        AnsweredRow(VARIANT, seed, chosen.trial.name, rankings),
        AnsweredRow(FLOOR, seed, "", floor_rankings(task, len(rows))),
    ]
    scores = [score for row in answered for score in action_scores(row, tested, cfg)]
    learned = [data.take_ids[row] for split in ("train", "dev") for row in data.rows(split)]
    with work.sink.training(name) as share:
        share.model(ENTRY, name, {key: value.numpy() for key, value in chosen.weights.items()})
        share.table("probe_curves", table_of(CurvePoint, chosen.curve))
        share.table("probe_scores", table_of(ProbeScore, scores))
        share.table("probe_checks", table_of(Judgement, [check_splits(takes.tolist(), learned)]))
        classes = {part: codes.tolist() for part, codes in task.classes.items()}  # of each column, by `pair_codes`
        share.models(ENTRY, {"classes": json.dumps(classes)})


def conclude(work: Work[ProbeConfig]) -> None:
    """Write the settings of the probes; rows are clips with features."""
    work.sink.models(ENTRY, {"config": work.config.model_dump_json()})
    n_clips = work.inputs.table("features", ["segment_id"]).num_rows
    work.sink.count(n_clips, n_clips)


STAGE = Stage(
    name="probe",
    reads=READS,
    writes=(ENTRY, "probe_curves", "probe_scores", "probe_checks"),
    config=ProbeConfig,
    run=run,
    version=VERSION,
    summary="Trains the attentive probe of V-JEPA 2: which verb, noun and action follow a clip of EPIC-KITCHENS-100",
    shard_by="training",
    sources=sources,
    uses_gpu=True,
    lowers=("probe.batch", "probe.clips_at_once", "probe.rates"),
    conclude=conclude,
    completed=completed,
    narrowed=lambda config: (*READS, "takes") if config.probe.tokens == "full" else None,  # which name the videos
    outside_shards=("seeds", "clips_at_once"),
)
