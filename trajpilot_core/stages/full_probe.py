"""The stage `probe` on every patch: clips are encoded in each epoch. Source: docs/decisions/epic-probe.md."""

from schemas.annotation import Take
from schemas.arrow import rows_of
from schemas.events import ProbeConfig
from trajpilot_core.data.action_clips import ClipData, load_clips
from trajpilot_core.data.cross_fitting import FINAL
from trajpilot_core.encoders.video.embed import torch_threads
from trajpilot_core.encoders.video.frozen_vjepa import FrozenVjepa
from trajpilot_core.engine.progress import portion
from trajpilot_core.engine.stage import Work
from trajpilot_core.stages.probe import VARIANT, commit, refuse_late, trainings
from trajpilot_core.training.clip_stream import ClipStream, StreamPlace, clip_stream, open_encoder
from trajpilot_core.training.fit_full_probe import answers_of, fit_full_probe
from trajpilot_core.training.fit_probe import load_probe, probe_task


def run_full(work: Work[ProbeConfig]) -> None:
    """Fit the grids of the pending seeds, one after the other, and answer the tested clips."""
    cfg, runtime = work.config, work.runtime
    assert cfg.encoder is not None
    data = load_clips(work.inputs, cfg.encoder.token_shape[0])
    refuse_late(data, cfg)
    task, pending = probe_task(data), [source.shard for source in work.pending]
    with torch_threads(cfg.encoder):
        encoder = open_encoder(cfg.encoder, runtime.device, runtime.scratch)
        stream = stream_of(work, data, encoder)
        for at, name in enumerate(pending):
            seed = trainings(cfg)[name]
            progress = portion(runtime.progress, at * cfg.epochs, len(pending) * cfg.epochs)
            folder, model = runtime.training_scratch[name], f"{FINAL.name}/{VARIANT}"
            chosen = fit_full_probe(
                model, seed, task, cfg, stream, folder, runtime.device, progress, runtime.checkpoint_s
            )
            probe = load_probe(chosen, task, cfg, runtime.device)
            classes = {part: found.numpy() for part, found in task.classes.items()}
            tested = stream_of(work, data, encoder, "test")
            (rankings,) = answers_of([probe], tested, range(len(tested.videos)), classes, cfg)
            commit(name, seed, chosen, rankings, work, task, data)


def stream_of(work: Work[ProbeConfig], data: ClipData, encoder: FrozenVjepa, *splits: str) -> ClipStream:
    """Return the clips of training and dev in the order of the task, or those of other splits."""
    rows = [row for split in splits or ("train", "dev") for row in data.rows(split).tolist()]
    runtime = work.runtime
    place = StreamPlace(runtime.data_root, runtime.workers, runtime.scratch)
    action_s = dict(zip(data.segment_ids, data.action_s.tolist(), strict=True))
    ids = [data.segment_ids[row] for row in rows]
    video = {take.take_id: take.video for take in rows_of(Take, work.inputs.table("takes"))}
    table = work.inputs.table("features", ["segment_id", "frame_times_s"])
    times = dict(zip(table["segment_id"].to_pylist(), table["frame_times_s"].to_pylist(), strict=True))
    facts = {one: (video[data.take_ids[row]], times[one], action_s[one]) for one, row in zip(ids, rows, strict=True)}
    return clip_stream(facts, ids, encoder, place)
