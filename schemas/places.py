"""Addresses of folders and files. They appear in logs, parameters, manifests and pages, so none may contain a login."""

import re
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema
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


def without_login(place: str) -> str:
    """Return the address if it contains no login; else raise pydantic's error, which does not repeat it."""
    if holds_login(place):
        raise PydanticCustomError(LOGIN_INSIDE, REFUSED)
    return place


Place = Annotated[
    str, AfterValidator(without_login), WithJsonSchema({"type": "string", "pattern": f"^(?!.*({LOGIN}))"})
]
"""An address; forms and servers refuse one with a login before they store it."""


class OtherRun(Record):
    """One output of a stage of another run, which is read there."""

    place: Place = Field(min_length=1)
    """Root of the other run: a folder, written out in full, or an address."""
    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    """Of the output's manifest: `sha256sum ROOT/artifacts/STAGE/KEY/manifest.json`."""
