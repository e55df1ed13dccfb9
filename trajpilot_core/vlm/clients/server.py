"""Checks which servers frames may be sent to, and the API key for them.

deployments/settings.py, which may read the environment, passes the key on; it is in no setting, key, log or error,
because settings are stored and displayed. Source: the licences of the corpora; docs/decisions/vlm.md.
"""

import ipaddress

import httpx
from pydantic import SecretStr

from schemas.vlm import VlmServer
from trajpilot_core.errors import InputError

VARIABLE = "TRAJPILOT_VLM_API_KEY"
_held: list[SecretStr] = []


def hold_api_key(key: str | None) -> None:
    """Store the key for this process; None or empty: there is no key."""
    _held[:] = [SecretStr(key)] if key else []


def api_key() -> SecretStr | None:
    """Return the key; None if there is none.

    Raises:
        InputError: it contains characters that HTTP headers do not allow; the message does not quote it.
    """
    if not _held:
        return None
    if not all("!" <= letter <= "~" for letter in _held[0].get_secret_value()):
        raise InputError(
            f"the key in {VARIABLE} (not quoted here) contains a space, a line break or a character outside of ASCII, "
            "which HTTP headers do not allow; set it without them"
        )
    return _held[0]


def endpoint(server: VlmServer) -> httpx.URL:
    """Return the URL of chat completions, as parsed by the HTTP library.

    Raises:
        InputError: the setting is not the URL of a server.
    """
    try:
        url = httpx.URL(f"{server.url.rstrip('/')}/chat/completions")
    except httpx.InvalidURL as error:
        raise InputError(f"vlm.server.url is not the URL of a server ({error}): {server.url}") from None
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise InputError(
            f"vlm.server.url is {server.url}; set http:// or https://, a host and a path without query, "
            "e.g. http://127.0.0.1:8000/v1"
        )
    return url


def is_loopback(url: httpx.URL) -> bool:
    """Return whether a URL is on this machine, by its text alone: no name is resolved."""
    if url.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return False


def check_server(server: VlmServer, corpus: str) -> None:
    """Refuse a server on another machine, unless the settings name the corpus and a token limit.

    Raises:
        InputError: a setting is missing; names it.
    """
    url = endpoint(server)
    if is_loopback(url):
        return
    if not corpus or server.may_send != corpus:
        named = f"names {server.may_send}" if server.may_send else "names no corpus"
        raise InputError(
            f"vlm.server.url is on another machine ({url.host}), requests contain frames of {corpus or 'no corpus'}, "
            f"and vlm.server.may_send {named}; if the licence of {corpus or 'the corpus'} allows it, set "
            f"vlm.server.may_send={corpus or 'CORPUS'}; else use a server on 127.0.0.1. Nothing was sent"
        )
    if server.token_limit is None:
        raise InputError(
            f"vlm.server.url is on another machine ({url.host}), which may cost money, and vlm.server.token_limit is "
            "not set; set it to the tokens, prompts and answers together, at which to stop. Nothing was sent"
        )
    if url.scheme != "https" and api_key() is not None:
        raise InputError(
            f"{VARIABLE} is set, but http to {url.host} is not encrypted; use a URL with https. Nothing was sent"
        )
