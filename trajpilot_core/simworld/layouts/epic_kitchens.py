"""EPIC-KITCHENS-100: one row per action with verb and noun classes, class files, lists, and videos by participant.

Habits of the real files that are kept: frame numbers that are 60 x seconds (50 x for PXX_1YY) whatever the video's
rate, empty narration times, rows in the order of their ids as texts, actions that overlap, and one in each video that
starts before 1.0 s. A label is verb and noun. There are no trajectories.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from trajpilot_core.corpora.epic_kitchens.files import COLUMNS
from trajpilot_core.simworld.faults import TakeContents
from trajpilot_core.simworld.layouts.annotate import thing_of, verbs_of
from trajpilot_core.simworld.layouts.base import (
    VIDEO_ONLY,
    Layout,
    NamedFiles,
    Time,
    annotated_in,
    break_spans,
    hostile,
    spans_of,
)
from trajpilot_core.simworld.world.procedure import PLACES
from trajpilot_core.simworld.world.truth import TakeTruth, World, stream

DECIMALS = 2
OVERLAP_SHARE, OVERLAP_S = 0.25, 0.2
"""How often an action ends after the next one has begun, and by how much."""
EXTENSION_EVERY = 3
"""Every third training video of a participant is a PXX_1YY."""
RATE, EXTENSION_RATE = 60, 50
"""Frame numbers per second."""
TAIL = 0.2
"""Share of the training rows that the tail classes hold together, at most."""
EpicRow = list[str | int]


def participant(world: World, take: TakeTruth) -> str:
    """Return PXX."""
    return f"P{world.captures[take.capture].operator + 1:02d}"


def is_extension(world: World, take: TakeTruth) -> bool:
    """Whether the video's id has three digits after the participant."""
    return take.split == "train" and number_of(world, take) % EXTENSION_EVERY == 0


def number_of(world: World, take: TakeTruth) -> int:
    """Return the number of the take among those of its participant, from 1."""
    operator = world.captures[take.capture].operator
    of_operator = [t.index for t in world.takes if world.captures[t.capture].operator == operator]
    return 1 + of_operator.index(take.index)


def video_id(world: World, take: TakeTruth) -> str:
    """Return PXX_YY, or PXX_1YY for an extension."""
    number = number_of(world, take) + (100 if is_extension(world, take) else 0)
    return hostile(take, f"{participant(world, take)}_{number:02d}")


def nouns_of(world: World) -> list[str]:
    """Return the nouns by class id."""
    return sorted({thing_of(label) for label in world.labels})


def clock_text(seconds: Time, decimals: int) -> str:
    """Return HH:MM:SS with decimals; what is no time stays as it is."""
    if isinstance(seconds, str) or math.isnan(seconds):
        return str(seconds)
    sign, whole = ("-" if seconds < 0 else ""), abs(seconds)
    minutes, rest = divmod(round(whole, decimals), 60.0)
    return f"{sign}{int(minutes // 60):02d}:{int(minutes % 60):02d}:{rest:0{3 + decimals}.{decimals}f}"


def frame_number(seconds: Time, rate: int) -> int:
    """Return the number of the released picture, from 1."""
    if isinstance(seconds, str) or math.isnan(seconds):
        return 1
    return max(1, math.floor(round(seconds * rate, 6)))


def rows_of(world: World, take: TakeTruth) -> list[EpicRow]:
    """Return the rows of one video."""
    rng = stream(world.config, "epic", take.index)
    whole = spans_of(take, DECIMALS)
    late = [OVERLAP_S if rng.random() < OVERLAP_SHARE else 0.0 for _ in whole[1:]] + [0.0]
    later = [replace(s, end=round(float(s.end) + by, DECIMALS)) if by else s for s, by in zip(whole, late, strict=True)]
    spans = break_spans(world, take, later)
    rate = EXTENSION_RATE if is_extension(world, take) else RATE
    nouns, video, rows = nouns_of(world), video_id(world, take), []
    for k, (span, truth) in enumerate(zip(spans, take.segments, strict=True)):
        label = world.labels[span.label]
        verb, noun = verbs_of(label.primitive)[int(rng.random() < 0.3)].replace(" ", "-"), thing_of(label)
        second = PLACES[label.place] if rng.random() < 0.2 else None
        narrated = "" if rng.random() < 0.05 or (k == 2 and take.fault is None) else clock_text(truth.time_s, 3)
        row: EpicRow = [
            f"{video}_{k}",
            participant(world, take),
            video,
            narrated,
            clock_text(span.start, DECIMALS),
            clock_text(span.end, DECIMALS),
            frame_number(span.start, rate),
            frame_number(span.end, rate),
            f"{verb.replace('-', ' ')} {noun}" + (f" at {second}" if second else ""),
            verb,
            label.primitive,
            noun,
            nouns.index(noun),
            str([noun]),
            str([nouns.index(noun)]),
        ]
        if span.is_nameless:
            row[9:] = ["", "", "", "", "[]", "[]"]
        rows.append(row[:6] if span.is_malformed else row)
    return rows


def table(head: Iterable[str], rows: Iterable[Iterable[object]]) -> bytes:
    """Return a csv file."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue().encode()


def tail_of(counts: Counter[int], n_classes: int) -> list[int]:
    """Return the rarest classes that together hold at most `TAIL` of the rows, unseen ones included."""
    tail, n_counted, total = [], 0, sum(counts.values())
    for number in sorted(range(n_classes), key=lambda c: (counts[c], c)):
        n_counted += counts[number]
        if n_counted > TAIL * total:
            break
        tail.append(number)
    return sorted(tail)


def take_files(world: World, take: TakeTruth, content: TakeContents) -> NamedFiles:
    """Yield the video of a take."""
    if content.video is not None and take.fault != "take_unknown":
        yield f"{participant(world, take)}/videos/{video_id(world, take)}.MP4", content.video


def rest(world: World) -> NamedFiles:
    """Yield annotations, classes, lists and video facts; tails go by the unbroken training takes."""
    config, nouns, head = world.config, nouns_of(world), ("id", "key", "instances", "category")
    rows: dict[str, list[EpicRow]] = {}
    persons: dict[str, set[str]] = {}
    for split, name in (("train", "train"), ("val", "validation")):
        takes = [take for take in world.takes if annotated_in(take, split)]
        rows[split] = sorted((row for take in takes for row in rows_of(world, take)), key=lambda row: str(row[0]))
        persons[split] = {participant(world, take) for take in takes}
        yield f"EPIC_100_{name}.csv", table(COLUMNS, rows[split])
    verbs = [[verb.replace(" ", "-") for verb in verbs_of(primitive)] for primitive in range(config.primitives)]
    for kind, listed in (("verb", verbs), ("noun", [[noun.replace(" ", "-")] for noun in nouns])):
        classes = [[i, variants[0], str(variants), "simulated"] for i, variants in enumerate(listed)]
        yield f"EPIC_100_{kind}_classes.csv", table(head, classes)
    seen = [world.labels[s.label] for t in world.takes if t.fault is None and t.split == "train" for s in t.segments]
    tail_verbs = tail_of(Counter(label.primitive for label in seen), config.primitives)
    tail_nouns = tail_of(Counter(nouns.index(thing_of(label)) for label in seen), len(nouns))
    yield "EPIC_100_tail_verbs.csv", table(["verb"], [[v] for v in tail_verbs])
    yield "EPIC_100_tail_nouns.csv", table(["noun"], [[n] for n in tail_nouns])
    unseen = [[name] for name in sorted(persons["val"] - persons["train"])]
    yield "EPIC_100_unseen_participant_ids_validation.csv", table(["participant_id"], unseen)
    missing = [[i, row[0]] for i, row in enumerate(row for row in rows["val"] if row[3] == "")]
    yield "EPIC_100_validation_missing_timestamp_narrations.csv", table(["", "narration_id"], missing)
    filmed = [t for t in world.takes if t.fault not in ("take_unknown", "name_parent", "name_absolute")]
    side = f"{config.size_px}x{config.size_px}"
    videos = [[video_id(world, t), round(world.take_duration_s(t), 6), float(config.fps), side] for t in filmed]
    yield "EPIC_100_video_info.csv", table(("video_id", "duration", "fps", "resolution"), sorted(videos))


TINY = {"train_takes": 9, "test_takes": 5, "operators": 6, "broken_segments": 7, "primitives": 12, "positions": 6}
"""Broken takes are longer: a video is a capture, so dev draws broken ones. There are more verbs and nouns than the five
answers that a recall counts: 9 and 12, in 24 actions."""
NO_STEPS = "a segment is what is seen before an action, and no step of the world"
LAYOUT = Layout(take_files, rest, VIDEO_ONLY, NO_STEPS, tiny=TINY, released_name=video_id, has_unseen_wearers=True)
