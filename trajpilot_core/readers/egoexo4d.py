"""Ego-Exo4D atomic descriptions -> candidate takes with time points; what cannot be used becomes rejects.

Source: docs.ego-exo4d-data.org, page Atomic Action Descriptions; decisions: docs/decisions/ingest.md. The unit that is
counted is the description: each one of the files that are read ends as a point of a candidate or in one reject.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import NamedTuple

from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.errors import TakeFault
from trajpilot_core.readers.corpus import Corpus, leftovers, listing, read_whole
from trajpilot_core.readers.descriptions import choose_annotation, count_descriptions
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
from trajpilot_core.readers.reading import Candidate, Fault, Listing, Reader, Reading, Released, TakeFiles
from trajpilot_core.readers.strict_json import JsonFaultError, Repeated, parse

Names = Callable[[str], dict[str, tuple[int, str]]]
"""Folder -> its files, asked of the storage once per folder."""


class _Corpus(NamedTuple):
    """What is known before the annotations are read."""

    takes: Takes
    splits: dict[str, str | None]
    names: Names
    config: IngestConfig


def annotation_file(released: str) -> str:
    """Return the path of the descriptions of a released split."""
    return f"annotations/atomic_descriptions_{released}.json"


def read_atomic(corpus: Corpus, config: IngestConfig) -> Reading:
    """Read the descriptions of the splits that are used.

    Raises:
        InputError: takes.json or splits.json cannot be used.
    """
    known = _Corpus(read_takes(corpus, config), read_splits(corpus), _folder_names(corpus), config)
    candidates: list[Candidate] = []
    rejects: list[Reject] = [*known.takes.rejects]
    seen: set[str] = set()
    n_in = 0
    for released in ("train", config.test_split):
        path = annotation_file(released)
        annotations, faults = _read_annotations(corpus, path)
        rejects += faults
        for uid, entries, fault in annotations:
            seen.add(uid)
            n_in += count_descriptions(entries)
            candidate, lost = _read_take(known, released, uid, entries, fault)
            candidates += [candidate] if candidate else []
            rejects += lost
    rejects += _without_annotation(known, seen)
    rejects += _leftover_rejects(known)
    return _reading(known, candidates, rejects, n_in)


def _reading(known: _Corpus, candidates: list[Candidate], rejects: list[Reject], n_in: int) -> Reading:
    roles = {uid: used_split(split, known.config) for uid, split in known.splits.items()}
    return Reading(
        candidates=tuple(sorted(candidates, key=lambda c: c.take.take_id)), rejects=tuple(rejects), n_in=n_in,
        released={take_id(uid): role for uid, role in roles.items() if role is not None},
        scenarios=frozenset(t.scenario for uid, t in known.takes.usable.items() if roles.get(uid) is not None),
    )  # fmt: skip


def list_atomic(corpus: Corpus, config: IngestConfig) -> Listing:
    """List what `read_atomic` and the probing of its videos read, without opening an annotation or a video.

    Raises:
        InputError: takes.json or splits.json cannot be used.
    """
    known = _Corpus(read_takes(corpus, config), read_splits(corpus), _folder_names(corpus), config)
    takes = [t for uid, t in known.takes.usable.items() if used_split(known.splits.get(uid), config) is not None]
    files = {TAKES, CAPTURES, SPLITS, annotation_file("train"), annotation_file(config.test_split)}
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


def _read_annotations(corpus: Corpus, path: str) -> tuple[list[tuple[str, object, Fault | None]], list[Reject]]:
    """Return (take uid, its value, why it cannot be used or None) in order of uid; a broken file is one reject."""
    try:
        document = parse(read_whole(corpus, path), path, refuse_nan=False)
    except FileNotFoundError:
        return [], [_file_reject(path, "the annotation file is missing", None)]
    except JsonFaultError as fault:
        return [], [_file_reject(path, fault.detail, fault.offset)]
    except TakeFault as fault:
        return [], [Fault(fault.code, fault.detail).reject("", 0, path)]
    annotations = document.get("annotations") if isinstance(document, dict) else None
    if not isinstance(annotations, dict) or isinstance(document, Repeated):
        return [], [_file_reject(path, "expected one object with one object `annotations`", None)]
    return sorted(_takes_of(annotations), key=lambda row: row[0]), []


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
    known: _Corpus, released: str, uid: str, entries: object, fault: Fault | None
) -> tuple[Candidate | None, list[Reject]]:
    path, name = annotation_file(released), take_id(uid)
    fault = fault or _take_fault(known, released, uid)
    if fault is not None:
        return None, [fault.reject(name, count_descriptions(entries), path)]
    take = known.takes.usable[uid]
    points, lost = choose_annotation(entries, name, path, known.config)
    if not points:
        return None, [*lost, Fault(RejectCode.UNLABELLED, "no description passed the filters").reject(name, 0, path)]
    role: Released = "train" if released == "train" else "test"
    return Candidate(_as_on_disk(take, known.names), role, tuple(points), path), lost


def _take_fault(known: _Corpus, released: str, uid: str) -> Fault | None:
    """Return why no description of the take can be used, the first reason that applies."""
    if uid in known.takes.faults:
        return known.takes.faults[uid]
    if uid not in known.takes.usable:
        return Fault(RejectCode.TAKE_UNKNOWN, f"{annotation_file(released)} names it, takes.json does not")
    if uid not in known.splits:
        return Fault(RejectCode.NO_SPLIT, "splits.json does not name the take")
    if known.splits[uid] != released:
        said = known.splits[uid] or "more than one split, or none that can be read"
        return Fault(RejectCode.NO_SPLIT, f"its descriptions lie in the file of {released}, splits.json says {said}")
    return _missing_files(known, known.takes.usable[uid])


def _missing_files(known: _Corpus, take: TakeFiles) -> Fault | None:
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


def _without_annotation(known: _Corpus, seen: set[str]) -> Iterator[Reject]:
    """Yield one row, which costs nothing, for each take without annotations that takes.json or splits.json name."""
    for uid in sorted({*known.takes.usable, *known.takes.faults, *known.splits} - seen):
        if uid in known.takes.faults:
            fault = known.takes.faults[uid]
        elif uid not in known.takes.usable:
            fault = Fault(RejectCode.TAKE_UNKNOWN, "splits.json names it, takes.json does not")
        elif uid not in known.splits:
            fault = Fault(RejectCode.NO_SPLIT, "splits.json does not name the take, and it has no descriptions")
        else:
            fault = Fault(RejectCode.UNLABELLED, f"no descriptions of the take (split {known.splits[uid]})")
        yield fault.reject(take_id(uid), 0)


def _leftovers(known: _Corpus) -> Iterator[tuple[str, str]]:
    """Yield (take id or "", path) of what broken downloads left beside the files that are used."""
    folders = {"annotations": ""}
    for uid, take in known.takes.usable.items():
        if used_split(known.splits.get(uid), known.config) is not None:
            paths = [take.video, *take.optional()]
            folders |= {path.rpartition("/")[0]: "" if path == take.timesync else take.take_id for path in paths}
    for folder, owner in folders.items():
        yield from ((owner, f"{folder}/{name}") for name in leftovers(known.names(folder)))


def _leftover_rejects(known: _Corpus) -> Iterator[Reject]:
    for owner, path in sorted(_leftovers(known)):
        yield Fault(RejectCode.LEFTOVER_FILE, f"{path} is left from a download that broke off").reject(owner, 0, path)


EGOEXO4D_ATOMIC = Reader(read=read_atomic, listing=list_atomic)
