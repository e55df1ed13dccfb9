"""Tune the recogniser on what the stages of a run have made: for the stage `vlm_tuning`, and for `trajpilot vlm tune`,
which leaves a folder."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from schemas.base import fingerprint
from schemas.vlm import VlmConfig
from trajpilot_core.engine.stage import Inputs, Runtime, Work
from trajpilot_core.errors import InputError
from trajpilot_core.training.loop import FittedModel
from trajpilot_core.vlm.local.folder import ADAPTER, TUNABLE, model_folder, named_by_content
from trajpilot_core.vlm.local.model import load_model
from trajpilot_core.vlm.material import load_material
from trajpilot_core.vlm.prompts import load_prompts
from trajpilot_core.vlm.requests import Asking
from trajpilot_core.vlm.tuning.adapter import save_adapter
from trajpilot_core.vlm.tuning.fit import TuningTask, tune
from trajpilot_core.vlm.tuning.pairs import decoder, pairs_to_tune


class Tuned(NamedTuple):
    """How a tuning ended."""

    n_rounds: int
    best_epoch: int
    """Round that was kept."""
    best_score: float
    """Minus the loss of its answers on dev."""


class ReadyTuning(NamedTuple):
    """What was checked and loaded before anything is tuned."""

    task: TuningTask
    base: str
    """The model, by folder and digest."""

    def about(self, done: FittedModel) -> dict[str, object]:
        """Return what has to be known of weights that were tuned, next to settings and model."""
        train, dev = self.task.train, self.task.dev
        return {
            "pairs": len(train),
            "takes": sorted({one.take_id for one in train}),
            "dev takes": sorted({one.take_id for one in dev}),
            "round": done.best_epoch,
            "dev loss": -done.best_score,
            "prompts": self.task.asking.prompts.digest,
        }


def ready(inputs: Inputs, cfg: VlmConfig, runtime: Runtime) -> ReadyTuning:
    """Check the pairs, and load the model.

    Args:
        inputs: takes, segments, labels, windows, features.
        cfg: of the tuning, or of the stage `vlm`: models, frames and prompts.
        runtime: where.

    Raises:
        InputError: the model is not there, not whole or of another kind.
        LeakError: a pair is of a take that is not for training.
        TrainingError: there is nothing to tune on.
    """
    train, dev = pairs_to_tune(inputs, cfg.tuning)
    base = named_by_content(cfg).model
    local = load_model(model_folder("vlm.model", cfg.model, TUNABLE), None, runtime.device)
    asking = Asking(cfg, load_prompts(cfg.prompts), load_material(inputs))
    return ReadyTuning(TuningTask(local, asking, decoder(cfg, runtime.data_root, runtime.scratch), train, dev), base)


def tune_recogniser(work: Work[VlmConfig], out: Path, say: Callable[[str], None]) -> Tuned:
    """Fit the added weights, or go on with that, and write their folder.

    The checkpoint lies in the work's scratch, below a digest of all that decides the weights.

    Args:
        work: of the stage `vlm`, whatever of it is done.
        out: new folder.
        say: is told of every round.

    Raises:
        InputError: the folder holds an adapter; and as `ready`.
        LeakError: as `ready`, or a question tells its answer.
        TrainingError: as `ready`, or it does not converge.
    """
    if (out / ADAPTER[1]).exists():
        raise InputError(f"{out} holds an adapter; name a new folder")
    cfg, (task, base) = work.config, (made := ready(work.inputs, work.config, work.runtime))
    folder = work.runtime.scratch / f"tuning-{digest_of(cfg, base, task, work.runtime.device)[:16]}"
    say(f"{len(task.train):,} segments of training takes, {len(task.dev):,} of dev; the checkpoint lies in {folder}")
    done = tune(task, cfg.tuning, folder, lambda epoch, epochs, line: say(f"{epoch}/{epochs} {line}"))
    save_adapter(out, done.state, cfg.tuning, base, made.about(done))
    return Tuned(max(point.epoch for point in done.curve), done.best_epoch, done.best_score)


def digest_of(cfg: VlmConfig, base: str, task: TuningTask, device: str) -> str:
    """Return a digest of what decides the weights: a checkpoint of other pairs or settings is not gone on with."""
    asking = task.asking
    shown = [cfg.n_frames, cfg.size_px, cfg.exemplars, cfg.seed, asking.prompts.digest, base, device.split(":")[0]]
    known = sorted(asking.material.labels_of.items())
    return fingerprint([cfg.tuning.content(), *map(repr, (shown, known, task.train, task.dev))])
