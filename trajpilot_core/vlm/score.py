"""Answers of vision-language models -> predictions of their rows, how they could be read, and the recogniser's table.

Source: paper, appendix on vision-language baselines; docs/decisions/vlm.md.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from schemas.results import Prediction
from schemas.vlm import FAILED, EndpointScore, VlmAnswer, VlmCount, tuned_name
from trajpilot_core.vlm.parsing import FAILED as UNREAD
from trajpilot_core.vlm.parsing import Parsed, parse_label, parse_sequence
from trajpilot_core.vlm.projection import Projection

STUB_ROW, TUNED_ROW, UNTUNED_ROW = "vlm_stub", "qwen_sft_llm", "qwen_llm_untuned"
"""Variants of all made-up answers about whole windows, and of answers that rest on recognised segments."""
GOAL_FREE = ("anticipate", "continue")
PREFIX = "anticipation_"
ENDS = ("fill", "continue")


class Truth(NamedTuple):
    """What the windows hold."""

    label_of: Mapping[str, str]
    """Segment -> label id."""
    segments_of: Mapping[str, Sequence[str]]
    """Window -> its segments."""


class ReadAnswer(NamedTuple):
    """One answer, read and looked up."""

    answer: VlmAnswer
    parsed: Parsed


def read_answers(answers: Sequence[VlmAnswer], bank: Projection) -> list[ReadAnswer]:
    """Parse every answer and look up its labels in the bank."""
    found = [
        ReadAnswer(one, parse_label(one.text) if one.question == "segment" else parse_sequence(one.text, one.horizon))
        for one in answers
    ]
    bank.look_up(label for one in found for label in one.parsed.labels if label is not None)
    return found


def recogniser(found: Sequence[ReadAnswer]) -> str:
    """Return the tuned weights that answered about every segment, named by their digest; empty: an untuned model did.

    The request has named them, and so has whoever answered.
    """
    held = [one.answer for one in found if one.answer.question == "segment"]
    named = {tuned_name(one.adapter) if one.answered_by.endswith(one.adapter) else "" for one in held}
    return named.pop() if len(named) == 1 else ""


def row_of(answer: VlmAnswer, tuned: str) -> str:
    """Return the row that an answer counts for where these weights recognised the segments (`recogniser`)."""
    return UNTUNED_ROW if answer.row == TUNED_ROW and not tuned else answer.row


def variant_of(answer: VlmAnswer, tuned: str) -> str:
    """Return the row of the tables that an answer counts for; made-up ones have a row of their own."""
    goal_free = PREFIX if answer.question in GOAL_FREE else ""
    return f"{goal_free}{STUB_ROW if answer.is_stub else row_of(answer, tuned)}"


def predictions_of_answers(
    found: Sequence[ReadAnswer], truth: Truth, bank: Projection, seeds: Sequence[int]
) -> Iterator[Prediction]:
    """Yield the predictions of every window, for every seed alike.

    An answer that could not be read, and a place that was left open, has no labels: wrong, and never left out. Where
    endpoints were recognised one by one, they stand at the ends whatever the text model wrote there; an end without an
    answer is wrong, too.
    """
    recognised = {one.answer.unit: one.parsed for one in found if one.answer.question == "segment"}
    tuned = recogniser(found)
    for one in found:
        answer = one.answer
        if answer.question == "segment" or (answer.is_stub and answer.row != "qwen_zs"):
            continue
        segments = truth.segments_of[answer.unit]
        labels: list[str | None] = list(one.parsed.labels) or [None] * answer.horizon
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


def counts_of(found: Sequence[ReadAnswer], bank: Projection) -> list[VlmCount]:
    """Return how the answers could be read, for each row and horizon; single segments have horizon 1."""
    groups: dict[tuple[str, int, bool], list[ReadAnswer]] = defaultdict(list)
    tuned = recogniser(found)
    for one in found:
        is_segment = one.answer.question == "segment"
        name = f"{row_of(one.answer, tuned)}: segments" if is_segment else variant_of(one.answer, tuned)
        groups[name, one.answer.horizon, one.answer.is_stub].append(one)
    counted = []
    for (variant, horizon, is_stub), held in sorted(groups.items()):
        labels = [label for one in held for label in one.parsed.labels]
        exact = sum(label is not None and bank[label].is_exact for label in labels)
        blank = sum(label is None for label in labels)
        counted.append(
            VlmCount(
                variant=variant,
                horizon=horizon,
                n_answers=len(held),
                n_failed=sum(one.parsed.is_failed for one in held),
                n_repaired=sum(one.parsed.is_repaired for one in held),
                n_labels=len(labels),
                n_exact=exact,
                n_projected=len(labels) - exact - blank,
                n_blank=blank,
                is_stub=is_stub,
            )
        )
    return counted


def endpoint_scores(found: Sequence[ReadAnswer], truth: Truth, bank: Projection) -> list[EndpointScore]:
    """Return the table of the recogniser over unique endpoints; nothing where none was asked.

    As the paper's: R@1, R@5 after projection, how many texts were labels of the bank, and how many were projected; and
    how many could not be read, which count as wrong.
    """
    held = [one for one in found if one.answer.question == "segment"]
    if not held:
        return []
    read = [(one.answer.unit, bank[one.parsed.labels[0] or ""]) for one in held if not one.parsed.is_failed]
    counts = {
        "segments": len(held),
        "R@1": sum(ranked.ids[0] == truth.label_of[unit] for unit, ranked in read),
        "R@5": sum(truth.label_of[unit] in ranked.ids for unit, ranked in read),
        "exact_projection": sum(ranked.is_exact for _, ranked in read),
        "fallback_projection": sum(not ranked.is_exact for _, ranked in read),
        "failed": len(held) - len(read),
    }
    of_all = {"adapter": recogniser(found), "is_stub": any(one.answer.is_stub for one in held)}
    return [
        EndpointScore.model_validate({"row": row, "count": count, "percentage": 100 * count / len(held), **of_all})
        for row, count in counts.items()
    ]
