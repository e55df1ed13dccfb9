"""Entry points of installed packages: a corpus, an encoder, a row, a metric (docs/plugins.md).

A plugin is code with the rights of its user, so nothing of a package is imported before a setting names it.
Distribution and version are read from its metadata and enter the keys of the stages that read the setting.
"""

from collections.abc import Container
from dataclasses import dataclass
from importlib import metadata
from typing import TypeVar

from schemas.base import Record
from schemas.places import PLUGIN, is_plugin
from trajpilot_core.errors import InputError

Spec = TypeVar("Spec")
Versioned = TypeVar("Versioned", bound=Record)
CORPORA = "trajpilot.corpora"
VIDEO_ENCODERS = "trajpilot.encoders.video"
TEXT_ENCODERS = "trajpilot.encoders.text"
METHODS = "trajpilot.methods"
METRICS = "trajpilot.metrics"
GROUP_OF = {
    "corpus": CORPORA,
    "model": VIDEO_ENCODERS,
    "encoder": TEXT_ENCODERS,
    "plugin_rows": METHODS,
    "plugin_metrics": METRICS,
}
"""Name of a setting -> the group of entry points of its plugins."""


@dataclass(frozen=True)
class Plugin:
    """One entry point of an installed package, not imported yet."""

    entry: metadata.EntryPoint
    distribution: str
    version: str

    @property
    def pinned(self) -> str:
        """The name in keys."""
        return f"{PLUGIN}{self.entry.name}@{self.distribution}=={self.version}"

    def __str__(self) -> str:
        return f"plugin {self.entry.name} of {self.distribution} {self.version} ({self.entry.value})"


def find(name: str, group: str) -> Plugin:
    """Return the plugin that a setting names, `plugin:NAME` or `plugin:NAME@DISTRIBUTION==VERSION`, without an import.

    Raises:
        InputError: no installed package provides it, several do, or one in another version than the name states.
    """
    short, _, pin = name.removeprefix(PLUGIN).partition("@")
    plugins = [
        Plugin(entry, entry.dist.name, entry.dist.version)
        for entry in metadata.entry_points(group=group, name=short)
        if entry.dist is not None
    ]
    if not plugins:
        others = ", ".join(sorted({entry.name for entry in metadata.entry_points(group=group)}))
        from_where = f" (it was {pin})" if pin else ""
        raise InputError(
            f"no installed package provides the plugin {short} in the group {group}: there are {others or 'none'}"
            f"{from_where}; install the package that provides it, or remove it from the settings"
        )
    if len({plugin.pinned for plugin in plugins}) > 1:
        named = ", ".join(sorted(f"{plugin.distribution} {plugin.version}" for plugin in plugins))
        raise InputError(f"the plugin {short} ({group}) is provided by {named}; keep only one of them installed")
    if pin and plugins[0].pinned != name:
        raise InputError(
            f"{name} is configured, but {plugins[0]} is installed; install that version or give no version"
        )
    return plugins[0]


def load(name: str, group: str, kind: type[Spec]) -> Spec:
    """Import the plugin that a setting names and return its spec, which has to be a `kind`.

    Raises:
        InputError: it is missing, cannot be imported, or is not a `kind`.
    """
    plugin = find(name, group)
    try:
        spec = plugin.entry.load()
    except Exception as error:  # a plugin may raise anything on import
        raise InputError(
            f"{plugin} cannot be loaded: {type(error).__name__}: {error}; correct it or remove it from the settings"
        ) from error
    if not isinstance(spec, kind):
        raise InputError(
            f"{plugin} is a {type(spec).__name__}, but the group {group} needs a {kind.__name__}; correct its package"
        )
    return spec


def refuse_clash(name: str, group: str, taken: str, known: Container[str]) -> None:
    """Refuse a plugin with a name that is taken.

    Raises:
        InputError: `taken` is among the `known`.
    """
    if taken in known:
        raise InputError(f"{find(name, group)} uses the name {taken!r}, which is taken; rename it in its package")


def with_versions(config: Versioned) -> Versioned:
    """Return settings of a stage with the distribution and version of each plugin that they name.

    Raises:
        InputError: one is not installed.
    """
    changes: dict[str, object] = {}
    for field, group in GROUP_OF.items():
        value = getattr(config, field, None)
        if is_plugin(value):
            changes[field] = find(str(value), group).pinned
        elif isinstance(value, tuple) and any(map(is_plugin, value)):
            changes[field] = tuple(find(name, group).pinned for name in value)
    return config.replace(**changes) if changes else config
