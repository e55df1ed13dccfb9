"""Answers of vision-language models -> predictions of their rows, counts of parsing, and the recogniser's table.

Source: paper, appendix on vision-language baselines; docs/decisions/vlm.md.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from schemas.results import Prediction
from schemas.vlm import FAILED, EndpointScore, VlmAnswer, VlmCount, tuned_name
from trajpilot_core.vlm.parsing import FAILED as UNREAD
from trajpilot_core.vlm.parsing import Parsed, Projection, parse_label, parse_sequence

TUNED_ROW, UNTUNED_ROW = "qwen_sft_llm", "qwen_llm_untuned"
"""Variants of answers that use recognised segments."""
GOAL_FREE = ("anticipate", "continue")
PREFIX = "anticipation_"
ENDS = ("fill", "continue")


class Truth(NamedTuple):
    """The contents of the windows."""

    label_of: Mapping[str, str]
    """Segment -> label id."""
    segments_of: Mapping[str, Sequence[str]]
    """Window -> its segments."""


class ReadAnswer(NamedTuple):
    """One parsed answer."""

    answer: VlmAnswer
    parsed: Parsed


def read_answers(answers: Sequence[VlmAnswer], bank: Projection) -> list[ReadAnswer]:
    """Parse every answer and look up its labels in the bank."""
    parsed = [
        ReadAnswer(row, parse_label(row.text) if row.question == "segment" else parse_sequence(row.text, row.horizon))
        for row in answers
    ]
    bank.look_up(label for read in parsed for label in read.parsed.labels if label is not None)
    return parsed


def recogniser(answers: Sequence[ReadAnswer]) -> str:
    """Return the digest of the tuned weights that answered for every segment; empty: an untuned model did.

    Both the request and the answer must name them.
    """
    segments = [row.answer for row in answers if row.answer.question == "segment"]
    names = {tuned_name(row.adapter) if row.answered_by.endswith(row.adapter) else "" for row in segments}
    return names.pop() if len(names) == 1 else ""


def variant_of(answer: VlmAnswer, tuned: str) -> str:
    """Return the row that an answer counts for, given the weights of `recogniser`; segments have a separate one."""
    row = UNTUNED_ROW if answer.row == TUNED_ROW and not tuned else answer.row
    if answer.question == "segment":
        return f"{row}: segments"
    return f"{PREFIX if answer.question in GOAL_FREE else ''}{row}"


def predictions_of_answers(
    answers: Sequence[ReadAnswer], truth: Truth, bank: Projection, seeds: Sequence[int]
) -> Iterator[Prediction]:
    """Yield the predictions of every window, the same for every seed.

    Answers that could not be parsed and open places have no labels: they count as wrong and are never left out. If
    endpoints were recognised separately, they replace the ends that the text model wrote; a missing end is wrong, too.
    """
    recognised = {row.answer.unit: row.parsed for row in answers if row.answer.question == "segment"}
    tuned = recogniser(answers)
    for answer, parsed in answers:
        if answer.question == "segment":
            continue
        segments = truth.segments_of[answer.unit]
        labels: list[str | None] = list(parsed.labels) or [None] * answer.horizon
        if answer.question in ENDS:
            for at in (0, -1) if answer.question == "fill" else (0,):
                labels[at] = next(iter(recognised.get(segments[at], UNREAD).labels), None)
        for seed in seeds:
            for position, (segment, label) in enumerate(zip(segments, labels, strict=True)):
                ranked = None if label is None else bank[label]
                yield Prediction(
                    window_id=answer.unit,
                    take_id=answer.take_id,
                    horizon=answer.horizon,
                    variant=variant_of(answer, tuned),
                    seed=seed,
                    position=position,
                    label_id=truth.label_of[segment],
                    decoded_id=FAILED if ranked is None else ranked.ids[0],
                    top_ids=() if ranked is None else ranked.ids,
                    top_scores=() if ranked is None else ranked.scores,
                    gate=None,
                    opened=None,
                    candidate=None,
                )


def counts_of(answers: Sequence[ReadAnswer], bank: Projection) -> list[VlmCount]:
    """Return how well answers could be parsed, for each row and horizon; single segments have horizon 1."""
    groups: dict[tuple[str, int], list[ReadAnswer]] = defaultdict(list)
    tuned = recogniser(answers)
    for row in answers:
        groups[variant_of(row.answer, tuned), row.answer.horizon].append(row)
    counts = []
    for (variant, horizon), rows in sorted(groups.items()):
        labels = [label for row in rows for label in row.parsed.labels]
        exact = sum(label is not None and bank[label].is_exact for label in labels)
        blank = sum(label is None for label in labels)
        counts.append(
            VlmCount(
                variant=variant,
                horizon=horizon,
                n_answers=len(rows),
                n_failed=sum(row.parsed.is_failed for row in rows),
                n_repaired=sum(row.parsed.is_repaired for row in rows),
                n_labels=len(labels),
                n_exact=exact,
                n_projected=len(labels) - exact - blank,
                n_blank=blank,
            )
        )
    return counts


def endpoint_scores(answers: Sequence[ReadAnswer], truth: Truth, bank: Projection) -> list[EndpointScore]:
    """Return the table of the recogniser over unique endpoints; empty if there were no requests for segments.

    As in the paper: R@1, R@5 after projection, how many texts were labels of the bank, and how many were projected; in
    addition, how many could not be parsed, which count as wrong.
    """
    rows = [row for row in answers if row.answer.question == "segment"]
    if not rows:
        return []
    read = [(row.answer.unit, bank[row.parsed.labels[0] or ""]) for row in rows if not row.parsed.is_failed]
    counts = {
        "segments": len(rows),
        "R@1": sum(ranked.ids[0] == truth.label_of[unit] for unit, ranked in read),
        "R@5": sum(truth.label_of[unit] in ranked.ids for unit, ranked in read),
        "exact_projection": sum(ranked.is_exact for _, ranked in read),
        "fallback_projection": sum(not ranked.is_exact for _, ranked in read),
        "failed": len(rows) - len(read),
    }
    by = {"adapter": recogniser(answers)}
    return [
        EndpointScore.model_validate({"row": name, "count": count, "percentage": 100 * count / len(rows), **by})
        for name, count in counts.items()
    ]
