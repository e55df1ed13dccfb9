"""The linear discriminant: Ledoit and Wolf's shrinkage by its definition, and what it says of labels."""

import torch
from torch.testing import assert_close

from trajpilot_core.models.label_chain import LEAST_VARIANCE, fit_discriminant, shrunk


def drawn(n: int = 400, labels: int = 5, width: int = 6, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers of segments that depend on the label, on scales that differ by a thousand."""
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(labels, (n,), generator=g)
    look = 2 * torch.randn(labels, width, generator=g)
    mix = torch.randn(width, width, generator=g)
    scale = torch.logspace(-2, 1, width)
    return (look[label] + torch.randn(n, width, generator=g) @ mix) * scale, label


def test_the_shrinkage_is_that_of_its_definition() -> None:
    g = torch.Generator().manual_seed(2)
    x = torch.randn(30, 8, generator=g, dtype=torch.float64) @ torch.randn(8, 8, generator=g, dtype=torch.float64)
    covariance = x.T @ x / 30
    level = covariance.trace() / 8
    around = torch.stack([row[:, None] * row - covariance for row in x]).square().sum((1, 2)).mean() / 30
    share = min(1.0, float(around / (covariance - level * torch.eye(8)).square().sum()))
    expected = (1 - share) * covariance + (share * level + LEAST_VARIANCE) * torch.eye(8)
    assert 0 < share < 1
    assert_close(shrunk(covariance, x.square().sum(1).square().mean(), 30), expected)


def test_it_is_the_gaussian_of_each_label_with_one_covariance() -> None:
    x, label = drawn()
    found = fit_discriminant(x, label, 5)
    z = ((x - found.mean) / found.scale).double()
    means = torch.stack([z[label == v].sum(0) / ((label == v).sum() + 1) for v in range(5)])
    own = torch.stack([z[label == v].mean(0) for v in range(5)])
    left = z - own[label]
    covariance = shrunk(left.T @ left / 395, left.square().sum(1).square().sum() / 395, 395)
    gaussians = torch.distributions.MultivariateNormal(means, covariance).log_prob(z[:, None])
    said = found.log_likelihood(x)
    assert_close(said - said[:, :1], (gaussians - gaussians[:, :1]).float(), atol=2e-3, rtol=1e-3)
    assert (said.argmax(1) == label).float().mean() > 0.6


def test_a_label_without_segments_looks_like_any_and_a_constant_number_says_nothing() -> None:
    x, label = drawn()
    found = fit_discriminant(torch.cat([x, torch.ones(len(x), 1)], 1), label, 7)
    assert not found.weight[-1].any()
    assert_close(found.log_likelihood(torch.cat([x, torch.full((len(x), 1), 9.0)], 1))[:, 5:], torch.zeros(len(x), 2))


def test_labels_that_explain_everything_do_not_break_it() -> None:
    label = torch.arange(4).repeat(3)
    found = fit_discriminant(torch.eye(4)[label], label, 4)
    assert found.weight.isfinite().all()
    assert torch.equal(found.log_likelihood(torch.eye(4)).argmax(1), torch.arange(4))
