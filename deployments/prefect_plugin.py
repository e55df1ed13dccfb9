"""Start-up hook of Prefect that lets `prefect deployment run full-pipeline` name flow and deployment at once.

Prefect asks for `<flow>/<deployment>`; here both have one name. The hook is active where Prefect finds
`[tool.prefect.plugins] enabled = true` (this folder) or PREFECT_PLUGINS_ENABLED=1. See docs/decisions/bare-names.md.
"""

import sys
from pathlib import Path

from prefect.plugins import HookContext, register_hook

FLAGS = {"--watch", "--prompt", "--no-prompt", "--help", "-h"}
"""Options without a value; every other option takes the next word, unless it is written with `=`."""


def is_prefect(program: str) -> bool:
    """Say whether a command line is Prefect's: `prefect`, or `python -m prefect`."""
    path = Path(program)
    return path.stem == "prefect" or (path.name == "__main__.py" and path.parent.name == "prefect")


def plain_words(arguments: list[str]) -> list[int]:
    """Return the places of the words that are neither the program, nor options, nor values of options."""
    found, is_value = [], False
    for place, word in enumerate(arguments[1:], start=1):
        if is_value:
            is_value = False
        elif word.startswith("-"):
            is_value = word not in FLAGS and "=" not in word
        else:
            found.append(place)
    return found


def with_full_name(arguments: list[str]) -> list[str]:
    """Return the command line with a bare deployment name written out; any other command line unchanged."""
    words = plain_words(arguments)
    if len(words) < 3 or not is_prefect(arguments[0]) or [arguments[k] for k in words[:2]] != ["deployment", "run"]:
        return arguments
    place = words[2]
    name = arguments[place]
    return arguments if "/" in name else [*arguments[:place], f"{name}/{name}", *arguments[place + 1 :]]


@register_hook
def setup_environment(*, ctx: HookContext) -> None:
    """Rewrite the command line of this process (called by Prefect at start-up)."""
    sys.argv[:] = with_full_name(sys.argv)
