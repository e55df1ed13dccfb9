"""Steps that are compiled for a GPU where a run asks for it: never on a CPU, and without harm where it fails."""

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from planning_fixture import ALIGNMENT
from pretend_device import pretend_cuda
from torch import Tensor
from torch.testing import assert_close

from schemas.training import TrainConfig
from trajpilot_core.models.alignment import TrajectoryEncoder
from trajpilot_core.runtime import compiling
from trajpilot_core.training.compiled import OPTIONS, Compiled
from trajpilot_core.training.fit_alignment import segment_loss
from trajpilot_core.training.loop import FittedModel, Training, fit, index_batches, seeded

CFG = TrainConfig(epochs=2, patience=None, batch=8, lr=1e-3, precision="fp32")
Loss = Callable[[Tensor], Tensor]


class CompilerError(RuntimeError):
    """As the errors of torch's compiler."""


def alignment(device: str) -> Training:
    """A training of E_tau with dropout on random segments; the last batch of an epoch is shorter."""
    with seeded(0):
        data = {"motions": torch.randn(20, 16, 6), "labels": torch.randint(5, (20,)), "bank": torch.randn(5, 16)}
        model = TrajectoryEncoder(ALIGNMENT.replace(dropout=0.3), 16)
    data, model = {name: value.to(device) for name, value in data.items()}, model.to(device)
    return Training(
        name="final/e_tau",
        seed=0,
        model=model,
        batches=lambda generator: index_batches(20, CFG.batch, generator, device),
        loss=lambda rows: segment_loss(model, data, rows),
        measure=lambda: {"dev/R@5": 0.0},
        selected="dev/R@5",
        is_small=True,
    )


class Backwards(torch.autograd.Function):
    """Fails in its backward pass, as a graph that is compiled there may."""

    @staticmethod
    def forward(ctx: Any, loss: Tensor) -> Tensor:
        return loss.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        raise CompilerError("the backward pass does not compile")


def never(loss: Loss) -> Loss:
    """Fails after it has drawn dropout."""

    def fast(rows: Tensor) -> Tensor:
        loss(rows)
        raise CompilerError("no C compiler\nand many lines more")

    return fast


def not_back(loss: Loss) -> Loss:
    return lambda rows: Backwards.apply(loss(rows))


def not_the_last(loss: Loss) -> Loss:
    """Compiles the shape of a full batch, and fails at the other."""

    def fast(rows: Tensor) -> Tensor:
        found = loss(rows)
        if len(rows) < CFG.batch:
            raise CompilerError("cannot record this shape")
        return found

    return fast


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Loss], Loss]], list[Mapping[str, Any]]]:
    """Put something in the place of torch's compiler; returns the settings of every call."""

    def planted(compiler: Callable[[Loss], Loss]) -> list[Mapping[str, Any]]:
        asked: list[Mapping[str, Any]] = []

        def compile_(function: Loss, **settings: Any) -> Loss:
            asked.append(settings)
            return compiler(function)

        monkeypatch.setattr(torch, "compile", compile_)
        return asked

    return planted


def fitted(device: str, asked: bool, caplog: pytest.LogCaptureFixture) -> tuple[FittedModel, list[str]]:
    caplog.clear()
    with compiling(asked), caplog.at_level(logging.WARNING, "trajpilot"):
        if device == "cpu":
            return fit(alignment(device), CFG, None, device), caplog.messages
        with pretend_cuda():
            return fit(alignment(device), CFG, None, device), caplog.messages


def same(one: FittedModel, other: FittedModel) -> bool:
    return one.curve == other.curve and all(torch.equal(one.state[name], other.state[name]) for name in one.state)


def test_nothing_is_compiled_on_a_cpu_or_where_it_is_not_asked_for(
    compiler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    calls = compiler(never)
    for device, asked in (("cpu", True), ("cuda", False)):
        found, said = fitted(device, asked, caplog)
        assert (calls, said) == ([], []), (device, asked)
        assert math.isfinite(found.curve[0].value)


def test_a_small_model_is_compiled_once_and_every_step_uses_it(compiler: Any, caplog: pytest.LogCaptureFixture) -> None:
    steps: list[int] = []

    def noting(loss: Loss) -> Loss:
        def fast(rows: Tensor) -> Tensor:
            steps.append(len(rows))
            return loss(rows)

        return fast

    calls = compiler(noting)
    found, said = fitted("cuda", True, caplog)
    assert calls == [{"dynamic": False, "options": OPTIONS}]
    assert (steps, said) == ([8, 8, 4] * CFG.epochs, [])
    assert same(found, fitted("cuda", False, caplog)[0])


def test_a_training_that_does_not_compile_goes_on_as_it_would_have_without(
    compiler: Any, caplog: pytest.LogCaptureFixture
) -> None:
    plain, _ = fitted("cuda", False, caplog)
    for failing in (never, not_back, not_the_last):
        compiler(failing)
        found, said = fitted("cuda", True, caplog)
        assert same(found, plain), failing
        (line,) = said
        assert line.startswith("final/e_tau: compiling failed (CompilerError: ")
        assert "\n" not in line


def test_an_error_of_the_loss_itself_comes_out(compiler: Any) -> None:
    def broken(rows: Tensor) -> Tensor:
        raise RuntimeError("the loss is wrong")

    compiler(lambda loss: loss)
    with compiling(True), pretend_cuda(), pytest.raises(RuntimeError, match="the loss is wrong"):
        fit(replace(alignment("cuda"), loss=broken), CFG, None, "cuda")


def test_the_options_are_those_that_torch_knows() -> None:
    from torch import _inductor

    assert set(OPTIONS) <= set(_inductor.list_options())
    with compiling(True):
        assert Compiled(torch.sin, "cpu", "sine").use(lambda f: float(f(torch.zeros(())))) == 0.0


def test_torch_captures_the_encoder_as_one_graph() -> None:
    """Without generating code, which needs a compiler and a GPU."""
    with seeded(0):
        model, motions = TrajectoryEncoder(ALIGNMENT, 16), torch.randn(8, 16, 6)
    torch.compiler.reset()
    captured = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=False)
    assert_close(captured(motions), model(motions))
