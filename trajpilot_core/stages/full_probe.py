"""Probes on every patch: clips are encoded in each epoch. Source: docs/decisions/epic-probe.md, epic-token.md."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import torch
from torch import Tensor

from schemas.annotation import Take
from schemas.arrow import rows_of
from schemas.events import CompletedActionToken, ProbeConfig, TokenRow
from trajpilot_core.arrays import Codes
from trajpilot_core.data.action_clips import ClipData, load_clips
from trajpilot_core.data.cross_fitting import FINAL
from trajpilot_core.encoders.video.frozen_vjepa import FrozenVjepa
from trajpilot_core.encoders.video.registry import torch_threads
from trajpilot_core.engine.progress import Progress, portion
from trajpilot_core.engine.stage import Runtime, Work
from trajpilot_core.metrics.epic_kitchens import ActionPart
from trajpilot_core.models.attentive_probe import AttentiveProbe
from trajpilot_core.models.events import TokenProbe
from trajpilot_core.stages.probe import VARIANT, commit, refuse_late, trainings
from trajpilot_core.store.reading import Inputs
from trajpilot_core.training.clip_stream import ClipStream, open_encoder
from trajpilot_core.training.fit_full_probe import GridProbe, answers_of, fit_side_by_side
from trajpilot_core.training.fit_probe import (
    ChosenProbe,
    ProbeTask,
    TokenTask,
    grid,
    load_probe,
    name_of,
    new_token_probe,
    probe_task,
)

log = logging.getLogger("trajpilot")


def run_full(work: Work[ProbeConfig]) -> None:
    """Fit the grids of the pending seeds, one after the other, and answer the tested clips."""
    cfg, runtime = work.config, work.runtime
    assert cfg.encoder is not None
    data = load_clips(work.inputs, cfg.encoder.token_shape[0])
    refuse_late(data, cfg)
    task, pending = probe_task(data), [source.shard for source in work.pending]
    fitted, model = np.concatenate([data.rows("train"), data.rows("dev")]), f"{FINAL.name}/{VARIANT}"
    build = partial(AttentiveProbe, task.shape(cfg))
    members = [GridProbe(model, trial, build) for trial in grid(cfg)]
    classes = {part: codes.numpy() for part, codes in task.classes.items()}
    log.info(
        "probe: all patches of %d clips are encoded again in each of %d epochs (docs/scale.md has the hours on a GPU)",
        len(fitted),
        cfg.epochs,
    )
    with torch_threads(cfg.encoder):
        stream = stream_of(work.inputs, runtime, data, open_encoder(cfg.encoder, runtime.device, runtime.scratch))
        for at, name in enumerate(pending):
            seed = trainings(cfg)[name]
            progress = portion(runtime.progress, at * cfg.epochs, len(pending) * cfg.epochs)
            own = replace(runtime, scratch=runtime.training_scratch[name], progress=progress)
            chosen = fit_side_by_side(members, seed, task, cfg, stream.of(fitted.tolist()), own)[model]
            probe = load_probe(build, chosen, runtime.device)
            (rankings,) = answers_of([probe], stream, data.rows("test").tolist(), classes, cfg)
            commit(name, seed, chosen, rankings, work, task, data)


def stream_of(inputs: Inputs, runtime: Runtime, data: ClipData, encoder: FrozenVjepa) -> ClipStream:
    """Return all clips with the frame times of their features, to be encoded by an encoder."""
    video = {take.take_id: take.video for take in rows_of(Take, inputs.table("takes"))}
    table = inputs.table("features", ["frame_times_s"])  # `data` has its order
    return ClipStream(
        tuple(str(video[take]) for take in data.take_ids),
        np.array(table["frame_times_s"].to_pylist(), dtype=np.float64),
        data.action_s,
        encoder,
        runtime,
    )


class PatchProbes:
    """Probes with TrajPilot's token next to every patch: how a seed's rows are fine-tuned, and what they answer."""

    def __init__(self, inputs: Inputs, runtime: Runtime, data: ClipData, cfg: CompletedActionToken) -> None:
        encoder = cfg.tuned.encoder
        assert encoder is not None
        self.cfg, self.runtime = cfg, runtime
        self.stream = stream_of(inputs, runtime, data, open_encoder(encoder, runtime.device, runtime.scratch))
        self.width = encoder.token_shape[0]

    def tuned(
        self,
        seed: int,
        clips: ProbeTask,
        rows: Tensor,
        tokens: Mapping[TokenRow, Tensor],
        begun: dict[str, Tensor],
        progress: Progress,
    ) -> dict[TokenRow, tuple[TokenProbe, ChosenProbe]]:
        """Fine-tune the trials of all rows side by side, so that each clip is encoded once.

        `rows` (M,), long, are numbers in the stream; `tokens` are row -> (M, E) float16.
        """
        cfg, runtime = self.cfg, self.runtime
        task = replace(clips, tokens=torch.empty(len(rows), 0, self.width, dtype=torch.float16))
        tasks = {row: TokenTask(**vars(task), token=token, begun=begun) for row, token in tokens.items()}
        builds = {row: partial(new_token_probe, row, tasks[row], cfg) for row in tokens}
        trials = product(tokens, grid(cfg.tuned))
        members = [GridProbe(name_of(row), trial, builds[row], (tokens[row],)) for row, trial in trials]
        stream = self.stream.of(rows.tolist())
        own = replace(runtime, scratch=runtime.scratch / f"patches-s{seed}", progress=progress)
        chosen = fit_side_by_side(members, seed, task, cfg.tuned, stream, own, keeps_last=True)
        best = {row: chosen[name_of(row)] for row in tokens}
        return {row: (load_probe(builds[row], best[row], runtime.device), best[row]) for row in tokens}

    def read(
        self, probes: Sequence[TokenProbe], rows: Tensor, tokens: Sequence[Tensor], classes: dict[ActionPart, Codes]
    ) -> list[dict[ActionPart, Codes]]:
        """Return for each probe part -> (n, K) ranked classes of the clips `rows` (n,), with its token (n, E) each."""
        stream = self.stream.of(rows.tolist())
        return answers_of(probes, stream, range(len(rows)), classes, self.cfg.tuned, [(token,) for token in tokens])
