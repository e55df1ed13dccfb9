"""What `auto` means on this machine. Decided before keys are made, without importing torch."""

import ctypes.util
import functools
import importlib.util
import subprocess
import sys
from pathlib import Path

from schemas.config import FeatureConfig, PipelineConfig, RunOptions, TrajectoryConfig
from schemas.poses import Pi3Config
from schemas.training import TrainConfig
from trajpilot_core.engine.stage import Config, Stage
from trajpilot_core.errors import InputError

COUNT_DEVICES = (
    "import ctypes; c = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int(); "
    "print(n.value if c.cuInit(0) == 0 and c.cuDeviceGetCount(ctypes.byref(n)) == 0 else 0)"
)
"""Asked in a process of its own: a process that has touched the driver cannot fork workers that use it."""
FAST_BF16 = ("amx_bf16",)
"""CPU flags with which bf16 pays for models of our size (avx512_bf16 alone: twice as slow as fp32 at width 128)."""


@functools.cache
def resolve_device(device: str) -> str:
    """Return `cpu` or `cuda`.

    Args:
        device: RunOptions.device; auto takes cuda where torch can use it and a device is there.

    Raises:
        InputError: cuda was asked for and is not there.
    """
    if device == "cpu":
        return "cpu"
    if gpu_count():
        return "cuda"
    if device == "cuda":
        raise InputError(
            "device cuda was asked for, but torch is a CPU build or no CUDA device is visible; use cpu or auto"
        )
    return "cpu"


@functools.cache
def gpu_count() -> int:
    """Return how many GPUs torch can use here."""
    return _driver_devices() if _torch_has_cuda() else 0


def _torch_has_cuda() -> bool:
    found = importlib.util.find_spec("torch")
    return (
        found is not None and found.origin is not None and (Path(found.origin).parent / "lib/libtorch_cuda.so").exists()
    )


def _driver_devices() -> int:
    if ctypes.util.find_library("cuda") is None:
        return 0
    command = [sys.executable, "-I", "-c", COUNT_DEVICES]
    asked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    return int(asked.stdout) if asked.returncode == 0 else 0


@functools.cache
def cpu_flags() -> frozenset[str]:
    """Return the CPU's feature flags, empty where the system does not list them."""
    listing = Path("/proc/cpuinfo")
    if not listing.exists():
        return frozenset()
    lines = (line for line in listing.read_text().splitlines() if line.startswith("flags"))
    return frozenset(next(lines, "").split(":")[-1].split())


def resolve_precision(config: Config, device: str) -> Config:
    """Return a stage's config with `precision` written out, its own and that of its training.

    Args:
        config: sub-record of PipelineConfig.
        device: `cpu` or `cuda`.
    """
    train = getattr(config, "train", None)
    if isinstance(train, TrainConfig):
        config = config.replace(train=resolve_precision(train, device))
    if isinstance(config, TrajectoryConfig) and "pi3" in config.sources():
        config = config.replace(pi3=resolve_precision(config.pi3, device))
    if getattr(config, "precision", None) != "auto":
        return config
    if device == "cuda":
        return config.replace(precision="bf16")
    fast = not isinstance(config, FeatureConfig | Pi3Config) and any(flag in cpu_flags() for flag in FAST_BF16)
    return config.replace(precision="bf16" if fast else "fp32")


def resolve_config(stage: Stage[Config], config: PipelineConfig, run: RunOptions) -> Config:
    """Return the sub-record of the config that a stage sees, nothing in it left to the machine."""
    if stage.completed is not None:
        return stage.completed(config)
    return resolve_precision(stage.settings(config), resolve_device(run.device))
