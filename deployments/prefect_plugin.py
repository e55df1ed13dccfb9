"""Start-up hook of Prefect that lets `prefect deployment run full-pipeline` name flow and deployment at once.

Prefect expects `<flow>/<deployment>`; here both have the same name. If no server is configured or none answers, Prefect
would start an empty one and fail with a traceback; the hook prints one sentence that states what to do. It is active
where Prefect finds `[tool.prefect.plugins] enabled = true` (this folder) or PREFECT_PLUGINS_ENABLED=1. See
docs/decisions/bare-names.md.
"""

import sys
from pathlib import Path

from prefect.plugins import HookContext, register_hook
from prefect.settings import get_current_settings

from trajpilot_core.errors import InputError

FLAGS = {"--watch", "--prompt", "--no-prompt", "--help", "-h"}
"""Options without a value; every other option consumes the next word unless it is written with `=`."""


def deployment_asked(arguments: list[str]) -> int | None:
    """Return the position of NAME in `prefect deployment run NAME`; None for any other command line.

    The program is `prefect`, or `python -m prefect`. Options and their values may be anywhere.
    """
    words, is_value = [], False
    for position, word in enumerate(arguments[1:], start=1):
        if is_value:
            is_value = False
        elif word.startswith("-"):
            is_value = word not in FLAGS and "=" not in word
        else:
            words.append(position)
    path = Path(arguments[0])
    is_prefect = path.stem == "prefect" or (path.name == "__main__.py" and path.parent.name == "prefect")
    if len(words) < 3 or not is_prefect or [arguments[k] for k in words[:2]] != ["deployment", "run"]:
        return None
    return words[2]


def with_full_name(arguments: list[str]) -> list[str]:
    """Return the command line with a bare deployment name completed; any other command line unchanged."""
    place = deployment_asked(arguments)
    if place is None or "/" in arguments[place]:
        return arguments
    name = arguments[place]
    return [*arguments[:place], f"{name}/{name}", *arguments[place + 1 :]]


def needs_server(arguments: list[str]) -> bool:
    """Return whether a completed command line runs a deployment with the name of its flow, as ours have."""
    place = deployment_asked(arguments)
    if place is None or {"--help", "-h"} & set(arguments):
        return False
    flow, _, deployment = arguments[place].partition("/")
    return flow == deployment


def missing_server(url: str | None, login: str | None) -> str | None:
    """Return in one sentence why a deployment cannot be run and what to do; None if it can.

    Args:
        url: API address that Prefect uses; None if none is set.
        login: `Authorization` header; never repeated in the message.
    """
    from deployments.embedded import require_server

    try:
        require_server(url, login)
    except InputError as error:
        return f"{error}; a single run needs no server (trajpilot run)"
    return None


@register_hook
def setup_environment(*, ctx: HookContext) -> None:
    """Rewrite the command line of this process (called by Prefect at start-up).

    Raises:
        SystemExit: the command line runs one of our deployments, and there is no server for it.
    """
    sys.argv[:] = with_full_name(sys.argv)
    if needs_server(sys.argv):
        from deployments.settings import authorization

        api = get_current_settings().api
        login, key = (None if secret is None else secret.get_secret_value() for secret in (api.auth_string, api.key))
        why = missing_server(ctx.api_url, authorization(login, key))
        if why is not None:
            sys.stderr.write(f"error: {why}\n")
            sys.exit(2)
