"""What all readers of Ego-Exo4D share: takes and splits joined with one kind of annotation file, take by take.

Each unit of the files that are read ends in a candidate or in one reject. Source: docs.ego-exo4d-data.org; decisions:
docs/decisions/ingest.md.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.errors import TakeFault
from trajpilot_core.readers.corpus import Corpus, leftovers, listing, read_whole
from trajpilot_core.readers.egoexo4d_takes import (
    CAPTURES,
    SPLITS,
    TAKES,
    Takes,
    read_splits,
    read_takes,
    take_id,
    used_split,
)
from trajpilot_core.readers.reading import Candidate, Fault, Listing, Reading, Released, TakeFiles
from trajpilot_core.readers.strict_json import JsonFaultError, Repeated, parse

Names = Callable[[str], dict[str, tuple[int, str]]]
"""Folder -> its files, asked of the storage once per folder."""


@dataclass(frozen=True)
class Annotated:
    """One take whose annotations can be used, as one file holds them."""

    take: TakeFiles
    released: Released
    value: object
    """What the file holds under the take's uid."""
    path: str
    document: Mapping[str, object]
    """The whole file."""


class Kind(NamedTuple):
    """One kind of annotation: where it lies, what is counted in it, and how one take of it is read."""

    file: str
    """Path with `{}` for the released split."""
    unit: str
    """What is counted, in the plural."""
    count: Callable[[object], int]
    """Value under a take's uid -> how many units it holds, whatever state the rest of it is in."""
    read: Callable[[Annotated, IngestConfig], tuple[Candidate | None, list[Reject]]]

    def path(self, released: str) -> str:
        """Return the annotation file of a released split."""
        return self.file.format(released)


class _Known(NamedTuple):
    """What is known before the annotations are read."""

    takes: Takes
    splits: dict[str, str | None]
    names: Names
    config: IngestConfig
    kind: Kind


def read_release(corpus: Corpus, config: IngestConfig, kind: Kind) -> Reading:
    """Read the annotations of the splits that are used.

    Raises:
        InputError: takes.json or splits.json cannot be used.
    """
    known = _known(corpus, config, kind)
    candidates: list[Candidate] = []
    rejects: list[Reject] = [*known.takes.rejects]
    seen: set[str] = set()
    n_in = 0
    for released in ("train", config.test_split):
        path = kind.path(released)
        document, annotations, faults = _read_annotations(corpus, path)
        rejects += faults
        for uid, value, fault in annotations:
            seen.add(uid)
            n_in += kind.count(value)
            candidate, lost = _read_take(known, released, (uid, value, document), fault)
            candidates += [candidate] if candidate else []
            rejects += lost
    rejects += _without_annotation(known, seen)
    rejects += _leftover_rejects(known)
    return _reading(known, candidates, rejects, n_in)


def _known(corpus: Corpus, config: IngestConfig, kind: Kind) -> _Known:
    return _Known(read_takes(corpus, config), read_splits(corpus), _folder_names(corpus), config, kind)


def _reading(known: _Known, candidates: list[Candidate], rejects: list[Reject], n_in: int) -> Reading:
    roles = {uid: used_split(split, known.config) for uid, split in known.splits.items()}
    return Reading(
        candidates=tuple(sorted(candidates, key=lambda c: c.take.take_id)), rejects=tuple(rejects), n_in=n_in,
        released={take_id(uid): role for uid, role in roles.items() if role is not None},
        scenarios=frozenset(t.scenario for uid, t in known.takes.usable.items() if roles.get(uid) is not None),
    )  # fmt: skip


def list_release(corpus: Corpus, config: IngestConfig, kind: Kind) -> Listing:
    """List what `read_release` and the probing of its videos read, without opening an annotation or a video.

    Raises:
        InputError: takes.json or splits.json cannot be used.
    """
    known = _known(corpus, config, kind)
    takes = [t for uid, t in known.takes.usable.items() if used_split(known.splits.get(uid), config) is not None]
    files = {TAKES, CAPTURES, SPLITS, kind.path("train"), kind.path(config.test_split)}
    files |= {take.video for take in takes}
    present = {path for take in takes for path in take.optional() if _is_there(known.names, path)}
    return Listing(tuple(sorted(files)), tuple(sorted(present)), tuple(sorted(path for _, path in _leftovers(known))))


def _folder_names(corpus: Corpus) -> Names:
    cache: dict[str, dict[str, tuple[int, str]]] = {}

    def names(folder: str) -> dict[str, tuple[int, str]]:
        if folder not in cache:
            cache[folder] = listing(corpus, folder)
        return cache[folder]

    return names


def _is_there(names: Names, path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return name in names(folder)


_Rows = list[tuple[str, object, Fault | None]]
"""(take uid, its value, why it cannot be used or None) in order of uid."""


def _read_annotations(corpus: Corpus, path: str) -> tuple[Mapping[str, object], _Rows, list[Reject]]:
    """Return an annotation file and its takes; a broken file is one reject."""
    try:
        document = parse(read_whole(corpus, path), path, refuse_nan=False)
    except FileNotFoundError:
        return {}, [], [_file_reject(path, "the annotation file is missing", None)]
    except JsonFaultError as fault:
        return {}, [], [_file_reject(path, fault.detail, fault.offset)]
    except TakeFault as fault:
        return {}, [], [Fault(fault.code, fault.detail).reject("", 0, path)]
    annotations = document.get("annotations") if isinstance(document, dict) else None
    if not isinstance(document, dict) or not isinstance(annotations, dict) or isinstance(document, Repeated):
        return {}, [], [_file_reject(path, "expected one object with one object `annotations`", None)]
    return document, sorted(_takes_of(annotations), key=lambda row: row[0]), []


def _takes_of(annotations: dict[str, object]) -> Iterator[tuple[str, object, Fault | None]]:
    if not isinstance(annotations, Repeated):
        yield from ((uid, value, None) for uid, value in annotations.items())
        return
    times = Counter(uid for uid, _ in annotations.pairs)
    fault = Fault(RejectCode.RECORD_MALFORMED, "the annotation file holds the take uid more than once")
    for uid, value in annotations.pairs:
        yield uid, value, fault if times[uid] > 1 else None


def _file_reject(path: str, detail: str, offset: int | None) -> Reject:
    return Fault(RejectCode.RECORD_MALFORMED, detail).reject("", 0, path, offset)


def _read_take(
    known: _Known, released: str, row: tuple[str, object, Mapping[str, object]], fault: Fault | None
) -> tuple[Candidate | None, list[Reject]]:
    uid, value, document = row
    path = known.kind.path(released)
    fault = fault or _take_fault(known, released, uid)
    if fault is not None:
        return None, [fault.reject(take_id(uid), known.kind.count(value), path)]
    take = _as_on_disk(known.takes.usable[uid], known.names)
    role: Released = "train" if released == "train" else "test"
    return known.kind.read(Annotated(take, role, value, path, document), known.config)


def _take_fault(known: _Known, released: str, uid: str) -> Fault | None:
    """Return why no description of the take can be used, the first reason that applies."""
    if uid in known.takes.faults:
        return known.takes.faults[uid]
    if uid not in known.takes.usable:
        return Fault(RejectCode.TAKE_UNKNOWN, f"{known.kind.path(released)} names it, takes.json does not")
    if uid not in known.splits:
        return Fault(RejectCode.NO_SPLIT, "splits.json does not name the take")
    if known.splits[uid] != released:
        said = known.splits[uid] or "more than one split, or none that can be read"
        return Fault(
            RejectCode.NO_SPLIT, f"its {known.kind.unit} lie in the file of {released}, splits.json says {said}"
        )
    return _missing_files(known, known.takes.usable[uid])


def _missing_files(known: _Known, take: TakeFiles) -> Fault | None:
    if not _is_there(known.names, take.video):
        return Fault(RejectCode.VIDEO_MISSING, f"{take.video} is not there")
    if known.config.require_trajectory and take.trajectory is None:
        return Fault(RejectCode.NO_TRAJECTORY, "takes.json says has_trimmed_trajectory is false")
    if known.config.require_trajectory and not _is_there(known.names, take.trajectory or ""):
        return Fault(RejectCode.NO_TRAJECTORY, f"{take.trajectory} is not there")
    return None


def _as_on_disk(take: TakeFiles, names: Names) -> TakeFiles:
    """Return the take with None for each optional file that is absent."""
    there = {path: path for path in take.optional() if _is_there(names, path)}
    return replace(
        take, trajectory=there.get(take.trajectory or ""), timesync=there.get(take.timesync or ""),
        calibration=there.get(take.calibration or ""),
    )  # fmt: skip


def _without_annotation(known: _Known, seen: set[str]) -> Iterator[Reject]:
    """Yield one row, which costs nothing, for each take without annotations that takes.json or splits.json name."""
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


def _leftovers(known: _Known) -> Iterator[tuple[str, str]]:
    """Yield (take id or "", path) of what broken downloads left beside the files that are used."""
    folders = {"annotations": ""}
    for uid, take in known.takes.usable.items():
        if used_split(known.splits.get(uid), known.config) is not None:
            paths = [take.video, *take.optional()]
            folders |= {path.rpartition("/")[0]: "" if path == take.timesync else take.take_id for path in paths}
    for folder, owner in folders.items():
        yield from ((owner, f"{folder}/{name}") for name in leftovers(known.names(folder)))


def _leftover_rejects(known: _Known) -> Iterator[Reject]:
    for owner, path in sorted(_leftovers(known)):
        yield Fault(RejectCode.LEFTOVER_FILE, f"{path} is left from a download that broke off").reject(owner, 0, path)
