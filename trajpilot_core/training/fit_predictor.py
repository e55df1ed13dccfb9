"""Fit one causal predictor (paper, 3.4; docs/decisions/paper-gaps.md, D 1 to 16), from random weights or from those of
another run (docs/decisions/pretrained.md).

Shapes: B batch, H horizon, S segments, C tokens of a feature, D feature width, V labels, E text width.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from schemas.annotation import SHORTEST_PLAN
from schemas.training import HeadKind, PredictorConfig
from trajpilot_core.data.chains import fit_takes, load_e_tau, trajectory_latents
from trajpilot_core.data.cross_fitting import Chain, is_twin, original_of
from trajpilot_core.data.imported_fits import first_weights
from trajpilot_core.data.other_runs import open_other
from trajpilot_core.data.planning import SPLITS, PlanningData, rows_of_takes
from trajpilot_core.errors import InputError, TrainingError
from trajpilot_core.models.predictor import CausalPredictor, PredictorShape, feature_scales
from trajpilot_core.store.tensors import Models
from trajpilot_core.training.dev_scores import measured, mid_accuracy, nearest_labels, sampled_fit
from trajpilot_core.training.jobs import Fit, Task, TrainingJob
from trajpilot_core.training.loop import Training, index_batches, seeded
from trajpilot_core.training.losses import PredictedWindows, clamp_temperature, class_loss, pooled_prediction_loss

ENTRY = "predictors"
NEW = "class_head."
"""Prefix of parameters that the other run may lack: a head over the labels of this run."""
UNSEEN = ("heads", "standardise")
"""Settings that change the meaning of weights but not their shapes."""


@dataclass(frozen=True)
class PredictorTask(Task):
    """The tensors of one chain and seed, on the device."""

    SHARED: ClassVar[tuple[str, ...]] = ("features", "labels", "bank")

    features: Tensor
    """(S, C, D) float16, raw."""
    latents: Tensor
    """(S, E) from this chain's E_tau."""
    labels: Tensor
    """(S,) long."""
    bank: Tensor
    """(V, E) unit norm."""
    fit_rows: Tensor
    """(n,) long, segments of the fitted takes, for the scale of the features."""
    fit: dict[int, Tensor]
    """Horizon -> (N, H) long, fitted windows as rows of segments."""
    dev: dict[int, Tensor]
    """Horizon -> (N, H) long."""
    max_horizon: int
    """Longest horizon of all windows of the data."""


def predictor_task(
    data: PlanningData, e_tau: Models, chain: Chain, seed: int, device: str, cfg: PredictorConfig
) -> PredictorTask:
    """Return the tensors of one chain and seed: its latents, the windows of its takes, and all dev windows.

    Raises TrainingError: no window to fit on, or none in dev, or windows without a step between Start and Goal.
    """
    if min(data.windows, default=SHORTEST_PLAN) < SHORTEST_PLAN:
        raise TrainingError(
            f"windows of {min(data.windows)} segments have no step to plan between Start and Goal; the minimum is "
            f"{SHORTEST_PLAN}"
        )
    rows, *both = windows_of_chain(data, chain)
    fit, dev = ({h: s for h, s in part.items() if len(s)} for part in both)
    if not fit or not dev:
        raise TrainingError(
            f"chain {chain.name}: windows of {len(fit)} horizons to fit on and of {len(dev)} in dev, but both need at "
            "least one; look at the rejects of ingest, trajectories and features"
        )
    encoder = load_e_tau(e_tau, chain, seed, device)
    latents = trajectory_latents(encoder, data.motions.to(device)).cpu()
    places = places_for(max(data.windows), cfg)
    return PredictorTask(data.features, latents, data.labels, data.bank, rows, fit, dev, places)


def windows_of_chain(data: PlanningData, chain: Chain) -> tuple[Tensor, dict[int, Tensor], dict[int, Tensor]]:
    """Return (n,) long, the segments of the takes that a chain is fitted on, and horizon -> (N, H) long, their windows,
    and those of dev."""
    takes = fit_takes(data, chain)
    fit = {h: w.segments[torch.isin(w.take, takes)] for h, w in data.windows.items()}
    dev = {h: w.segments[w.split == SPLITS.index("dev")] for h, w in data.windows.items()}
    return rows_of_takes(data.segment_take, takes), fit, dev


def predictor_training(job: TrainingJob, task: PredictorTask, cfg: PredictorConfig) -> Training:
    """Return the training of the variant that the job names."""
    with seeded(job.seed):
        model = new_predictor(task, cfg).to(job.device)
    if start_weights(model, cfg, job.key):
        begin_class_head(model, task.bank)  # with the factor of the other run, not the initial one
    sample, sees_goal = sampled_fit(task.fit, task.dev, job.seed), is_measured_with_goal(cfg, job.variant)
    return Training(
        name=job.name,
        seed=job.seed,
        model=model,
        cfg=cfg.train,
        batches=lambda generator: window_batches(task.fit, cfg.train.batch, generator),
        loss=lambda batch: window_loss(model, task, cfg, job.variant, *batch),
        measure=measurer(model, task, job.variant, sample, sees_goal=sees_goal),
        selected="dev/M@1",
    )


FIT = Fit(PredictorTask, PredictorConfig, predictor_training)


def predictor_shape(task: PredictorTask, head: HeadKind) -> PredictorShape:
    """Return the sizes that follow from the data; a class head has one output per label of the bank."""
    classes = len(task.bank) if head == "classes" else 0
    return PredictorShape(task.features.shape[2], task.features.shape[1], task.bank.shape[1], task.max_horizon, classes)


def new_predictor(task: PredictorTask, cfg: PredictorConfig) -> CausalPredictor:
    """Build a predictor from the global random state, with the feature scale of the fitted takes."""
    model = CausalPredictor(cfg, predictor_shape(task, cfg.head))
    standardise(model, task.features[task.fit_rows])
    begin_class_head(model, task.bank)
    return model


def standardise(module: nn.Module, raw_NCD: Tensor) -> None:
    """Set the buffers `feature_mean` and `feature_scale` (D,) of a module to those of raw features (N, C, D)."""
    for name, value in zip(("feature_mean", "feature_scale"), feature_scales(raw_NCD), strict=True):
        module.get_buffer(name).copy_(value)


@torch.no_grad()
def begin_class_head(model: CausalPredictor, bank_VE: Tensor) -> None:
    """Initialise a class head, if there is one, as the open readout: cosines with the bank times the model's factor."""
    if model.class_head is not None:
        model.class_head.weight.copy_(model.log_temperature.exp() * bank_VE)
        model.class_head.bias.zero_()


def window_batches(fit_windows: dict[int, Tensor], batch: int, generator: torch.Generator) -> list[tuple[int, Tensor]]:
    """Return one epoch of horizon -> (N, H) windows: each once, in random order (uniform over the union, D 3).

    A batch is a horizon and (B,) long numbers of its windows, on their device; the generator is on the CPU.
    """
    batches = [(h, rows) for h, w in fit_windows.items() for rows in index_batches(len(w), batch, generator, w.device)]
    return [batches[i] for i in torch.randperm(len(batches), generator=generator).tolist()]


def window_loss(
    model: CausalPredictor, task: PredictorTask, cfg: PredictorConfig, variant: str, horizon: int, rows: Tensor
) -> Tensor:
    """Return the loss of the fitted windows `rows` (B,), long, of a horizon, a scalar (shape ()).

    L_pred; with a class head the cross-entropy of all steps, plus lambda_bridge times L_pred (D 34). Trajectories and
    goals are dropped at random (D 13, 16).
    """
    segments = task.fit[horizon][rows]
    latents_BHE = variant_latents(task.latents[segments], variant)
    if original_of(variant) != "no_traj":
        latents_BHE = latents_BHE * kept(len(rows), cfg.trajectory_dropout, latents_BHE.device)[:, None, None]
    dropout = goal_dropout_of(cfg, variant)
    goal_seen_B = kept(len(rows), dropout, latents_BHE.device) if dropout > 0 else None
    start_BCD, goal_BCD = task.features[segments[:, 0]], task.features[segments[:, -1]]
    predicted_BHE = model(start_BCD, goal_BCD, latents_BHE, horizon, goal_seen_B)
    ids_BH = task.labels[segments]
    is_target_B = goal_seen_B if cfg.masked_goal_target == "dropped" else None
    windows = PredictedWindows(predicted_BHE, task.bank[ids_BH], ids_BH, is_target_B)
    temperature = clamp_temperature(model.log_temperature)
    classes = None if model.class_head is None else class_loss(windows, model.class_logits)
    if classes is not None and cfg.bridge_weight == 0:
        return classes
    open_loss = pooled_prediction_loss(windows, temperature, cfg.infonce_weight)
    return open_loss if classes is None else classes + cfg.bridge_weight * open_loss


def goal_dropout_of(cfg: PredictorConfig, variant: str) -> float:
    """Return the probability with which a variant's goals are masked: that of goal-dropout twins, or of all others."""
    if not is_twin(variant):
        return cfg.goal_dropout
    assert cfg.twin_goal_dropout is not None, f"{variant} is trained, but no twins are configured"
    return cfg.twin_goal_dropout


def is_measured_with_goal(cfg: PredictorConfig, variant: str) -> bool:
    """Return whether a variant is given the goal on dev: all but anticipating twins are selected as planners."""
    return not (cfg.anticipates and is_twin(variant))


def variant_latents(latents_BHE: Tensor, variant: str) -> Tensor:
    """Return the (B, H, E) trajectory input of a variant: traj all, endpoint_traj the ends, no_traj none.

    A goal-dropout twin has the input of its original.
    """
    original = original_of(variant)
    if original == "traj":
        return latents_BHE
    out = torch.zeros_like(latents_BHE)
    if original == "endpoint_traj":
        out[:, 0], out[:, -1] = latents_BHE[:, 0], latents_BHE[:, -1]
    return out


def kept(n: int, dropout: float, device: torch.device) -> Tensor:
    """Return bool of shape (n,), false with probability `dropout`, from the global random state."""
    return torch.rand(n, device=device) >= dropout


def measurer(
    model: CausalPredictor,
    task: PredictorTask,
    variant: str,
    sample: Mapping[int, Tensor] | None = None,
    *,
    sees_goal: bool = True,
) -> Callable[[], dict[str, float]]:
    """Return the measure of an epoch: M@1 under the variant's own trajectories, per H and as their plain mean.

    Next to dev a sample of fitted windows is scored, horizon -> (n, H) long; None: dev alone. Without `sees_goal`
    neither the feature nor the trajectory of the goal is given.
    """
    scored: dict[str, Mapping[int, Tensor]] = {"train": sample, "dev": task.dev} if sample else {"dev": task.dev}

    def predict(segments: Tensor) -> Tensor:
        """Return the (N, H, E) predictions for (N, H) long rows of segments."""
        latents = variant_latents(task.latents[segments], variant)
        start = task.features[segments[:, 0]]
        goal = task.features[segments[:, -1]] if sees_goal else None
        out: Tensor = model(start, goal, latents, segments.shape[1])
        return out

    def accuracy(windows: Mapping[int, Tensor]) -> dict[str, float]:
        truth = {horizon: task.labels[rows] for horizon, rows in windows.items()}
        scores = model.class_logits if model.class_head is not None else lambda predicted_xE: predicted_xE @ task.bank.T
        return mid_accuracy(nearest_labels(predict, windows, scores), truth)

    return lambda: measured(scored, accuracy)


def places_for(horizon: int, cfg: PredictorConfig) -> int:
    """Return the longest horizon that a model has positions for: that of the data, or of its initial weights.

    With shorter windows positions stay unused; with longer windows weights are missing, which `start_weights` refuses.
    """
    if cfg.pretrained is None:
        return horizon
    max_horizon = int(json.loads(open_other(cfg.pretrained, "predictor").models(ENTRY).about["shape"])["max_horizon"])
    return max(horizon, max_horizon)


def start_weights(model: CausalPredictor, cfg: PredictorConfig, key: str) -> bool:
    """Load the other run's weights of this key into a new model; nothing is loaded if no other run is set.

    All parameters and buffers are loaded, including the scale of the features. A goal-dropout twin that the other run
    lacks gets the weights of its original there (`first_weights`); a class head that it lacks stays as it is.

    Returns:
        Whether there is a class head that the other run lacks; False if no other run is set.

    Raises InputError: settings that give the weights another meaning differ, or the other model has other sizes, or is
        damaged.
    """
    if cfg.pretrained is None:
        return False
    output = open_other(cfg.pretrained, "predictor")
    settings = output.settings(PredictorConfig, ENTRY)
    both = {name: (getattr(cfg, name), getattr(settings, name)) for name in UNSEEN}
    differ = [
        f"predictor.{name} is {ours} here and {theirs} there" for name, (ours, theirs) in both.items() if ours != theirs
    ]
    if differ:
        raise InputError(f"{output.setting}: {'; '.join(differ)} ({output.named}); set the values of that run")
    models = output.models(ENTRY)
    first = first_weights(key, models.keys)
    state, weights = model.state_dict(), {name: torch.tensor(value) for name, value in models.read(first).items()}
    new = {name: value for name, value in state.items() if name.startswith(NEW) and name not in weights}
    try:
        model.load_state_dict(weights | new)
    except RuntimeError as error:
        raise InputError(
            f"{output.setting}: {first} of {output.named} does not fit ({error}); set the sizes of that run, and no "
            "longer horizon than it has (predictor.*, features.tokens, ingest.max_horizon)"
        ) from None
    return bool(new)
