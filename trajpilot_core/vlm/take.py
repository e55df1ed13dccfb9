"""The requests of one take, in the order in which they can be sent, and their answers.

A fill uses recognised endpoints, so it can only be sent once those are answered.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from schemas.vlm import VlmAnswer, VlmReply, VlmRequest, VlmRow
from trajpilot_core.arrays import Image
from trajpilot_core.vlm.clients import Client
from trajpilot_core.vlm.linter import check_request
from trajpilot_core.vlm.material import AskedWindow
from trajpilot_core.vlm.parsing import Projection, parse_label
from trajpilot_core.vlm.payload import AnswerFolder
from trajpilot_core.vlm.requests import Asking, fill_request, segment_request, window_request


@dataclass(frozen=True)
class TakeToAsk:
    """One take and its windows that requests are made for."""

    take_id: str
    windows: Sequence[AskedWindow]
    true_labels: Mapping[str, str]
    """Segment -> text of its label: for the linter only."""
    frames_of: Mapping[str, tuple[str, ...]]
    """Segment -> digests of its frames."""


@dataclass(frozen=True)
class AskedUnit:
    """One request for one window or segment."""

    row: VlmRow
    unit: str
    request: VlmRequest


def n_questions(windows: Sequence[AskedWindow], rows: Sequence[VlmRow], *, anticipates: bool) -> int:
    """Return the number of requests of a take."""
    per_window = 2 if anticipates else 1
    return per_window * len(windows) * len(rows) + (len(endpoints(windows)) if "qwen_sft_llm" in rows else 0)


def endpoints(windows: Sequence[AskedWindow]) -> list[str]:
    """Return the first and last segments of windows, each once, sorted."""
    return sorted({window.segment_ids[at] for window in windows for at in (0, -1)})


def first_round(asking: Asking, take: TakeToAsk) -> list[AskedUnit]:
    """Return the requests of whole windows and of single segments. Raises LeakError: one reveals its own answer."""
    cfg, units = asking.config, []
    scenario = asking.material.scenario_of[take.take_id]
    if "qwen_zs" in cfg.rows:
        for window in shown(take):
            start, goal = (take.frames_of[window.segment_ids[at]] for at in (0, -1))
            for seen in (goal, None) if cfg.anticipates else (goal,):
                request = window_request(asking, window.horizon, start, seen)
                _lint(asking, take, request, window.segment_ids, ())
                units.append(AskedUnit("qwen_zs", window.window_id, request))
    if "qwen_sft_llm" in cfg.rows:
        for segment in endpoints(take.windows):
            if segment in take.frames_of:
                request = segment_request(asking, segment, scenario, take.frames_of[segment])
                _lint(asking, take, request, (segment,), ())
                units.append(AskedUnit("qwen_sft_llm", segment, request))
    return units


def shown(take: TakeToAsk) -> list[AskedWindow]:
    """Return the windows whose Start and Goal could be decoded."""
    return [window for window in take.windows if take.frames_of.keys() >= set(endpoints([window]))]


def second_round(asking: Asking, take: TakeToAsk, recognised: Mapping[str, str | None]) -> list[AskedUnit]:
    """Return the fills, given segment -> recognised label or None. Raises LeakError: one reveals its own answer."""
    cfg, units = asking.config, []
    scenario = asking.material.scenario_of[take.take_id]
    for window in shown(take):
        start, goal = (recognised[window.segment_ids[at]] for at in (0, -1))
        for has_goal in (True, False) if cfg.anticipates else (True,):
            request = fill_request(asking, window, scenario, start, goal, has_goal=has_goal)
            given = [label for label in (start, goal if has_goal else None) if label]
            _lint(asking, take, request, window.segment_ids, given)
            units.append(AskedUnit("qwen_sft_llm", window.window_id, request))
    return units


def _lint(asking: Asking, take: TakeToAsk, request: VlmRequest, segments: Sequence[str], given: Sequence[str]) -> None:
    hidden = [take.true_labels[segment] for segment in segments]
    check_request(request, hidden, given, asking.material)


def recognised(units: Sequence[AskedUnit], replies: Mapping[str, VlmReply], bank: Projection) -> dict[str, str | None]:
    """Return segment -> text of its recognised label of the bank; None if the answer could not be parsed."""
    written = {
        unit.unit: parse_label(replies[unit.request.digest()].text).labels
        for unit in units
        if unit.request.question == "segment"
    }
    bank.look_up(labels[0] or "" for labels in written.values() if labels)
    return {unit: bank.text_of[bank[labels[0] or ""].ids[0]] if labels else None for unit, labels in written.items()}


def replied(
    units: Sequence[AskedUnit], images: Mapping[str, Image], answers: AnswerFolder, client: Client
) -> dict[str, VlmReply]:
    """Return digest -> answer; only requests without one are sent, each once. Raises InputError: no answer."""
    requests = {unit.request.digest(): unit.request for unit in units}
    missing = answers.missing(requests)
    for reply in client([requests[digest] for digest in missing], images) if missing else ():
        answers.put(reply)
    replies = {digest: answers.get(digest) for digest in requests}
    return {digest: reply for digest, reply in replies.items() if reply is not None}


def rows_of_answers(take_id: str, units: Sequence[AskedUnit], replies: Mapping[str, VlmReply]) -> Iterator[VlmAnswer]:
    """Yield the rows of the stage."""
    for unit in units:
        reply = replies[unit.request.digest()]
        yield VlmAnswer(
            take_id=take_id,
            row=unit.row,
            question=unit.request.question,
            unit=unit.unit,
            horizon=unit.request.items,
            request=reply.request,
            adapter=unit.request.adapter or "",
            text=reply.text,
            answered_by=reply.answered_by,
        )
