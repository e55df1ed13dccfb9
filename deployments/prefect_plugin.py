"""Start-up hook of Prefect that lets `prefect deployment run full-pipeline` name flow and deployment at once.

Prefect asks for `<flow>/<deployment>`; here both have one name. The hook is active where Prefect finds
`[tool.prefect.plugins] enabled = true` (this folder) or PREFECT_PLUGINS_ENABLED=1. See docs/decisions/bare-names.md.
"""

import sys
from pathlib import Path

from prefect.plugins import HookContext, register_hook


def with_full_name(arguments: list[str]) -> list[str]:
    """Return the command line with a bare deployment name written out; any other command line unchanged."""
    if len(arguments) < 4 or Path(arguments[0]).name != "prefect" or arguments[1:3] != ["deployment", "run"]:
        return arguments
    name = arguments[3]
    if name.startswith("-") or "/" in name:
        return arguments
    return [*arguments[:3], f"{name}/{name}", *arguments[4:]]


@register_hook
def setup_environment(*, ctx: HookContext) -> None:
    """Rewrite the command line of this process (called by Prefect at start-up)."""
    sys.argv[:] = with_full_name(sys.argv)
