"""Addresses, devices and plugins, as settings name them.

Addresses appear in logs, parameters, manifests and pages, so none may contain a login.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema
from pydantic_core import PydanticCustomError

from schemas.base import Record

LOGIN_INSIDE = "login_inside"
"""Type of the validation error; code that prints it leaves the value out."""
LOGIN = r"://[^/]*@|[?&][^=]*([Kk]ey|[Ss]ecret|[Tt]oken|[Pp]assword|[Ss]ignature|[Cc]redential)[^=]*="
"""A user before the host, or a query that carries a credential."""
REFUSED = (
    "the address holds a login (not repeated here), and addresses are shown in logs, pages and the database; write it "
    "without, and give (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY) or the role of the machine"
)


def holds_login(place: str) -> bool:
    """Return whether an address carries a user, a password, a key or a token."""
    return re.search(LOGIN, place) is not None


def _without_login(place: str) -> str:
    if holds_login(place):
        raise PydanticCustomError(LOGIN_INSIDE, REFUSED)  # which does not repeat it
    return place


Place = Annotated[
    str, AfterValidator(_without_login), WithJsonSchema({"type": "string", "pattern": f"^(?!.*({LOGIN}))"})
]
"""An address; forms and servers reject one with a login before storing it."""


class OtherRun(Record):
    """One stage output of another run, read in place."""

    place: Place = Field(min_length=1)
    """Root of the other run: an absolute path or an address."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Digest of the output's manifest: `sha256sum ROOT/artifacts/STAGE/KEY/manifest.json`."""


DEVICES = r"^(auto|cpu|cuda(:\d{1,2})?)$"


def known_device(device: str) -> str:
    """Return the device; ValueError if no run can use it, on any machine."""
    if re.fullmatch(DEVICES, device) is None:
        raise ValueError(
            "no such device (GPUs of Apple and AMD are not supported); use auto, cpu, cuda, or cuda:1 and so on"
        )
    return device


DeviceName = Annotated[str, AfterValidator(known_device), Field(json_schema_extra={"pattern": DEVICES})]

PLUGIN = "plugin:"
"""Prefix of every plugin's name; no built-in name starts with it."""
PATTERN = rf"^{PLUGIN}[a-z][a-z0-9_]{{0,63}}(@[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*)?$"
PluginName = Annotated[str, StringConstraints(pattern=PATTERN)]
"""`plugin:NAME`, as a user writes it, or `plugin:NAME@DISTRIBUTION==VERSION`, as keys and manifests store it, which
matches this version only (docs/plugins.md)."""


def is_plugin(name: object) -> bool:
    """Return whether a value of a setting names a plugin."""
    return isinstance(name, str) and name.startswith(PLUGIN)
