"""Shots mined from descriptions: what is an attempt, what became of it, who is tested, and that rows balance."""

import copy
import random
from collections import Counter
from pathlib import Path
from typing import cast

import pytest
from egoexo_fixture import EgoExoCorpus, RecordingSink, annotate, describe, ingest, list_sources
from hypothesis import given
from hypothesis import strategies as st
from layouts_fixture import undrawn
from test_ingest_fuzz import mutate, survivors

from schemas.config import IngestConfig
from schemas.corpora import BasketballConfig
from trajpilot_core.corpora.egoexo4d.shots import attempt_of, outcome_of, verdict_of
from trajpilot_core.corpora.records.splits import draw_test, surplus
from trajpilot_core.data.cross_fitting import FINAL
from trajpilot_core.data.imported_fits import ImportedFit, TakesHere, refuse_leaks
from trajpilot_core.data.other_runs import OtherOutput, OtherTake
from trajpilot_core.errors import InputError
from trajpilot_core.simworld.layouts.basketball import shots_of
from trajpilot_core.simworld.sample import sample_world, tiny_layout

pytestmark = pytest.mark.usefixtures("no_decoder")
RULES = BasketballConfig()
CONFIG = IngestConfig(corpus="egoexo4d_basketball", dev_min=1)
FREE = BasketballConfig(balance=False, split="released")
WORDS = ["not", "into", "the", "hoop", "shoots", "rebound", "ball", "and", "C"]
WORLD = sample_world(tiny_layout("basketball").replace(broken="none"))
TASK = {"task_id": 6001, "task_name": "Mikan Layup"}


ATTEMPTS = {
    "C shoots the ball into the hoop.": "shoot hoop",
    "C shoots a jump shot.": "shoot jump_shot",
    "C shoots a layup with his left hand.": "shoot layup",
    "C attempts a reverse layup.": "attempt layup",
    "C jumps and shoots the basketball at the hoop.": "shoot hoop",
    "shoot jump_shot": "shoot jump_shot",
    "C watches O shoot a layup.": None,
    "C looks at the hoop.": None,
    "C rebounds the missed shot near the hoop.": None,
}
VERDICTS = {
    "C shoots a jump shot into the hoop.": "made",
    "The ball enters the net.": "made",
    "The ball has entered the basketball net.": "made",
    "The basketball bounces off the rim.": "missed",
    "The ball hit the backboard.": "missed",
    "C rebounds the basketball.": "missed",
    "C misses the hoop.": "missed",
    "The ball hits the backboard and enters the net.": "made",
    "The ball does not enter the net.": "ambiguous",
    "C dribbles the ball.": None,
    "": None,
}


def test_an_attempt_is_a_verb_that_the_wearer_does_and_its_object() -> None:
    assert {text: attempt_of(text, RULES, ("c",)) for text in ATTEMPTS} == ATTEMPTS


def test_what_a_description_says_of_a_shot_and_the_rule_for_evidence_of_both_kinds_is_a_setting() -> None:
    assert {text: verdict_of(text, RULES) for text in VERDICTS} == VERDICTS
    text = "The ball hits the backboard and enters the net."
    for both in ("made", "missed", "ambiguous"):
        assert verdict_of(text, RULES.replace(both=both)) == both


def test_the_next_description_is_asked_first_and_the_shots_own_where_it_says_nothing() -> None:
    own = "C shoots the ball into the hoop."
    assert (told := outcome_of(own, "O rebounds the ball.", RULES)) is not None
    assert (told.verdict, told.text) == ("missed", "O rebounds the ball.")
    assert (told := outcome_of(own, "C walks away.", RULES)) is not None
    assert (told.verdict, told.text) == ("made", own)
    assert outcome_of(own, None, RULES.replace(evidence=("next",))) is None


@given(st.text(max_size=60) | st.lists(st.sampled_from(WORDS)).map(" ".join))
def test_no_text_breaks_the_patterns(text: str) -> None:
    assert attempt_of(text, RULES, ("c",)) in (None, *RULES.attempts)
    assert verdict_of(text, RULES) in (None, "made", "missed", "ambiguous")


numbers = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=3), st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=9
)


@given(numbers, st.integers(0, 3))
def test_the_draw_knows_no_order_and_balancing_leaves_as_many_of_each(
    shots: dict[str, tuple[int, int]], seed: int
) -> None:
    rules = RULES.replace(seed=seed)
    test = draw_test(shots, rules)
    assert test <= set(shots)
    assert draw_test(dict(reversed(shots.items())), rules) == test
    listed = [(f"{t}{i}", "made" if i < m else "missed") for t, (m, n) in shots.items() for i in range(m + n)]
    kept = [kind for name, kind in listed if name not in surplus(listed, seed)]
    assert (
        kept.count("made")
        == kept.count("missed")
        == min(sum(m for m, _ in shots.values()), sum(n for _, n in shots.values()))
    )


def test_a_draw_at_the_papers_size_comes_within_a_shot_of_its_split() -> None:
    order = random.Random(0)
    shots = {f"take{i}": (order.randint(0, 7), order.randint(0, 7)) for i in range(52)}
    test = draw_test(shots, RULES)
    sides = [[shots[t] for t in shots if (t in test) is tested] for tested in (True, False)]
    n_test, n_train = (2 * min(sum(m for m, _ in side), sum(n for _, n in side)) for side in sides)
    assert abs(n_test - 0.2 * (n_test + n_train)) <= 2
    lost = sum(m + n for m, n in shots.values()) - n_test - n_train
    assert lost <= abs(sum(m - n for m, n in shots.values())) + 2


BEFORE = [describe("C dribbles the ball.", 1.0), describe("C shoots a layup.", 2.0)]
MADE, MISSED = describe("The ball enters the net.", 3.0), describe("O rebounds the ball.", 3.0, subject="O")


class Court:
    """A corpus of three training takes and one test take with a made and a missed shot each."""

    def __init__(self, root: Path) -> None:
        self.corpus = EgoExoCorpus(root)
        for name, split in (("a", "train"), ("b", "train"), ("c", "train"), ("t", "val")):
            later = [dict(d, timestamp=d["timestamp"] + 4) for d in (*BEFORE, MISSED)]
            self.corpus.add(name, split, [annotate([*BEFORE, MADE, *later])], **TASK)

    def read(self, rules: BasketballConfig = FREE) -> RecordingSink:
        return ingest(self.corpus.write(), CONFIG.replace(basketball=rules))

    def take(self, *descriptions: object, **changes: object) -> None:
        """Replace the test take's descriptions."""
        self.corpus.val["uid-t"] = [annotate(descriptions, **changes)]


@pytest.fixture
def court(tmp_path: Path) -> Court:
    return Court(tmp_path)


def shots(sink: RecordingSink, take: str = "egoexo4d:uid-t") -> list[tuple[str | None, str | None, str | None]]:
    return [(r["role"], r["outcome"], r["evidence"]) for r in sink.rows("details") if r["take_id"] == take]


def test_each_shot_is_the_segment_before_it_and_itself_in_a_window_of_its_own(court: Court) -> None:
    sink = court.read()
    assert sink.codes() == {"NOT_WEARER": 4, "NO_ATTEMPT": 4}, "what follows a shot is evidence, not a segment"
    before = ("context", None, None)
    assert shots(sink) == [before, ("shot", "made", MADE["text"]), before, ("shot", "missed", MISSED["text"])]
    rows = [row for row in sink.rows("segments") if row["take_id"] == "egoexo4d:uid-t"]
    assert [(r["start_s"], r["end_s"], r["run"]) for r in rows[:2]] == [(0.5, 1.5, 0), (1.5, 2.5, 0)]
    assert rows[2]["run"] == 1
    windows = [row for row in sink.rows("windows") if row["take_id"] == "egoexo4d:uid-t"]
    assert [(w["horizon"], len(w["segment_ids"])) for w in windows] == [(2, 2), (2, 2)]
    assert all(r["end_s"] <= s["anchor_s"] for r, s in zip(rows[::2], rows[1::2], strict=True)), "seen before the shot"


def test_a_shot_whose_end_is_not_told_is_rejected_with_the_reason(court: Court) -> None:
    for after, code in (
        (describe("C walks away.", 3.0), "NO_OUTCOME"),
        (describe("The ball does not enter the net.", 3.0), "OUTCOME_AMBIGUOUS"),
        (describe("The man B shoots the ball into the hoop.", 3.0, subject="O"), "NO_OUTCOME"),
        (describe("The ball enters the net.", float("nan")), "NO_OUTCOME"),
    ):
        court.take(*BEFORE, after, *[dict(d, timestamp=d["timestamp"] + 4) for d in (*BEFORE, MADE)])
        sink = court.read()
        assert sink.codes()[code] == 1, after
        assert len(shots(sink)) == 2
    court.take(BEFORE[1], MADE, *[dict(d, timestamp=d["timestamp"] + 4) for d in (*BEFORE, MADE)])
    assert court.read().codes()["NO_CONTEXT"] == 1


def test_a_shot_that_stands_before_the_next_one_counts_twice_in_and_out(court: Court) -> None:
    court.take(
        BEFORE[0], describe("C shoots a jump shot into the hoop.", 2.0), describe("C attempts a layup.", 3.0), MISSED
    )
    sink = court.read(FREE.replace(evidence=("own", "next")))
    rows = [row for row in sink.rows("details") if row["take_id"] == "egoexo4d:uid-t"]
    assert [row["role"] for row in rows] == ["context", "shot", "context", "shot"]
    assert len({row["event"] for row in rows}) == 2


def test_only_basketball_takes_are_mined(court: Court) -> None:
    later = [dict(d, timestamp=d["timestamp"] + 4) for d in (*BEFORE, MISSED)]
    court.corpus.add("kitchen", "train", [annotate([*BEFORE, MADE, *later])])
    assert court.read().codes()["FILTERED"] == 6


def test_classes_are_equal_in_each_split_and_the_rest_is_rejected(court: Court) -> None:
    for index in range(4):
        court.corpus.add(f"more{index}", "train", [annotate([*BEFORE, MADE])], **TASK)
    sink = court.read(BasketballConfig(test_share=0.4))
    found = {row["what"]: row["ours"] for row in sink.rows("counts")}
    assert found["made, train"] == found["missed, train"] > 0
    assert found["made, test"] == found["missed, test"] > 0
    assert found["shots with an outcome"] == 12
    assert sink.codes()["UNBALANCED"] == 12 - 2 * (found["made, train"] + found["made, test"])
    roles = {row["take_id"]: row["split"] == "test" for row in sink.rows("takes")}
    assert set(roles.values()) == {True, False}
    paper = {row["what"]: row["paper"] for row in sink.rows("counts")}
    assert (paper["shots with an outcome"], paper["made, train"], paper["made, test"]) == (376, 147, 37)
    assert (paper["takes, train"], paper["takes, test"]) == (42, 10)


def test_mutated_descriptions_never_crash_and_rows_balance(court: Court) -> None:
    clean = copy.deepcopy((court.corpus.train, court.corpus.takes))

    def damaged(order: random.Random, seed: int) -> None:
        court.corpus.train, court.corpus.takes = copy.deepcopy(clean)
        mutate(court.corpus.train if seed % 3 else court.corpus.takes, order)

    assert survivors(60, damaged, lambda: (list_sources(court.corpus.write(), CONFIG), court.read(RULES))) > 30


def test_the_shots_of_a_simulated_world_are_found_with_their_outcomes(release: Path) -> None:
    config = CONFIG.replace(video="full", basketball=FREE)
    rows = ingest(release, config).rows("details")
    found = Counter((r["take_id"], r["outcome"]) for r in rows if r["role"] == "shot")
    true: Counter[tuple[str, str]] = Counter()
    for take in WORLD.takes:
        told = [shot for shot in shots_of(WORLD, take).values() if shot.outcome != "none" and shot.step > 0]
        true.update((f"egoexo4d:{take.uid}", "made" if s.outcome == "ambiguous" else s.outcome) for s in told)
    assert sum((found & true).values()) >= 0.9 * sum(true.values()) > 10
    assert sum((found - true).values()) <= 0.1 * sum(found.values())


class Atomic:
    """The alignment of a run on the atomic descriptions of the same release."""

    setting, named = "alignment.pretrained", "runs/atomic"

    def __init__(self, split_of: dict[str, str]) -> None:
        self.split_of = split_of

    def takes(self) -> list[OtherTake]:
        return [OtherTake(take, f"capture of {take}", split) for take, split in self.split_of.items()]


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """The annotations of a simulated court, without its videos."""
    return undrawn(tmp_path, WORLD.config).folder


def takes_of(release: Path, corpus: str, basketball: BasketballConfig) -> TakesHere:
    """Ingest the release; return its takes."""
    config = IngestConfig.model_validate(
        {"corpus": corpus, "dev_min": 1, "video": "full", "basketball": basketball.model_dump()}
    )
    rows = ingest(release, config).rows("takes")
    return TakesHere(*({row["take_id"]: row[column] for row in rows} for column in ("split", "capture")))


def test_an_e_tau_that_was_fitted_on_takes_of_drawn_test_shots_is_refused_by_name(release: Path) -> None:
    atomic = takes_of(release, "egoexo4d_atomic", BasketballConfig())
    fitted = frozenset(atomic.train)
    fits = {FINAL.name: ImportedFit(fitted, frozenset())}
    other = cast(OtherOutput, Atomic(dict(atomic.split_of)))
    drawn = takes_of(release, "egoexo4d_basketball", BasketballConfig(seed=1))
    seen = sorted(take for take, split in drawn.split_of.items() if split == "test" and take in fitted)
    assert seen, "the draw asks for takes of the released training split"
    with pytest.raises(InputError, match="has seen data that this run holds out") as refused:
        refuse_leaks(other, fits, [FINAL], drawn, {})
    assert f"{seen[0]} (test here)" in str(refused.value)
    dev = {take for take, split in atomic.split_of.items() if split == "dev"}
    released = takes_of(release, "egoexo4d_basketball", BasketballConfig(split="released", balance=False))
    others = {take: "train" if split == "dev" else split for take, split in released.split_of.items()}
    inherited = {take: "dev" if take in dev else split for take, split in others.items()}
    refuse_leaks(other, fits, [FINAL], released._replace(split_of=inherited), {})
