"""Names of plugins in settings: what an installed package brings, next to the names that are built in."""

from typing import Annotated

from pydantic import StringConstraints

PLUGIN = "plugin:"
"""What the name of every plugin begins with: no built-in name does."""
PATTERN = rf"^{PLUGIN}[a-z][a-z0-9_]{{0,63}}(@[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!_-]*)?$"
PluginName = Annotated[str, StringConstraints(pattern=PATTERN)]
"""`plugin:NAME`, as a person writes it; `plugin:NAME@DISTRIBUTION==VERSION`, as keys and manifests hold it, which
accepts this version alone (docs/plugins.md)."""


def is_plugin(name: object) -> bool:
    """Return whether a value of a setting names a plugin."""
    return isinstance(name, str) and name.startswith(PLUGIN)
