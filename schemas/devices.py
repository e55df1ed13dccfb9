"""Devices that a run can be given."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field

NOT_SUPPORTED = {"mps": "Apple's GPUs (mps)", "rocm": "AMD's GPUs (rocm)", "hip": "AMD's GPUs (hip)"}
"""Devices that torch knows and this project refuses by name."""


DEVICES = r"^(auto|cpu|cuda(:\d{1,2})?)$"


def device_fault(device: str) -> str | None:
    """Return why no run can be given this device; None where one can, if the machine has it."""
    what = NOT_SUPPORTED.get(device.partition(":")[0])
    if what is not None:
        return f"{what} are not supported: nothing here was ever run on them; use cpu, cuda or auto"
    return None if re.fullmatch(DEVICES, device) else "no such device; use auto, cpu, cuda, or cuda:1 and so on"


def check_device(device: str) -> str:
    """Return the device; ValueError where no run can be given it."""
    fault = device_fault(device)
    if fault is not None:
        raise ValueError(fault)
    return device


DeviceName = Annotated[str, AfterValidator(check_device), Field(json_schema_extra={"pattern": DEVICES})]
