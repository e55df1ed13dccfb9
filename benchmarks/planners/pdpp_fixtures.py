"""What the original PDPP answers: schedule, network, projection, loss, sampling, classifier, rules of its training."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.planners import pdpp_cases as cases
from benchmarks.planners.pdpp_original import (
    CLASSIFIER_RULES,
    PdppModules,
    condition_of,
    diffusion,
    modules,
    their_name,
    with_weights,
)


def fixtures(original: Path) -> Mapping[str, Any]:
    """Return each part's numbers by name."""
    found = modules(original)
    return {
        "parameters": {name: parameters(found, name) for name in cases.PUBLISHED_SHAPES},
        "schedule": {str(n_times): schedule(found, n_times, at) for n_times, at in cases.SCHEDULES.items()},
        **{f"h{horizon}": answers(found, horizon) for horizon in cases.HORIZONS},
        "classifier": classified(found),
        "learning_rate": {str(total): learning_rates(found, total) for total in cases.TOTAL_STEPS},
        "average": averages(found),
    }


def parameters(found: PdppModules, name: str) -> int:
    """Return the number of parameters of the published network at one shape."""
    with torch.device("meta"):
        network = found.temporal.TemporalUnet(cases.PUBLISHED_SHAPES[name].total, dim=256, dim_mults=(1, 2, 4))
    return sum(parameter.numel() for parameter in network.parameters())


def schedule(found: PdppModules, n_times: int, at: tuple[int, ...]) -> Mapping[str, Any]:
    theirs = found.diffusion.GaussianDiffusion(nn.Identity(), 3, 1, 1, 1, n_times, clip_denoised=True)
    return {
        "beta": theirs.betas[list(at)],
        "alpha_bar": theirs.alphas_cumprod[list(at)],
        "of_clean": theirs.posterior_mean_coef1[list(at)],
        "of_noisy": theirs.posterior_mean_coef2[list(at)],
        "deviation": theirs.posterior_variance.sqrt()[list(at)],
        "ddim_times": theirs.ddim_timestep_seq.tolist(),
    }


def answers(found: PdppModules, horizon: int) -> Mapping[str, Any]:
    """Return the answers of the small network at one horizon."""
    ours, given, x_BHC = cases.pdpp(), cases.condition(), cases.rows(horizon)
    theirs = diffusion(found, ours.unet, horizon, cases.CONFIG.times)
    known = condition_of(given.ends, given.tasks, cases.SHAPE, horizon)
    t_B = torch.tensor(cases.TIMES)
    projected = found.helpers.condition_projection(x_BHC.clone(), known, cases.SHAPE.actions, cases.SHAPE.tasks)
    return {
        "network": theirs.model(x_BHC, t_B),
        "noised": theirs.q_sample(x_BHC, t_B, cases.draws()(*x_BHC.shape)),
        "projected": projected,
        "ddpm_step": {str(t): one_step(theirs, projected, known, t) for t in cases.STEPS_COMPARED},
        **{name: sampled(theirs, known, n_steps) for name, n_steps in cases.STEPS_OF_SAMPLING.items()},
        **loss(found, theirs, known, horizon, ours.unet),
    }


def one_step(theirs: Any, x_BHC: Tensor, known: Mapping[Any, Tensor], t: int) -> Tensor:
    with given_noise():
        out: Tensor = theirs.p_sample(x_BHC, known, torch.full((len(x_BHC),), t))
    return out


def sampled(theirs: Any, known: Mapping[Any, Tensor], n_steps: int | None) -> Tensor:
    with given_noise():
        out: Tensor = theirs.p_sample_loop(known, if_jump=n_steps is not None)
    return out[..., cases.SHAPE.of_actions]


def loss(
    found: PdppModules, theirs: Any, known: Mapping[Any, Tensor], horizon: int, ours: nn.Module
) -> Mapping[str, Any]:
    """Return the loss of true plans at given times and noise, and the length of its gradient by our names."""
    one_hot = nn.functional.one_hot(cases.labels(horizon), cases.SHAPE.actions).float()
    clean_BHC = torch.zeros(2, horizon, cases.SHAPE.total)
    clean_BHC[..., cases.SHAPE.of_actions] = one_hot
    clean_BHC = found.helpers.condition_projection(clean_BHC, known, cases.SHAPE.actions, cases.SHAPE.tasks)
    theirs.zero_grad()
    with given_noise():
        total = theirs.p_losses(clean_BHC, known, torch.tensor(cases.TIMES))
    total.backward()
    gradients = {name: parameter.grad for name, parameter in theirs.model.named_parameters()}
    lengths = {name: gradients[their_name(name)].norm() for name, _ in ours.named_parameters()}
    return {"loss": total, "gradient": lengths}


def classified(found: PdppModules) -> Tensor:
    theirs = found.train_mlp.head(cases.SHAPE.features, cases.SHAPE.tasks)
    out: Tensor = with_weights(theirs, cases.classifier(), CLASSIFIER_RULES)(cases.condition().ends)
    return out


def learning_rates(found: PdppModules, total: int) -> list[float]:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    rule = found.helpers.get_lr_schedule_with_warmup(optimizer, total).lr_lambdas[0]
    return [float(rule(step)) for step in cases.compared_steps(total)]


def averages(found: PdppModules) -> Mapping[str, Tensor]:
    """Return the averaged weights of a small layer after some steps; which steps count is as in `Trainer.train`."""
    layer, trainer = nn.Linear(3, 2), object.__new__(found.training.Trainer)
    trainer.model, trainer.ema_model, trainer.ema = layer, nn.Linear(3, 2), found.training.EMA(0.995)
    trainer.step_start_ema, seen = 400, {}
    for step in range(cases.AVERAGED_UNTIL):
        cases.averaged_weights(layer, step)
        trainer.step = step
        if step % 10 == 0:
            trainer.step_ema()
        if step in cases.AVERAGED_AT:
            seen[str(step)] = trainer.ema_model.weight.detach().clone()
    return seen


@contextmanager
def given_noise() -> Iterator[None]:
    """Let the original's calls of `torch.randn` and `torch.randn_like` return the numbers of `cases.draws`."""
    source: Callable[..., Tensor] = cases.draws()
    before = torch.randn, torch.randn_like
    try:
        torch.randn = lambda shape, **_: source(*shape)  # type: ignore[assignment]
        torch.randn_like = lambda x, **_: source(*x.shape)  # type: ignore[assignment]
        yield
    finally:
        torch.randn, torch.randn_like = before
