"""Basketball shots mined from Ego-Exo4D atomic descriptions -> a segment before each shot and the shot itself.

Source: paper, appendix on basketball; decisions: docs/decisions/corpora.md. The counted unit is the use of a
description: a shot that also precedes the next shot counts twice, in and out.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from schemas.annotation import CorpusCount, Details
from schemas.config import IngestConfig
from schemas.rejects import Reject, RejectCode
from trajpilot_core.corpora.base import AnnotatedPoint, Candidate, CorpusReading, Fault, Published, Released, count
from trajpilot_core.corpora.egoexo4d.atomic import ATOMIC_FILE, count_descriptions, read_annotation, read_one
from trajpilot_core.corpora.egoexo4d.release import DOWNLOAD, Annotated, AnnotationKind, list_release, read_release
from trajpilot_core.corpora.egoexo4d.shots import DescribedShot, attempt_of, outcome_of
from trajpilot_core.corpora.egoexo4d.takes import CORPUS
from trajpilot_core.corpora.formats.strict import as_id, as_list, as_object, as_text
from trajpilot_core.corpora.records.annotations import midpoint_intervals
from trajpilot_core.corpora.records.splits import Counts, draw_test, surplus
from trajpilot_core.corpora.records.tables import TEST_TAKES, TRAIN_TAKES, subject_phrases
from trajpilot_core.corpora.spec import CorpusSpec
from trajpilot_core.store.corpus_files import Corpus

DOMAIN = 6
"""Thousands digit of the ids of basketball tasks."""
SETTINGS = "ingest.basketball: attempts, made, missed, evidence, both, balance, split"


@dataclass(frozen=True)
class _Shot:
    """One attempt with a known outcome and a description before it."""

    take: str
    at: int
    """Index among the take's points."""
    outcome: DescribedShot

    @property
    def event(self) -> str:
        """Id of the shot."""
        return f"{self.take}:shot{self.at:04d}"


Following = dict[int, AnnotatedPoint]
"""Offset of a description of a take -> the description after it that may state its outcome."""


def _read(
    annotated: Annotated, config: IngestConfig, following: dict[str, Following], scenarios: set[str]
) -> tuple[Candidate | None, list[Reject]]:
    """Return a take with all points of its chosen annotator; its scenario and what follows its points are added."""
    take = annotated.take
    by_id = any(number // 1000 == DOMAIN for number in take.task_ids)
    if not by_id and not any("basketball" in name.lower() for name in take.task_names):
        fault = Fault(RejectCode.FILTERED, "its task is not basketball")
        return None, [fault.reject(take.take_id, count_descriptions(annotated.value), annotated.path)]
    scenarios.add(take.scenario)
    candidate, rejects = read_one(annotated, config)
    if candidate is not None:
        following[take.take_id] = _following(annotated.value, candidate.points, config)
    return candidate, rejects


def _following(entries: object, points: Sequence[AnnotatedPoint], config: IngestConfig) -> Following:
    """Return offset of a description -> the next one by anybody."""
    uid = points[0].annotation_uid
    entry = next(e for e in as_list(entries) if as_id(as_object(e).get("annotation_uid")) == uid)
    descriptions = map(as_object, as_list(as_object(entry).get("descriptions")))
    subjects = (as_text(fields.get("subject", fields.get("narration_subject"))) for fields in descriptions)
    everybody = {*config.subjects, *(subject.strip() for subject in subjects if subject is not None)}
    wider = read_annotation(entry, config.replace(subjects=tuple(sorted(everybody))))
    all_points = points if isinstance(wider, Fault) else wider.points
    offsets = {point.offset for point in points}
    phrases = subject_phrases(config)

    def states_shot(text: str) -> bool:
        """Return whether a description of another person states a shot, whatever name precedes the verb."""
        words = text.split()
        return any(attempt_of(" ".join(words[i:]), config.basketball, phrases) for i in range(min(4, len(words))))

    return {
        before.offset: point
        for before, point in pairwise(all_points)
        if before.offset in offsets and (point.offset in offsets or not states_shot(point.text))
    }


def read_basketball(corpus: Corpus, config: IngestConfig) -> CorpusReading:
    """Mine the descriptions of the splits that are used, draw the test takes, and balance.

    Raises InputError: takes.json, splits.json or an annotation file cannot be used.
    """
    following: dict[str, Following] = {}
    scenarios: set[str] = set()
    read = partial(_read, following=following, scenarios=scenarios)
    reading = read_release(corpus, config, AnnotationKind(ATOMIC_FILE, "descriptions", count_descriptions, read))
    shots: dict[str, list[_Shot]] = defaultdict(list)
    faults: dict[str, dict[int, Fault]] = {}
    for candidate in reading.candidates:
        take = candidate.take.take_id
        shots[take], faults[take] = _mine(candidate, following[take], config)
    roles, out = _split(reading, shots, config)
    rejects, candidates, twice = list(reading.rejects), [], 0
    for candidate in reading.candidates:
        take = candidate.take.take_id
        kept = [shot for shot in shots[take] if shot.event not in out]
        unbalanced = Fault(RejectCode.UNBALANCED, "left out to balance the classes")
        lost = faults[take] | {shot.at: unbalanced for shot in shots[take] if shot.event in out}
        rejects += _rejects(candidate, kept, lost)
        twice += len({s.at - 1 for s in kept} & {*lost, *(s.at for s in kept)})
        if kept:
            points = tuple(_segments(candidate, kept, config))
            candidates.append(replace(candidate, points=points, released=roles[take]))
    return replace(
        reading,
        candidates=tuple(candidates),
        rejects=tuple(rejects),
        n_in=reading.n_in + twice,
        released={take: roles.get(take, role) for take, role in reading.released.items()},
        wanted=reading.wanted if config.basketball.split == "released" else CorpusReading.wanted,
        scenarios=frozenset(scenarios),
        counts=_counts(shots, roles, out),
    )


def _mine(candidate: Candidate, following: Following, config: IngestConfig) -> tuple[list[_Shot], dict[int, Fault]]:
    """Return the shots of a take, and the faults of other attempts by their index among its points."""
    shots: list[_Shot] = []
    faults: dict[int, Fault] = {}
    take, phrases = candidate.take.take_id, subject_phrases(config)
    for at, point in enumerate(candidate.points):
        if attempt_of(point.text, config.basketball, phrases) is None:
            continue
        after = following.get(point.offset)
        outcome = outcome_of(point.text, after.text if after else None, config.basketball)
        if at == 0:
            faults[at] = Fault(RejectCode.NO_CONTEXT, f"the shot {point.text[:80]!r} is the first description")
        elif outcome is None:
            faults[at] = Fault(RejectCode.NO_OUTCOME, f"no text states the outcome of {point.text[:80]!r}")
        elif outcome.verdict == "ambiguous":
            faults[at] = Fault(RejectCode.OUTCOME_AMBIGUOUS, f"{outcome.text[:80]!r} after {point.text[:80]!r}")
        else:
            shots.append(_Shot(take, at, outcome))
    return shots, faults


def _split(
    reading: CorpusReading, shots: dict[str, list[_Shot]], config: IngestConfig
) -> tuple[dict[str, Released], frozenset[str]]:
    """Return take -> train or test, for every candidate, and the shots left out to balance the classes of a split."""
    roles: dict[str, Released] = {c.take.take_id: c.released for c in reading.candidates}
    if config.basketball.split != "released":
        numbers: dict[str, Counts] = {}
        for take in (take for take in roles if shots[take]):
            made = sum(shot.outcome.verdict == "made" for shot in shots[take])
            numbers[take] = (made, len(shots[take]) - made)
        test = draw_test(numbers, config.basketball)
        roles = {take: "test" if take in test else "train" for take in roles}
    if not config.basketball.balance:
        return roles, frozenset()
    sides: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for take, shots_of_take in shots.items():
        sides[roles[take]] += [(shot.event, shot.outcome.verdict) for shot in shots_of_take]
    return roles, frozenset().union(*(surplus(side, config.basketball.seed) for side in sides.values()))


def _rejects(candidate: Candidate, kept: Sequence[_Shot], lost: dict[int, Fault]) -> Iterator[Reject]:
    """Yield the rejects of unused descriptions: one row per attempt, one for all others."""
    take, path = candidate.take.take_id, candidate.source_file
    for at, fault in sorted(lost.items()):
        yield fault.reject(take, 1, path, candidate.points[at].offset)
    used = {*lost, *(shot.at for shot in kept), *(shot.at - 1 for shot in kept)}
    idle = len(candidate.points) - len(used)
    if idle:
        detail = f"{idle} descriptions neither state a shot nor precede one"
        yield Fault(RejectCode.NO_ATTEMPT, detail).reject(take, idle, path)
    if not kept:
        yield Fault(RejectCode.UNLABELLED, "no shot of it can be used").reject(take, 0, path)


def _segments(candidate: Candidate, kept: Sequence[_Shot], config: IngestConfig) -> Iterator[AnnotatedPoint]:
    """Yield, for each shot, the segment before it and the shot; each pair is a group."""
    points = candidate.points
    anchor_s = np.array([point.time_s for point in points], np.float64)
    start_s, end_s = midpoint_intervals(anchor_s, float(anchor_s[-1]), config.interval_cap_s)
    for shot in kept:
        verdict, text = shot.outcome
        known = Details(event=shot.event, role="shot", outcome=verdict, evidence=text)
        for at, details in ((shot.at - 1, Details(event=shot.event, role="context")), (shot.at, known)):
            span_s = max(0.0, float(start_s[at])), float(end_s[at])
            yield points[at]._replace(span_s=span_s, details=details, group=shot.event)


def _counts(shots: dict[str, list[_Shot]], roles: dict[str, Released], out: frozenset[str]) -> tuple[CorpusCount, ...]:
    every = [shot for shots_of_take in shots.values() for shot in shots_of_take]
    sides = Counter(f"{s.outcome.verdict}, {roles[s.take]}" for s in every if s.event not in out)
    paper = {"made, train": 147, "missed, train": 147, "made, test": 37, "missed, test": 37}
    return (  # the paper, appendix on basketball: 376 are found, 368 are kept
        count("shots with an outcome", len(every), 376, SETTINGS),
        count("takes with such shots", sum(map(bool, shots.values())), 52, SETTINGS),
        *(count(what, sides[what], n, SETTINGS) for what, n in paper.items()),
    )


EGOEXO4D_BASKETBALL = CorpusSpec(
    name="egoexo4d_basketball",
    title="Ego-Exo4D, basketball shots",
    ids=CORPUS,
    read=read_basketball,
    listing=partial(list_release, file=ATOMIC_FILE),
    published={TRAIN_TAKES: Published(42, SETTINGS), TEST_TAKES: Published(10, SETTINGS)},
    horizons=(2, 2),  # the segment before a shot and the shot
    splits="annotations/splits.json, or sampled (ingest.basketball.split)",
    download=DOWNLOAD,
    layout="basketball",
    has_goal=False,
    is_of_events=True,
)
