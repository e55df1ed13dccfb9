"""Tensors of answers -> the plan as a record, with labels as texts and windows by their takes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.annotation import Take
from schemas.predict import OwnTake, PlanRow, PlanStep, RankedLabel, Retrieved
from schemas.results import Variant
from trajpilot_core.methods.base import Answers
from trajpilot_core.predict.answers import Given
from trajpilot_core.predict.footage import Footage
from trajpilot_core.predict.trained import TrainedRoot
from trajpilot_core.report.tables.names import row_name
from trajpilot_core.retrieval.candidates import Candidates

NEAREST = 5
"""Retrieved windows that are shown."""


@dataclass(frozen=True)
class Texts:
    """What ids mean under a root."""

    labels: Mapping[str, str]
    takes: Mapping[str, Take]
    segments: Mapping[str, dict[str, Any]]

    def label(self, label_id: str) -> str:
        """Return the text of a label."""
        return self.labels.get(label_id, label_id)


def texts_of(root: TrainedRoot) -> Texts:
    """Read labels, takes and segments."""
    segments = root.rows("segments", ("segment_id", "take_id", "start_s", "end_s", "label_id"))
    return Texts(
        {row["label_id"]: row["label"] for row in root.rows("labels", ("label_id", "label"))},
        {take.take_id: take for take in root.takes},
        {row["segment_id"]: row for row in segments},
    )


def plan_rows(given: Given, texts: Texts, weak: frozenset[str], deciding: Variant | None = None) -> tuple[PlanRow, ...]:
    """Return the rows, the one that decides first.

    Args:
        given: the answers.
        texts: of labels and takes.
        weak: rows that do not count as trained.
        deciding: the row that decides; None: the first of the answers.
    """
    first = next(iter(given.answers)) if deciding is None else deciding
    ordered = sorted(given.answers, key=lambda id_: id_ != first)
    return tuple(_row(id_, given, texts, weak, id_ == first) for id_ in ordered)


def _row(id_: str, given: Given, texts: Texts, weak: frozenset[str], decides: bool) -> PlanRow:
    """Return one row."""
    answers = given.answers[id_]
    opened = None if answers.opened is None else bool(answers.opened[0])
    window = -1 if answers.window is None else int(answers.window[0])
    return PlanRow(
        row=id_,
        name=row_name(id_),
        decides=decides,
        scores=answers.fallback_scores if opened is False else answers.opened_scores,
        gate=None if answers.gate is None else float(answers.gate[0]),
        threshold=answers.threshold,
        opened=opened,
        trusted=None if window < 0 or given.found is None else _trusted(window, given.found, given, texts),
        undertrained=id_ in weak,
        steps=_steps(answers, given, texts),
    )


def _steps(answers: Answers, given: Given, texts: Texts) -> tuple[PlanStep, ...]:
    """Return the positions of one row."""
    label_ids = given.view.data.label_ids
    ids, scores = answers.ids[0].tolist(), answers.scores[0].double().tolist()
    decoded = [row[0] for row in ids] if answers.decoded is None else answers.decoded[0].tolist()
    last = len(ids) - 1
    return tuple(
        PlanStep(
            position=at,
            role="start" if at == 0 else "goal" if at == last else "middle",
            label_id=label_ids[chosen],
            label=texts.label(label_ids[chosen]),
            top=tuple(
                RankedLabel(label_id=label_ids[i], label=texts.label(label_ids[i]), score=score)
                for i, score in zip(ids[at], scores[at], strict=True)
            ),
        )
        for at, chosen in enumerate(decoded)
    )


def _trusted(window: int, found: Candidates, given: Given, texts: Texts) -> Retrieved:
    """Return the retrieved window with that row."""
    place = found.window[0].tolist().index(window)
    return retrieved(place, found, given, texts)


def nearest(given: Given, texts: Texts) -> tuple[Retrieved, ...]:
    """Return the first retrieved windows, best first."""
    found = given.found
    if found is None:
        return ()
    there = int(found.valid[0].sum())
    return tuple(retrieved(place, found, given, texts) for place in range(min(NEAREST, there)))


def retrieved(place: int, found: Candidates, given: Given, texts: Texts) -> Retrieved:
    """Return the candidate at a place of the pool."""
    data = given.view.data
    windows = data.windows[found.horizon]
    row = int(found.window[0, place])
    take = texts.takes[data.take_ids[int(windows.take[row])]]
    segments = [texts.segments[data.segment_ids[i]] for i in windows.segments[row].tolist()]
    return Retrieved(
        window_id=windows.window_ids[row],
        take_id=take.take_id,
        take=take.name,
        split=take.split,
        cosine=float(found.cosine[0, place]),
        labels=tuple(texts.label(row["label_id"]) for row in segments),
        spans_s=tuple((row["start_s"], row["end_s"]) for row in segments),
    )


def own_take(footage: Footage, texts: Texts) -> OwnTake | None:
    """Return what the corpus knows of the video, if it is one of its takes."""
    if footage.own is None:
        return None
    segments = [row for row in texts.segments.values() if row["take_id"] == footage.own.take_id]
    return OwnTake(
        take_id=footage.own.take_id,
        name=footage.own.name,
        split=footage.own.split,
        matched="path" if footage.matched == "path" else "content",
        annotated=tuple(texts.label(row["label_id"]) for row in _between(segments, footage)),
    )


def _between(segments: Sequence[dict[str, Any]], footage: Footage) -> list[dict[str, Any]]:
    """Return the annotated segments from the one that meets the Start to the one that meets the Goal; else none."""
    ordered = sorted(segments, key=lambda row: float(row["start_s"]))
    first = _meeting(ordered, footage.start_s)
    last = _meeting(ordered, footage.goal_s)
    return [] if first is None or last is None else ordered[first : last + 1]


def _meeting(ordered: Sequence[dict[str, Any]], span_s: tuple[float, float]) -> int | None:
    """Return the place of the segment that holds the middle of an interval."""
    middle = sum(span_s) / 2
    return next((i for i, row in enumerate(ordered) if row["start_s"] <= middle < row["end_s"]), None)
