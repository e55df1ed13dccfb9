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


def deployment_asked(arguments: list[str]) -> str:
    """Return NAME of `prefect deployment run NAME`, options after it; empty for any other command line."""
    is_run = Path(arguments[0]).stem == "prefect" and arguments[1:3] == ["deployment", "run"] and len(arguments) > 3
    return arguments[3] if is_run and not arguments[3].startswith("-") else ""


def with_full_name(arguments: list[str]) -> list[str]:
    """Return the command line with a bare deployment name completed; any other command line unchanged."""
    name = deployment_asked(arguments)
    return [*arguments[:3], f"{name}/{name}", *arguments[4:]] if name and "/" not in name else arguments


def needs_server(arguments: list[str]) -> bool:
    """Return whether a completed command line runs a deployment with the name of its flow, as ours have."""
    flow, _, deployment = deployment_asked(arguments).partition("/")
    return flow == deployment != "" and not {"--help", "-h"} & set(arguments)


def missing_server(url: str | None, login: str | None) -> str | None:
    """Return why a deployment cannot be run and what to do, without the login, in one sentence; None if it can."""
    from deployments.embedded import require_server

    try:
        require_server(url, login)
    except InputError as error:
        return f"{error}; a single run needs no server (trajpilot run)"
    return None


@register_hook
def setup_environment(*, ctx: HookContext) -> None:
    """Rewrite the command line of this process (called by Prefect at start-up).

    Raises SystemExit: the command line runs one of our deployments, and there is no server for it.
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
