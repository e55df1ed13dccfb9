"""Notes next to a manifest: the files and facts behind every unit. They explain keys; nothing depends on them."""

from collections.abc import Mapping

from schemas.artifacts import SourceNotes, UnitSources
from schemas.base import fingerprint
from trajpilot_core.engine.key import ResolvedStage
from trajpilot_core.engine.stage import Source
from trajpilot_core.store.files import Folder
from trajpilot_core.store.manifest import SOURCES, read_sealed, seal, stage_folder, unless_damaged


def spelled(path: str) -> str:
    """Return a path for the notes, with bytes that are not UTF-8 escaped."""
    return path.encode(errors="backslashreplace").decode()


def unit_sources(source: Source, digest_of: Mapping[str, str]) -> UnitSources:
    """Return the digests of one unit's files and the fingerprints of its facts.

    Args:
        source: the unit.
        digest_of: input file -> digest.
    """
    return UnitSources(
        files={spelled(path): digest_of[path] for path in source.files},
        facts={name: fingerprint(value) for name, value in source.facts.items()},
    )


def write_notes(folder: Folder, resolved: ResolvedStage, key: str, digest_of: Mapping[str, str]) -> None:
    """Write the sources of every unit of a stage next to the manifest of `key`."""
    notes = SourceNotes(units={source.shard: unit_sources(source, digest_of) for source in resolved.sources})
    folder.replace(f"{stage_folder(resolved.stage.name)}/{key}/{SOURCES}", seal(notes))


def read_notes(folder: Folder, stage: str, key: str) -> dict[str, UnitSources]:
    """Return the sources of every unit; empty where there are no notes or they are damaged."""
    notes = unless_damaged(read_sealed, folder, SourceNotes, f"{stage_folder(stage)}/{key}/{SOURCES}")
    return {} if notes is None else notes.units
