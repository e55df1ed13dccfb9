"""Which device a run gets, whether it computes in bf16, and what is said where neither is as one may think."""

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from schemas.config import PipelineConfig, RunOptions
from trajpilot_core.engine import resolve
from trajpilot_core.engine.resolve import resolve_device, resolve_precision
from trajpilot_core.errors import InputError
from trajpilot_core.training.loop import autocast, build_optimizer

TURING, AMPERE, HOPPER = (7, 5), (8, 0), (9, 0)
Machine = Callable[..., None]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    """Pretend that torch is a CUDA build and that the driver lists these devices."""

    def forget() -> None:
        for cached in (resolve.resolve_device, resolve.gpu_capabilities, resolve.gpu_has_bf16):
            cached.cache_clear()

    def pretend(*capabilities: tuple[int, int]) -> None:
        forget()
        monkeypatch.setattr(resolve, "_torch_has_cuda", lambda: True)
        monkeypatch.setattr(resolve, "_driver_devices", lambda: capabilities)

    forget()
    yield pretend
    forget()


def test_a_gpu_with_a_number_is_used_as_such_and_one_that_is_not_there_is_refused(machine: Machine) -> None:
    machine(HOPPER, HOPPER)
    asked = ("auto", "cpu", "cuda", "cuda:0", "cuda:1")
    assert [resolve_device(device) for device in asked] == ["cuda", "cpu", "cuda", "cuda:0", "cuda:1"]
    assert RunOptions(device="cuda:1").device == "cuda:1"
    with pytest.raises(InputError, match="cuda:2 was requested, but the last CUDA device is cuda:1"):
        resolve_device("cuda:2")
    machine()
    with pytest.raises(InputError, match=r"device cuda:0 was requested, but torch is no CUDA build or no CUDA device"):
        resolve_device("cuda:0")


def test_other_devices_are_refused(machine: Machine) -> None:
    machine(HOPPER)
    said = r"no such device \(GPUs of Apple and AMD are not supported\); use auto, cpu, cuda, or cuda:1"
    for device in ("mps", "hip:0", "tpu", "cuda:x"):
        with pytest.raises(ValidationError, match=said):
            RunOptions(device=device)
        with pytest.raises(InputError, match=said):
            resolve_device(device)


def test_auto_without_a_gpu_is_the_cpu_and_a_build_for_cuda_says_so_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(resolve, "_torch_has_cuda", lambda: False)
        assert resolve_device("auto") == "cpu"
    assert caplog.messages == []
    machine()
    assert [resolve_device("auto") for _ in range(3)] == ["cpu"] * 3
    assert caplog.messages == [
        "device auto: torch is a CUDA build, but no driver lists a GPU here; the models run on the CPU"
    ]


def test_bf16_needs_compute_capability_8_and_an_old_gpu_is_named_once(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    config = PipelineConfig()
    asked = config.features.replace(precision="bf16")
    machine(TURING, AMPERE)
    for device, precision in (("cuda", "fp32"), ("cuda:1", "bf16"), ("cuda", "fp32")):
        assert resolve_precision(config.features, device).precision == precision
        assert resolve_precision(config.predictor, device).train.precision == precision
        assert resolve_precision(asked, device).precision == "bf16", "what was asked for is not overruled"
    assert caplog.messages == ["cuda has compute capability 7.5, but bf16 needs 8.0: precision auto means fp32"]


def test_a_training_on_a_numbered_gpu_has_the_arithmetic_of_any() -> None:
    train = PipelineConfig().predictor.train.replace(precision="bf16")
    optimizer = build_optimizer(torch.nn.Linear(2, 2), train, "cuda:1")
    assert optimizer.defaults["fused"]
    assert autocast(train.replace(precision="fp32"), "cuda:1").device == "cuda"


FAKE_DRIVER = """
int cuInit(unsigned flags) { return 0; }
int cuDeviceGetCount(int *n) { *n = 2; return 0; }
int cuDeviceGet(int *device, int number) { *device = number; return 0; }
int cuDeviceGetAttribute(int *out, int which, int device) {
    *out = which == 75 ? (device ? 9 : 7) : which == 76 ? (device ? 0 : 5) : -1; return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="a driver is compiled")
def test_the_driver_is_asked_also_where_only_the_library_path_leads_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["cc", "-shared", "-fPIC", "-o", str(tmp_path / "libcuda.so.1"), "-x", "c", "-"]
    subprocess.run(command, input=FAKE_DRIVER, text=True, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path), prepend=os.pathsep)
    assert resolve._driver_devices() == (TURING, HOPPER)


def test_a_driver_that_is_not_there_lists_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolve, "ASK_DRIVER", resolve.ASK_DRIVER.replace("libcuda.so.1", "libnowhere.so.1"))
    monkeypatch.setattr(resolve, "_torch_has_cuda", lambda: True)
    assert resolve.gpu_capabilities() == ()
