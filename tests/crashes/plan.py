"""Which operations a soak ends a process at: the telling ones of every stage first, then others by chance."""

import random
from dataclasses import dataclass, replace

from countdown import KINDS

from trajpilot_core.stages import STAGES

MOMENTS = dict.fromkeys(("write", "checkpoint"), ("before", "torn", "after"))
EITHER = ("before", "after")
WIDE_EVERY = 4
"""Every so many rounds work is done by several processes side by side."""
Operations = dict[str, dict[str, list[str]]]
"""Stage -> kind -> paths of the operations of an undisturbed run, in order."""


@dataclass(frozen=True)
class Kill:
    stage: str
    kind: str
    at: int
    """Counted from 1 among the operations of this kind in this stage."""
    moment: str
    victim: str = "self"
    why: str = ""


@dataclass(frozen=True)
class Round:
    """One root: the pipeline from its beginning to its end, with a kill in every stage on the way."""

    number: int
    workers: int
    kills: tuple[Kill, ...]


def rounds(seed: int, n_kills: int, counted: dict[int, Operations]) -> list[Round]:
    """Lay out `n_kills` kills by seed; `counted` is number of workers -> the operations of a run with so many."""
    chance = random.Random(seed)
    told: dict[int, dict[str, list[Kill]]] = {
        workers: {stage: telling(stage, kinds) for stage, kinds in found.items()} for workers, found in counted.items()
    }
    for of_stage in told.values():
        for kills in of_stage.values():
            chance.shuffle(kills)
    found: list[Round] = []
    done: set[tuple[str, str, str, str]] = set()
    left = n_kills
    while left > 0:
        number = len(found)
        workers = max(counted) if number % WIDE_EVERY == WIDE_EVERY - 1 else min(counted)
        drawn = set(chance.sample(list(STAGES), min(left, len(STAGES))))
        kills = []
        for stage in (stage for stage in STAGES if stage in drawn):
            waiting = [kill for kill in told[workers][stage] if what(kill) not in done]
            kill = waiting[0] if waiting else any_kill(stage, counted[workers][stage], chance)
            done.add(what(kill))
            victim = "self" if workers == 1 else chance.choice(("self", "leader", "group"))
            kills.append(replace(kill, victim=victim))
        found.append(Round(number, workers, tuple(kills)))
        left -= len(kills)
    return found


def what(kill: Kill) -> tuple[str, str, str, str]:
    """Return what a kill tells, whatever its number: with more processes the same operation has another."""
    return kill.stage, kill.kind, kill.moment, kill.why


def telling(stage: str, kinds: dict[str, list[str]]) -> list[Kill]:
    """Return the kills that every stage must survive: first, last, and around each commit."""
    found = []
    for kind in KINDS:
        n = len(kinds.get(kind, []))
        if n:
            moments = MOMENTS.get(kind, EITHER)
            found += [Kill(stage, kind, 1, moments[0], why="first"), Kill(stage, kind, n, moments[-1], why="last")]
            found += [Kill(stage, kind, n, "torn", why="last")] if "torn" in moments else []
    renames = kinds.get("rename", [])
    for name, why in (("manifest.json", "commit of the stage"), ("current", "pointer"), ("record.json", "shard")):
        at = [n for n, path in enumerate(renames, start=1) if path.rsplit("/", 1)[-1] == name]
        if at:
            middle = at[len(at) // 2]
            found += [Kill(stage, "rename", middle, moment, why=f"{moment} the {why}") for moment in EITHER]
    return found


def any_kill(stage: str, kinds: dict[str, list[str]], chance: random.Random) -> Kill:
    """Draw a kill: the kind first, so that rare ones are hit as often."""
    kind = chance.choice([kind for kind in KINDS if kinds.get(kind)])
    at = chance.randint(1, len(kinds[kind]))
    return Kill(stage, kind, at, chance.choice(MOMENTS.get(kind, EITHER)), why="chance")
