"""Resolves `auto` settings on this machine, before keys are computed and without importing torch."""

import functools
import importlib.util
import json
import logging
import subprocess
import sys
from pathlib import Path

from schemas.base import Record
from schemas.config import FeatureConfig
from schemas.events import CompletedActionToken, CompletedOutcome, ProbeConfig
from schemas.places import known_device
from schemas.poses import CompletedPoseSources, Pi3Config, TrajectoryConfig
from trajpilot_core.engine.stage import Config
from trajpilot_core.errors import InputError

ASK_DRIVER = """
import ctypes, json
cuda = ctypes.CDLL("libcuda.so.1")
n, device, number = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
def attribute(which):
    assert cuda.cuDeviceGetAttribute(ctypes.byref(number), which, device) == 0
    return number.value
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(ctypes.byref(n)) == 0
found = []
for index in range(n.value):
    assert cuda.cuDeviceGet(ctypes.byref(device), index) == 0
    found.append([attribute(75), attribute(76)])
print(json.dumps(found))
"""
"""Prints the compute capability of every device (attributes 75 and 76 of the driver's API are its two numbers).

Runs in its own process, because a process that has touched the driver cannot fork workers that use it.
"""
BF16_FROM = (8, 0)
"""Compute capability from which a GPU multiplies bf16 natively (Ampere); older ones emulate it."""
INSIDE: dict[type[Record], str] = {
    TrajectoryConfig: "pi3",
    CompletedPoseSources: "predictor",
    CompletedOutcome: "scorer",
    CompletedActionToken: "scorer",
    ProbeConfig: "encoder",
}
"""Settings -> those of another model that their stage runs, in addition to `train`."""
log = logging.getLogger("trajpilot")


@functools.cache
def resolve_device(device: str) -> str:
    """Return `cpu`, `cuda` or `cuda:<number>` for RunOptions.device.

    auto chooses cuda where torch supports it and a GPU exists, and logs once where torch supports it and no GPU exists.

    Raises:
        InputError: cuda was requested and is not available, or the device is not supported.
    """
    try:
        known_device(device)
    except ValueError as error:
        raise InputError(f"device {device}: {error}") from error
    if device == "cpu":
        return "cpu"
    n_gpus = len(gpu_capabilities())
    if device == "auto":
        if not n_gpus and _torch_has_cuda():
            log.warning("device auto: torch is a CUDA build, but no driver lists a GPU here; the models run on the CPU")
        return "cuda" if n_gpus else "cpu"
    if not n_gpus:
        raise InputError(
            f"device {device} was requested, but torch is no CUDA build or no CUDA device is visible; use cpu or auto"
        )
    if gpu_number(device) >= n_gpus:
        last = f"cuda:{n_gpus - 1}"
        raise InputError(f"device {device} was requested, but the last CUDA device is {last}; use {last} or auto")
    return device


def gpu_number(device: str) -> int:
    """Return the index of the visible GPU that `cuda` or `cuda:<number>` names."""
    return int(device.partition(":")[2] or 0)


@functools.cache
def gpu_capabilities() -> tuple[tuple[int, int], ...]:
    """Return the compute capability of every GPU that torch can use here."""
    return _driver_devices() if _torch_has_cuda() else ()


def _torch_has_cuda() -> bool:
    spec = importlib.util.find_spec("torch")
    return spec is not None and spec.origin is not None and (Path(spec.origin).parent / "lib/libtorch_cuda.so").exists()


def _driver_devices() -> tuple[tuple[int, int], ...]:
    """Query the driver, also one that is found only through LD_LIBRARY_PATH."""
    command = [sys.executable, "-I", "-c", ASK_DRIVER]
    answer = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    capabilities = json.loads(answer.stdout) if answer.returncode == 0 else []
    return tuple((major, minor) for major, minor in capabilities)


@functools.cache
def gpu_has_bf16(device: str) -> bool:
    """Return whether a GPU (`cuda:<number>`) multiplies bf16 natively, and log once where not; an unlisted one does."""
    known, number = gpu_capabilities(), gpu_number(device)
    if number >= len(known) or known[number] >= BF16_FROM:
        return True
    has, least = (".".join(map(str, version)) for version in (known[number], BF16_FROM))
    log.warning("%s has compute capability %s, but bf16 needs %s: precision auto means fp32", device, has, least)
    return False


@functools.cache
def _cpu_has_fast_bf16() -> bool:
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    flags = next((line for line in lines if line.startswith("flags")), "").split(":")[-1].split()
    return "amx_bf16" in flags  # avx512_bf16 alone is half as fast as fp32 for our models, at width 128


def resolve_precision(config: Config, device: str) -> Config:
    """Return a stage's settings with `precision` resolved for a resolved device, also that of its training."""
    inside = ["train", *(name for kind, name in INSIDE.items() if isinstance(config, kind))]
    for name in inside:
        settings = getattr(config, name, None)
        if isinstance(settings, Record) and (name != "pi3" or getattr(config, "source", None) == "pi3"):
            config = config.replace(**{name: resolve_precision(settings, device)})
    if getattr(config, "precision", None) != "auto":
        return config
    if isinstance(config, FeatureConfig) and config.source == "released":
        return config.replace(precision="fp32")  # unused there; the same key on every machine
    if device.startswith("cuda"):
        return config.replace(precision="bf16" if gpu_has_bf16(device) else "fp32")
    fast = not isinstance(config, FeatureConfig | Pi3Config) and _cpu_has_fast_bf16()
    return config.replace(precision="bf16" if fast else "fp32")
