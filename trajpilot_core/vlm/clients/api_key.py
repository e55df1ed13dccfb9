"""The API key of a model server, handed over by the process that may read the environment (deployments/settings.py).

It is in no setting, key, log or error: settings are stored and shown.
"""

from pydantic import SecretStr

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
