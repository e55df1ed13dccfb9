"""Shared part of the Ego-Exo4D readers: takes and splits joined with one kind of annotation file, take by take.

Each unit ends in a candidate or in one reject. Source: docs.ego-exo4d-data.org; decisions:
docs/decisions/ingest.md.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import Candidate, CorpusReading, Fault, Listing, Released, TakeFiles
from trajpilot_core.corpora.egoexo4d.takes import (
    SPLITS,
    TAKES,
    TRAJECTORY,
    Takes,
    read_splits,
    read_takes,
    take_id,
    used_split,
)
from trajpilot_core.corpora.formats.folders import Folders, read_document
from trajpilot_core.corpora.formats.strict import FileFaultError, as_object, parse
from trajpilot_core.corpora.spec import EGO4D_KEYS, Download
from trajpilot_core.store.corpus_files import Corpus

OPTIONAL = ("trajectory", "timesync", "calibration")
"""Files of a take that ingest checks for but does not read."""


@dataclass(frozen=True)
class Annotated:
    """One take with its annotations as one file has them."""

    take: TakeFiles
    released: Released
    value: object
    """The value under the take's uid."""
    path: str
    document: Mapping[str, object]
    """The whole file."""


class AnnotationKind(NamedTuple):
    """One kind of annotation: its file, its counted unit, and how one take is read."""

    file: str
    """Path with `{}` for the released split."""
    unit: str
    """Name of the counted unit, in the plural."""
    count: Callable[[object], int]
    """Value under a take's uid -> how many units it contains, even if the rest of it is unusable."""
    read: Callable[[Annotated, IngestConfig], tuple[Candidate | None, list[Reject]]]


class _KnownRelease(NamedTuple):
    """Everything that is read before the annotations."""

    takes: Takes
    splits: dict[str, str | None]
    folders: Folders
    config: IngestConfig
    kind: AnnotationKind


def read_release(corpus: Corpus, config: IngestConfig, kind: AnnotationKind) -> CorpusReading:
    """Read the annotations of the splits that are used.

    Raises InputError: takes.json, splits.json or an annotation file cannot be used.
    """
    known = _KnownRelease(read_takes(corpus, config), read_splits(corpus), Folders(corpus), config, kind)
    candidates: list[Candidate] = []
    rejects: list[Reject] = [*known.takes.rejects]
    seen: set[str] = set()
    n_in = 0
    for released, path in _annotation_files(known.folders, known.splits, kind.file, config):
        document = as_object(parse(read_document(corpus, path), path))
        annotations = document.get("annotations")
        if not isinstance(annotations, dict):
            raise FileFaultError(path, "expected one object with one object `annotations`")
        for uid, value in sorted(annotations.items()):
            seen.add(uid)
            n_in += kind.count(value)
            fault = _take_fault(known, released, uid)
            if fault is not None:
                rejects.append(fault.reject(take_id(uid), kind.count(value), path))
                continue
            take = known.takes.usable[uid]
            paths = {name: getattr(take, name) for name in OPTIONAL}
            lacks: dict[str, Any] = {n: None for n, p in paths.items() if not (p and known.folders.is_there(p))}
            if config.video == "none":
                lacks["video"] = ""
            role: Released = "train" if released == "train" else "test"
            candidate, lost = kind.read(Annotated(replace(take, **lacks), role, value, path, document), config)
            candidates += [candidate] if candidate else []
            rejects += lost
    rejects += _without_annotation(known, seen)
    unsplit = Fault(RejectCode.NO_SPLIT, "splits.json does not name the take, and its record cannot be used")
    rejects += [unsplit.reject(take_id(uid), 0, SPLITS) for uid in sorted(known.takes.faults.keys() - known.splits)]
    roles = {uid: used_split(split, config) for uid, split in known.splits.items()}
    named = {take_id(uid): role for uid, role in roles.items() if role is not None}
    return CorpusReading(
        candidates=tuple(sorted(candidates, key=lambda c: c.take.take_id)),
        rejects=tuple(rejects),
        n_in=n_in,
        released=named,
        wanted=frozenset(named.values()),
        scenarios=frozenset(t.scenario for uid, t in known.takes.usable.items() if roles.get(uid) is not None),
    )


def _annotation_files(
    folders: Folders, splits: Mapping[str, str | None], file: str, config: IngestConfig
) -> list[tuple[str, str]]:
    """Return (released split, path) of the annotation files; that of a split without takes may be missing."""
    paths = [(split, file.format(split)) for split in ("train", config.test_split)]
    return [(split, path) for split, path in paths if split in splits.values() or folders.is_there(path)]


def list_release(corpus: Corpus, config: IngestConfig, file: str) -> Listing:
    """List the files that `read_release` and the probes of its videos read, without opening annotations or videos.

    Raises InputError: takes.json or splits.json cannot be used.
    """
    usable, splits, folders = read_takes(corpus, config).usable, read_splits(corpus), Folders(corpus)
    takes = [take for uid, take in usable.items() if used_split(splits.get(uid), config) is not None]
    files = {TAKES, SPLITS, *(path for _, path in _annotation_files(folders, splits, file, config))}
    files |= {take.video for take in takes if config.video != "none"}
    optional = {path for take in takes for name in OPTIONAL if (path := getattr(take, name))}
    return Listing(tuple(sorted(files)), tuple(sorted(filter(folders.is_there, optional))), len(takes))


def _take_fault(known: _KnownRelease, released: str, uid: str) -> Fault | None:
    """Return the first reason why no description of the take can be used, or None."""
    if uid in known.takes.faults:
        return known.takes.faults[uid]
    if uid not in known.takes.usable:
        return Fault(RejectCode.TAKE_UNKNOWN, f"{known.kind.file.format(released)} names it, takes.json does not")
    if uid not in known.splits:
        return Fault(RejectCode.NO_SPLIT, "splits.json does not name the take")
    if known.splits[uid] != released:
        split = known.splits[uid] or "none that can be read"
        detail = f"its {known.kind.unit} are in the file of {released}, its split in splits.json is {split}"
        return Fault(RejectCode.NO_SPLIT, detail)
    take = known.takes.usable[uid]
    if known.config.video != "none" and not known.folders.is_there(take.video):
        return Fault(RejectCode.VIDEO_MISSING, f"{take.video} is missing")
    if known.config.require_trajectory and take.trajectory is None:
        return Fault(RejectCode.NO_TRAJECTORY, "has_trimmed_trajectory is false in takes.json")
    if known.config.require_trajectory and not known.folders.is_there(take.trajectory or ""):
        return Fault(RejectCode.NO_TRAJECTORY, f"{take.trajectory} is missing")
    return None


def _without_annotation(known: _KnownRelease, seen: set[str]) -> Iterator[Reject]:
    """Yield one row of no units for each take without annotations that takes.json or splits.json name."""
    for uid in sorted({*known.takes.usable, *known.takes.faults, *known.splits} - seen):
        if uid in known.takes.faults:
            fault = known.takes.faults[uid]
        elif uid not in known.takes.usable:
            fault = Fault(RejectCode.TAKE_UNKNOWN, "splits.json names it, takes.json does not")
        elif uid not in known.splits:
            fault = Fault(RejectCode.NO_SPLIT, f"splits.json does not name the take, and it has no {known.kind.unit}")
        else:
            fault = Fault(RejectCode.UNLABELLED, f"no {known.kind.unit} of the take (split {known.splits[uid]})")
        yield fault.reject(take_id(uid), 0)


PARTS = "metadata annotations captures take_trajectory"
DOWNLOAD = Download(
    commands=(f"egoexo -o ROOT --parts {PARTS} downscaled_takes/448",),
    access=f"sign the licence at https://ego4d.dev/request/ego-exo4d (two days), {EGO4D_KEYS}",
    pose_file=TRAJECTORY,
    without_videos=(f"egoexo -o ROOT --parts {PARTS} features/omnivore_video",),
)
