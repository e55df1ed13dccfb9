"""EPIC-KITCHENS-100 -> one candidate take per video with what is seen before each action; the rest becomes rejects.

Decisions: docs/decisions/segment-corpora.md. The unit that is counted is the row of the action tables.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from schemas.annotation import SIMULATED, CorpusCount, Details
from schemas.config import IngestConfig
from schemas.corpora import EpicConfig
from schemas.rejects import RejectCode
from trajpilot_core.errors import InputError, TakeFault
from trajpilot_core.readers.candidates import OVERLAPS, Gathered, claimed_twice, kept_labels
from trajpilot_core.readers.corpus import Corpus, read_whole
from trajpilot_core.readers.downloads import EPIC_PLACES, places
from trajpilot_core.readers.epic_files import (
    Action,
    EpicFile,
    parse_actions,
    parse_class_list,
    parse_classes,
    parse_participants,
    words,
)
from trajpilot_core.readers.fields import shown
from trajpilot_core.readers.folders import Folders, file_fault, leftover_rejects, needed, read_document
from trajpilot_core.readers.labels import normalise
from trajpilot_core.readers.reading import (
    Fault,
    Listing,
    Point,
    Reader,
    Reading,
    Released,
    TakeFiles,
)
from trajpilot_core.readers.simulated import WORLD_FILE, is_simulated
from trajpilot_core.readers.strict_csv import CsvFaultError

CORPUS = "epic"
SCENARIO = "kitchen"
TABLES: dict[Released, str] = {"train": "EPIC_100_train.csv", "test": "EPIC_100_validation.csv"}
VERBS, NOUNS = "EPIC_100_verb_classes.csv", "EPIC_100_noun_classes.csv"
"""Not EPIC_100_noun_classes_v2.csv: its 305 classes are not those of the benchmark."""
TAIL_VERBS, TAIL_NOUNS = "EPIC_100_tail_verbs.csv", "EPIC_100_tail_nouns.csv"
UNSEEN = "EPIC_100_unseen_participant_ids_validation.csv"
CLASS_FILES = (VERBS, NOUNS, TAIL_VERBS, TAIL_NOUNS, UNSEEN)
VIDEO_ROOTS = ("", "EPIC-KITCHENS/")
"""The downloader makes the folder EPIC-KITCHENS under the path that it is given."""
SUFFIXES = (".MP4", ".mp4")
ADVICE = "clone epic-kitchens/epic-kitchens-100-annotations there (docs/data.md)"


class Classes(NamedTuple):
    """Names of the classes, and the sets of the protocol."""

    verbs: dict[int, str]
    nouns: dict[int, str]
    tail_verbs: frozenset[int]
    tail_nouns: frozenset[int]
    unseen: frozenset[str]


class _Known(NamedTuple):
    folders: Folders
    config: EpicConfig
    classes: Classes
    tables: dict[Released, str]
    is_simulated: bool


class _Rows(NamedTuple):
    released: Released
    path: str
    file: EpicFile


def take_id(video_id: str) -> str:
    """Return the take's id in our tables."""
    return f"{CORPUS}:{shown(video_id)}"


def _known(corpus: Corpus, config: IngestConfig) -> _Known:
    if config.test_split == "test":
        raise InputError("the labels of EPIC-KITCHENS-100's test split are not public; set ingest.test_split to val")
    epic, cap_s = config.epic_kitchens, config.interval_cap_s
    if epic.segment == "observed" and cap_s is not None and epic.observed_s > 2 * cap_s + 1e-9:
        raise InputError(
            f"ingest.epic_kitchens.observed_s is {epic.observed_s} s, but ingest.interval_cap_s cuts segments to "
            f"{2 * cap_s} s around their middle, which would move their ends; set ingest.interval_cap_s to null"
        )
    folders = Folders(corpus)
    if folders.first([place for name in TABLES.values() for place in places(EPIC_PLACES, name)]) is None:
        needed(folders, places(EPIC_PLACES, TABLES["test"]), ADVICE)
    tables = {role: folders.first(places(EPIC_PLACES, name)) or name for role, name in TABLES.items()}
    return _Known(folders, epic, _classes(folders), tables, is_simulated(folders.corpus))


def class_paths(folders: Folders) -> dict[str, str]:
    """Return name -> path of the tables of classes and sets.

    Raises:
        InputError: one is absent.
    """
    return {name: needed(folders, places(EPIC_PLACES, name), ADVICE) for name in CLASS_FILES}


def _classes(folders: Folders) -> Classes:
    paths = class_paths(folders)
    content = {name: read_document(folders.corpus, path) for name, path in paths.items()}
    return Classes(
        parse_classes(content[VERBS], paths[VERBS]), parse_classes(content[NOUNS], paths[NOUNS]),
        parse_class_list(content[TAIL_VERBS], paths[TAIL_VERBS], "verb"),
        parse_class_list(content[TAIL_NOUNS], paths[TAIL_NOUNS], "noun"),
        parse_participants(content[UNSEEN], paths[UNSEEN]),
    )  # fmt: skip


def _files(known: _Known, gathered: Gathered) -> list[_Rows]:
    found = []
    for role, path in known.tables.items():
        file = EpicFile((), (), 0)
        try:
            file = parse_actions(read_whole(known.folders.corpus, path), path)
        except FileNotFoundError:
            gathered.reject(Fault(RejectCode.RECORD_MALFORMED, "the table of actions is missing"), "", 0, path)
        except (CsvFaultError, TakeFault) as error:
            gathered.reject(file_fault(error), "", 0, path)
        found.append(_Rows(role, path, file))
    return found


def read_epic(corpus: Corpus, config: IngestConfig) -> Reading:
    """Read the action tables of training and validation.

    Raises:
        InputError: no action table or not all class tables are there, or settings contradict each other.
    """
    gathered = Gathered()
    known = _known(corpus, config)
    files = _files(known, gathered)
    labels = [label_id_of(a, known.config) for rows in files if rows.released == "train" for a in rows.file.actions]
    frequent = kept_labels(labels, known.config.min_label_train)
    shared = claimed_twice(
        (a.video_id, take_id(a.video_id), rows.released) for rows in files for a in rows.file.actions
    )
    for rows in files:
        for video_id, line, fault in rows.file.lost:
            gathered.reject(fault, take_id(video_id) if video_id else "", 1, rows.path, line)
        _add_videos(known, rows, frequent, shared, gathered)
    gathered.rejects += leftover_rejects(known.folders)
    return Reading(
        candidates=tuple(sorted(gathered.candidates, key=lambda c: c.take.take_id)),
        rejects=tuple(gathered.rejects), n_in=sum(rows.file.n_units for rows in files), released=gathered.released,
        scenarios=frozenset([SCENARIO] if gathered.released else []), counts=_counts(known, files, gathered),
    )  # fmt: skip


def _add_videos(
    known: _Known, rows: _Rows, frequent: frozenset[str] | None, shared: dict[str, Fault], gathered: Gathered
) -> None:
    """Make one candidate of each video of a table."""
    of: dict[tuple[str, str], list[Action]] = defaultdict(list)
    for action in rows.file.actions:
        of[action.participant, action.video_id].append(action)
    for (participant, video_id), actions in of.items():
        take = _take(known, participant, video_id)
        gathered.released[take.take_id] = rows.released
        if take.take_id in shared:
            gathered.reject(shared[take.take_id], take.take_id, len(actions), rows.path)
            continue
        points: list[Point] = []
        for action in actions:
            found = _point(known, action, frequent, rows.released, gathered)
            if isinstance(found, Fault):
                gathered.reject(found, take.take_id, 1, rows.path, action.offset)
            else:
                points.append(found)
        gathered.add(take, rows.released, points, rows.path, known.folders)


def label_id_of(action: Action, config: EpicConfig) -> str:
    """Return the id of an action's label: its class or pair of classes, or the words of its narration."""
    if config.label == "narration":
        return normalise(action.narration, ())
    ids = {"verb": f"v{action.verb_class}", "noun": f"n{action.noun_class}"}
    return ids.get(config.label, f"v{action.verb_class}:n{action.noun_class}")


def _point(
    known: _Known, action: Action, frequent: frozenset[str] | None, released: Released, gathered: Gathered
) -> Point | Fault:
    """Return what an action gives: the window before it with its label, or the action itself."""
    config, classes = known.config, known.classes
    if action.verb_class not in classes.verbs or action.noun_class not in classes.nouns:
        return Fault(RejectCode.LABEL_UNKNOWN, f"verb {action.verb_class} or noun {action.noun_class} is no class")
    label_id = label_id_of(action, config)
    if frequent is not None and label_id not in frequent:
        return Fault(RejectCode.LABEL_RARE, f"{label_id} stands less than {config.min_label_train} times in training")
    if action.span_s[1] <= action.span_s[0]:
        return Fault(RejectCode.SEGMENT_EMPTY, f"{action.narration_id} is of {action.span_s} s")
    window_s = observed(action.span_s[0], config)
    if window_s is None and config.segment == "observed":
        gathered.counts[f"actions that start too early, {released}"] += 1
        detail = f"{action.narration_id} starts at {action.span_s[0]} s, the gap is {config.gap_s} s"
        return Fault(RejectCode.TOO_EARLY, detail)
    verb, noun = words(classes.verbs[action.verb_class]), words(classes.nouns[action.noun_class])
    label = {"verb": verb, "noun": noun, "action": f"{verb} {noun}", "narration": None}[config.label]
    details = Details(
        annotated_start_s=action.span_s[0], annotated_end_s=action.span_s[1], description=action.narration,
        verb=verb, verb_class=action.verb_class, noun=noun, noun_class=action.noun_class,
        narration_s=action.narration_s, observed_start_s=window_s and window_s[0],
        observed_end_s=window_s and window_s[1],
        is_unseen=released == "test" and action.participant in classes.unseen,
        is_tail_verb=action.verb_class in classes.tail_verbs, is_tail_noun=action.noun_class in classes.tail_nouns,
        is_tail_action=action.verb_class in classes.tail_verbs or action.noun_class in classes.tail_nouns,
    )  # fmt: skip
    start_s, end_s = action.span_s if config.segment == "action" or window_s is None else window_s
    return Point(
        (start_s + end_s) / 2, action.narration, action.narration_id, "", action.offset, (start_s, end_s), label,
        label and label_id, details,
    )  # fmt: skip


def observed(start_s: float, config: EpicConfig) -> tuple[float, float] | None:
    """Return the window that may be seen before an action; None where the video has no room for the gap.

    Its end lies `gap_s` before the start of the action, its length is `observed_s` or what the video has before that.
    """
    end_s = start_s - config.gap_s
    return (max(end_s - config.observed_s, 0.0), end_s) if end_s >= 0 else None


def video_path(folders: Folders, participant: str, video_id: str) -> str:
    """Return where a video lies; where it is absent, where the downloader puts it under the root."""
    names = [f"{root}{participant}/videos/{video_id}{suffix}" for root in VIDEO_ROOTS for suffix in SUFFIXES]
    return folders.first(names) or names[0]


def _take(known: _Known, participant: str, video_id: str) -> TakeFiles:
    return TakeFiles(
        uid=video_id, corpus=SIMULATED if known.is_simulated else CORPUS, take_id=take_id(video_id), name=video_id,
        scenario=SCENARIO, participant=participant, capture=video_id, camera="",
        video=video_path(known.folders, participant, video_id), trajectory=None, timesync=None, calibration=None,
        timesync_start=None, timesync_end=None,
    )  # fmt: skip


def _counts(known: _Known, files: Sequence[_Rows], gathered: Gathered) -> tuple[CorpusCount, ...]:
    gap = "ingest.epic_kitchens.gap_s"
    rows: list[tuple[str, int, int | None, str]] = [
        ("verb classes", len(known.classes.verbs), None, ""), ("noun classes", len(known.classes.nouns), None, ""),
    ]  # fmt: skip
    for table in files:
        role, actions = table.released, table.file.actions
        early = f"actions that start too early, {role}"
        pairs = len({(a.verb_class, a.noun_class) for a in actions})
        rows += [
            (f"rows as released, {role}", table.file.n_units, None, ""),
            (f"videos as released, {role}", len({a.video_id for a in actions}), None, ""),
            (f"pairs of verb and noun, {role}", pairs, 3568 if role == "train" else None, ""),
            (f"rows without a narration time, {role}", sum(a.narration_s is None for a in actions), None, ""),
            (early, gathered.counts[early], None, gap),
        ]  # fmt: skip
    rows.append((OVERLAPS, gathered.counts[OVERLAPS], None, ""))
    return tuple(CorpusCount(what=what, ours=ours, paper=paper, setting=said) for what, ours, paper, said in rows)


def list_epic(corpus: Corpus, config: IngestConfig) -> Listing:
    """List what `read_epic` and the probing of its videos read, without opening a video.

    Raises:
        InputError: no action table or not all class tables are there, or settings contradict each other.
    """
    known = _known(corpus, config)
    ids = {(a.participant, a.video_id) for rows in _files(known, Gathered()) for a in rows.file.actions}
    videos = {video_path(known.folders, participant, video_id) for participant, video_id in ids}
    files = {*known.tables.values(), *class_paths(known.folders).values()}
    world = {WORLD_FILE} if known.folders.is_there(WORLD_FILE) else set()
    return Listing(tuple(sorted(files | videos | world)), (), tuple(sorted(known.folders.leftovers())))


EPIC_KITCHENS = Reader(read=read_epic, listing=list_epic, splits="the action tables", unit="rows")
