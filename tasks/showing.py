"""Publishing to the Prefect UI must not stop the work: while the server is unreachable, it is skipped."""

import logging
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import TypeVar

import httpx

LOG = logging.getLogger("trajpilot")
T = TypeVar("T")
POLL_S = 5.0


def shown(what: str, publish: Callable[[], T], patience_s: float = 0.0) -> T | None:
    """Publish something; None where the server did not answer, or failed, for `patience_s` seconds.

    With `patience_s` a skipped publication is logged as a warning.

    Raises:
        httpx.HTTPStatusError: the server refused it (4xx), which is a bug here.
    """
    limit = time.monotonic() + patience_s
    while True:
        try:
            return publish()
        except httpx.HTTPError as error:
            if not is_away(error):
                raise
            if time.monotonic() >= limit:
                level = logging.WARNING if patience_s else logging.DEBUG  # progress is sent again within seconds
                LOG.log(level, "%s is not shown in the UI: the Prefect server is unreachable (%s)", what, error)
                return None
        time.sleep(min(POLL_S, max(0.0, limit - time.monotonic())))


def is_away(error: httpx.HTTPError) -> bool:
    """Return whether an error means that the server, or its database, is unreachable."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.status_code >= HTTPStatus.INTERNAL_SERVER_ERROR
    return isinstance(error, httpx.TransportError)
