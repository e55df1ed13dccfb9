"""Shots at a basket in descriptions: attempts and their outcomes (docs/decisions/corpora.md).

Patterns are words in order. Articles, inflection and a few words in between do not matter, so `enters the net` also
matches "the ball has entered the basketball net", and `_` joins words as in the paper's `jump_shot`.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from schemas.corpora import BasketballConfig
from trajpilot_core.corpora.records.annotations import normalise

ShotVerdict = Literal["made", "missed", "ambiguous"]
ARTICLES = frozenset({"the", "a", "an", "his", "her", "their"})
DENIALS = frozenset({"not", "never", "without", "almost", "nearly", "fail", "cannot", "doesnt", "didnt"})
NEAR = 3
"""Most words between two words of a pattern, and between a denial and the pattern that it denies."""
LONG = 4
"""From this length on a word of a pattern may be the end of a longer one, as ball of basketball."""
ENDINGS = ("ing", "ed", "es", "s", "e")
JOINS = frozenset({"and", "then"})


class DescribedShot(NamedTuple):
    """The outcome of a shot according to one description."""

    verdict: ShotVerdict
    text: str


def stem(word: str) -> str:
    """Return a word without its inflection: hits, hitting -> hit; bounces, bounced -> bounc; misses, miss -> mis."""
    for ending in ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 2:
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 2 and word[-1] == word[-2] else word


def words_of(text: str, subjects: Sequence[str] = ()) -> list[str]:
    """Return the normalised words of a text without articles, and without a leading subject."""
    return [word for word in normalise(text.replace("_", " "), subjects).split() if word not in ARTICLES]


def is_word(wanted: str, word: str) -> bool:
    """Return whether a word matches that of a pattern, inflected or as the end of a longer one."""
    ending = stem(wanted)
    return stem(word) == ending or (len(wanted) >= LONG and stem(word).endswith(ending))


def found_at(pattern: str, words: Sequence[str]) -> int | None:
    """Return the index at which a pattern begins in the `words_of` a text, None where it does not occur."""
    wanted = words_of(pattern)
    for first in range(len(words)):
        at: int | None = first if is_word(wanted[0], words[first]) else None
        for word in wanted[1:]:
            after = range(at + 1, min(len(words), at + 2 + NEAR)) if at is not None else range(0)
            at = next((i for i in after if is_word(word, words[i])), None)
        if at is not None:
            return first
    return None


def attempt_of(text: str, config: BasketballConfig, subjects: Sequence[str]) -> str | None:
    """Return the attempt that a description states, or None.

    Its verb opens the description, without the `subjects` in front (phrases in normal form), or a part of it after
    `and`: watching somebody shoot is no attempt.
    """
    words = words_of(text, subjects)
    starts = [i for i in range(len(words)) if i == 0 or words[i - 1] in JOINS]
    for pattern in config.attempts:
        verb, *rest = words_of(pattern)
        for start in starts:
            if stem(verb) == stem(words[start]) and (
                not rest or found_at(" ".join(rest), words[start + 1 :]) is not None
            ):
                return pattern
    return None


def verdict_of(text: str, config: BasketballConfig) -> ShotVerdict | None:
    """Return the verdict of a description on a shot, None where it has none.

    Evidence of both kinds is decided by the setting `both`; evidence of a hit that is denied, without evidence of a
    miss, is ambiguous.
    """
    words = words_of(text)
    hits = [at for pattern in config.made if (at := found_at(pattern, words)) is not None]
    denials = {at for at, word in enumerate(words) if word in DENIALS or stem(word) in DENIALS}
    is_made = any(denials.isdisjoint(range(max(0, at - NEAR), at)) for at in hits)
    is_missed = any(found_at(pattern, words) is not None for pattern in config.missed)
    if is_made and is_missed:
        return config.both
    if is_missed:
        return "missed"
    return "made" if is_made else "ambiguous" if hits else None


def outcome_of(own: str, following: str | None, config: BasketballConfig) -> DescribedShot | None:
    """Return the outcome of a shot from the descriptions that the setting `evidence` lists, in its order.

    The following one is None where there is none, or it describes another person's shot.
    """
    for which in config.evidence:
        text = own if which == "own" else following
        verdict = verdict_of(text, config) if text is not None else None
        if text is not None and verdict is not None:
            return DescribedShot(verdict, text)
    return None
