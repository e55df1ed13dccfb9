"""Which servers frames may be sent to, before anything is sent, and the API key that is sent with them.

The process that may read the environment hands the key over (deployments/settings.py); it is in no setting, key, log or
error: settings are stored and shown. Source: the licences of the corpora, which bind whoever runs this;
docs/decisions/vlm.md.
"""

import ipaddress

import httpx
from pydantic import SecretStr

from schemas.vlm import VlmServer
from trajpilot_core.errors import InputError

VARIABLE = "TRAJPILOT_VLM_API_KEY"
_held: list[SecretStr] = []


def hold_api_key(key: str | None) -> None:
    """Keep the key for this process; None or empty: there is none."""
    _held[:] = [SecretStr(key)] if key else []


def api_key() -> SecretStr | None:
    """Return the key; None where there is none.

    Raises:
        InputError: it holds spaces or letters that no header may hold; the message does not repeat it.
    """
    if not _held:
        return None
    if not all("!" <= letter <= "~" for letter in _held[0].get_secret_value()):
        raise InputError(
            f"the key in {VARIABLE} (not repeated here) holds a space, a line end or a letter outside of ASCII, which "
            "no header can carry; set it again without"
        )
    return _held[0]


def endpoint(server: VlmServer) -> httpx.URL:
    """Return where chat completions are asked for, as the library that sends reads the address.

    Raises:
        InputError: it is no address of a server.
    """
    try:
        url = httpx.URL(f"{server.url.rstrip('/')}/chat/completions")
    except httpx.InvalidURL as error:
        raise InputError(f"vlm.server.url is no address of a server ({error}): {server.url}") from None
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise InputError(
            f"vlm.server.url is {server.url}; give http:// or https://, a host and a path without query, "
            "e.g. http://127.0.0.1:8000/v1"
        )
    return url


def is_loopback(url: httpx.URL) -> bool:
    """Return whether an address is this machine's own, by its text alone: no name is looked up."""
    if url.host == "localhost":
        return True
    try:
        return ipaddress.ip_address(url.host).is_loopback
    except ValueError:
        return False


def check_server(server: VlmServer, corpus: str) -> None:
    """Refuse a server on another machine, unless the settings name the corpus and a limit.

    Raises:
        InputError: says which setting is missing.
    """
    url = endpoint(server)
    if is_loopback(url):
        return
    if not corpus or server.may_send != corpus:
        named = f"names {server.may_send}" if server.may_send else "names no corpus"
        raise InputError(
            f"vlm.server.url is on another machine ({url.host}), requests show frames of {corpus or 'no corpus'}, and "
            f"vlm.server.may_send {named}; if the licence of {corpus or 'the corpus'} lets you send them there, set "
            f"vlm.server.may_send={corpus or 'CORPUS'}; else use a server on 127.0.0.1. Nothing was sent"
        )
    if server.token_limit is None:
        raise InputError(
            f"vlm.server.url is on another machine ({url.host}), which may cost money, and vlm.server.token_limit is "
            "not set; set it to the tokens, prompts and answers together, at which to stop. Nothing was sent"
        )
    if url.scheme != "https" and api_key() is not None:
        raise InputError(
            f"{VARIABLE} is set, and {url.host} is reached over http, which everybody on the way can read; use an "
            "address with https. Nothing was sent"
        )
