"""Verdicts that can be wrong: rows that have not learned, scorers at chance, exact answers, leaks that are seen."""

import re
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from claims_fixture import AMONG_FIVE, CFG, INFORMED, Planted, evidence_of

from schemas.claims import BASE, LIMITS
from schemas.results import Ceiling
from schemas.training import ATTENTION_VARIANTS
from trajpilot_core.evaluation.ceiling import ERRORS, paired
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.ranking import GATE, judge_ranking, over_seeds
from trajpilot_core.studies.claims.evidence.shares import has_own_ceiling, reached_share, rows_behind
from trajpilot_core.studies.claims.evidence.statistics import estimate
from trajpilot_core.studies.claims.evidence.tables import METRICS, Evidence, Origin, SeedScores
from trajpilot_core.studies.claims.pages.ceilings import ceiling_bounds
from trajpilot_core.studies.claims.pages.judged import summary_table
from trajpilot_core.studies.claims.pages.power import (
    leak_table,
    shares_table,
    words_table,
)
from trajpilot_core.studies.claims.verdicts.families import judge_plus
from trajpilot_core.studies.claims.verdicts.judge import Judged, JudgedStatement, judge_claims
from trajpilot_core.studies.claims.verdicts.leak_power import leaked_windows, smallest_leak
from trajpilot_core.studies.claims.verdicts.words import EXACT, MEANINGS, ORDER, ExactWord, Verdict

QUIET = {"noise": 1.0, "n_takes": 12, "widening": 0.0}


def in_base(folder: Path, levels: dict[str, float], **changes: object) -> dict[str, Judged]:
    """Judge claims in a world whose rows stand at other levels."""
    planted = Planted(**{**QUIET, **changes, "levels": {**Planted().levels, BASE: INFORMED | levels}})
    return {row.claim.key: row for row in judge_claims(evidence_of(folder, planted), CFG)}


def first(rows: dict[str, Judged], key: str) -> JudgedStatement:
    return rows[key].findings[0]


def test_a_share_is_the_way_from_majority_to_the_ceiling(tmp_path: Path) -> None:
    """No-Traj 25, Majority 5, ceiling 33: 20 of 28."""
    evidence = evidence_of(tmp_path, Planted(**QUIET))
    found = reached_share(evidence, BASE, "no_traj", CFG, LIMITS)
    assert found.figure is not None
    assert found.figure.value == pytest.approx(20 / 28, abs=0.02)
    assert (found.asked, found.is_reached) == (LIMITS.no_traj_share, True)
    assert reached_share(evidence, BASE, "oracle", CFG, LIMITS).asked == LIMITS.oracle_share


@pytest.mark.parametrize(
    ("row", "behind"),
    [
        ("no_traj", ("no_traj",)),
        ("oracle", ("oracle",)),
        ("shuffled", ("oracle",)),
        ("scorer", ("oracle", "no_traj")),
        ("scorer_plus", ("scorer_plus",)),
        ("majority", ()),
    ],
)
def test_a_row_is_asked_for_the_shares_of_the_models_behind_it(row: str, behind: tuple[str, ...]) -> None:
    assert rows_behind(row) == behind


def test_a_row_below_its_share_makes_the_claim_underpowered_and_figures_stay(tmp_path: Path) -> None:
    """The planted fault: Oracle above No-Traj, both at a fraction of what their world allows."""
    rows = in_base(tmp_path, {"no_traj": 9.0, "oracle": 20.0})
    found = first(rows, "oracle")
    assert (found.verdict, found.shown, found.exact.word) == ("underpowered", "holds", "yes")
    assert found.headline is not None
    assert found.headline.value == pytest.approx(11, abs=0.5)
    assert re.search(r"Oracle 2\d % of 60 %, No-Traj 1\d % of 50 %", found.note)
    assert found.note.endswith("by the intervals: holds")
    evidence = evidence_of(tmp_path, Planted())
    assert "underpowered (intervals: holds)" in summary_table(tuple(rows.values()), evidence, CFG).markdown()


@pytest.mark.parametrize(("share", "verdict"), [(0.45, "underpowered"), (0.55, "holds")])
def test_the_asked_share_decides(tmp_path: Path, share: float, verdict: str) -> None:
    levels = {"no_traj": 5 + 28 * share, "endpoint_traj": 5 + 40 * share}
    assert first(in_base(tmp_path, levels), "endpoint").verdict == verdict


@pytest.mark.parametrize(("oracle", "verdict"), [(0.70, "holds"), (0.90, "confounded by training")])
def test_shares_far_apart_confound_two_rows(tmp_path: Path, oracle: float, verdict: str) -> None:
    """No-Traj has reached 0.6 of its ceiling."""
    found = first(in_base(tmp_path, {"no_traj": 5 + 28 * 0.6, "oracle": 5 + 70 * oracle}), "oracle")
    assert (found.verdict, found.shown) == (verdict, "holds")
    assert ("shares over 15 points apart: Oracle 90 % and No-Traj 60 %" in found.note) == (verdict != "holds")


def test_a_claim_that_fails_by_rows_that_have_not_learned_is_underpowered_and_says_fails(tmp_path: Path) -> None:
    found = first(in_base(tmp_path, {"oracle": 15.0}), "oracle")
    assert (found.verdict, found.shown, found.exact.word) == ("underpowered", "fails", "yes")


def test_without_a_ceiling_in_the_tables_a_share_is_unknown_and_nothing_holds(tmp_path: Path) -> None:
    levels = {row: level for row, level in INFORMED.items() if row != "ceiling/oracle"}
    evidence = evidence_of(tmp_path, Planted(levels={**Planted().levels, BASE: levels}, **QUIET))
    rows = {row.claim.key: row for row in judge_claims(evidence, CFG)}
    found = first(rows, "oracle")
    assert (found.verdict, found.exact.word) == ("not run", "not run")
    assert "share of the ceiling unknown: no row ceiling/oracle in base" in found.note
    assert first(rows, "endpoint").verdict == "holds"


def test_what_scorer_plus_must_beat_is_withheld_where_a_rival_has_not_learned(tmp_path: Path) -> None:
    planted = Planted(**QUIET, levels={**Planted().levels, BASE: INFORMED | {"endpoint_traj": 12.0}})
    found = {(c.reference, c.metric): c for c in judge_plus(evidence_of(tmp_path, planted), CFG)}
    assert found["endpoint_traj_viterbi", "m1"].verdict == "underpowered"
    assert found["endpoint_traj_viterbi", "m1"].shown == found["hmm", "mseq"].verdict == "holds"


# The Scorer's ranking


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ({}, "holds"),
        ({"gate_areas": (51.4, 52.5, 53.6)}, "undertrained"),
        ({"among_five": (15.0, 15.6, 16.2)}, "undertrained"),
    ],
    ids=["ranks", "gate at chance", "ranking at chance"],
)
def test_a_scorer_is_trained_by_its_ranking_and_never_by_its_score(
    tmp_path: Path, changes: dict[str, object], verdict: str
) -> None:
    """The planted fault: a Scorer far above No-Traj, judged trained by its score, that ranks by chance."""
    found = first(in_base(tmp_path, {}, **changes), "scorer")
    assert (found.verdict, found.shown) == (verdict, "holds")
    assert ("ranking of Scorer: base: area under the gate's curve" in found.note) == (verdict != "holds")


def test_a_ranking_that_is_not_in_the_tables_is_not_judged(tmp_path: Path) -> None:
    whole = evidence_of(tmp_path, Planted(**QUIET))
    assert judge_ranking(whole, BASE, "scorer", CFG).verdict == "holds"
    assert whole.run is not None
    one_seed = CFG.replace(seeds=(3,))
    no_area = tuple((place, row) for place, row in whole.study if row.quantity != GATE or place.seed != 4)
    for evidence, cfg, why in (
        (replace(whole, study=()), CFG, "no area under the gate's curve (base, 3, 4, 5)"),
        (replace(whole, study=no_area), CFG, "no area under the gate's curve (base, 4)"),
        (replace(whole, run=whole.run.replace(recipe=None)), CFG, "the number of candidates is not recorded"),
        (whole, one_seed, "1 seed gives no interval (base)"),
    ):
        assert judge_ranking(evidence, BASE, "scorer", cfg) == ("not judged", why)
    found = first({row.claim.key: row for row in judge_claims(replace(whole, study=()), CFG)}, "scorer")
    assert (found.verdict, found.shown) == ("not judged", "holds")


def test_the_lower_bound_over_three_seeds_is_that_of_student() -> None:
    """Mean 52.5, deviation 1: 52.5 - 4.3027 / sqrt(3)."""
    assert over_seeds(AMONG_FIVE, [51.5, 52.5, 53.5], 50.0, 0.95).low == pytest.approx(52.5 - 4.3027 / 3**0.5, abs=1e-3)


# What the world supports


def test_the_world_answers_by_its_exact_ceilings(tmp_path: Path) -> None:
    rows = in_base(tmp_path, {})
    words = {key: [f.exact.word for f in row.findings] for key, row in rows.items() if row.findings}
    assert words["oracle"][0] == "yes"
    assert words["oracle"][1] in ("no", "undecided")
    assert set(words["scorer"] + words["top1"] + words["shuffle"]) == {"bound only"}
    assert "scene" not in words
    widening = in_base(tmp_path, {}, widening=2.0)["oracle"].findings[1]
    assert (widening.exact.word, widening.exact.figure is not None) == ("yes", True)


def test_models_may_show_what_their_world_does_not_support(tmp_path: Path) -> None:
    """The planted fault: one ceiling for two rows, a learned difference between them."""
    whole = evidence_of(tmp_path, Planted(**QUIET))
    same = {
        seed: SeedScores(held.takes, {**held.rows, "ceiling/endpoint_traj": held.rows["ceiling/no_traj"]}, held.counts)
        for seed, held in whole.scores[BASE].items()
    }
    evidence = replace(whole, scores={**whole.scores, BASE: same})
    found = first({row.claim.key: row for row in judge_claims(evidence, CFG)}, "endpoint")
    assert (found.shown, found.exact.word) == ("holds", "no")
    assert found.exact.figure is not None
    assert found.exact.figure.value == 0


def test_only_rows_that_a_ceiling_is_named_after_have_one_of_their_own() -> None:
    assert [row for row in INFORMED if "/" not in row and has_own_ceiling(row)] == [
        "no_traj",
        "endpoint_traj",
        "oracle",
    ]


# What the check against the ceilings could find


def windows_of(rng: np.random.Generator, level: float, counts: np.ndarray) -> np.ndarray:
    """(N,) M@1 of single windows; those of one take and horizon are alike, so that the tables lose nothing of them."""
    return np.repeat(level + rng.choice([-10.0, 10.0], counts.size), counts.ravel().astype(int))


def summed(values_N: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """(T, H) sums of windows that lie take by take, then by horizon."""
    cells = np.repeat(np.arange(counts.size), counts.ravel().astype(int))
    return np.bincount(cells, values_N, counts.size).reshape(counts.shape)


def planted_windows() -> tuple[np.ndarray, dict[int, np.ndarray], dict[int, np.ndarray]]:
    """Windows of 40 takes: counts (T, H), No-Traj's answers at 20 % and the ceiling's at 50 % by seed."""
    counts = np.full((40, len(CFG.horizons)), 9.0)
    row = {seed: windows_of(np.random.default_rng([1, seed]), 20, counts) for seed in CFG.seeds}
    bound = {seed: windows_of(np.random.default_rng([2, seed]), 50, counts) for seed in CFG.seeds}
    return counts, row, bound


def tables_of(empty: Evidence, row: dict[int, np.ndarray], bound: dict[int, np.ndarray]) -> Evidence:
    """The tables that an evaluation writes from the answers to single windows: scores, and rows against ceilings."""
    counts = planted_windows()[0]
    scores, ceilings = {}, []
    for seed in CFG.seeds:
        sums = {"no_traj": summed(row[seed], counts), "ceiling/no_traj": summed(bound[seed], counts)}
        rows = {name: np.repeat(values[..., None], len(METRICS), axis=-1) for name, values in sums.items()}
        scores[seed] = SeedScores(tuple(f"t{i:03}" for i in range(40)), rows, dict.fromkeys(rows, counts))
        value, ceiling, error = paired(np.stack(list(sums.values()))[..., None], counts)
        ceilings += [
            (
                Origin(BASE, seed),
                Ceiling(
                    variant="no_traj",
                    horizon=None,
                    metric=metric,
                    value=value[0],
                    ceiling=ceiling[0],
                    difference=value[0] - ceiling[0],
                    standard_error=error[0],
                    n_takes=40,
                    n_windows=int(counts.sum()),
                    binding=True,
                    above=bool(value[0] - ceiling[0] > ERRORS * error[0]),
                ),
            )
            for metric in ("M@1", "MSeq")
        ]
    return replace(empty, scores={BASE: scores}, ceilings=tuple(ceilings))


def verdict_of(evidence: Evidence) -> str:
    bounds = ceiling_bounds(evidence, CFG)
    return next(b.verdict() for b in bounds if (b.world, b.row, b.metric) == (BASE, "no_traj", "M@1"))


def test_a_leak_of_the_printed_share_turns_the_check_red_and_a_smaller_one_does_not(tmp_path: Path) -> None:
    """The planted leak: the answers to single windows become the truth, and the check itself judges them."""
    empty = evidence_of(tmp_path, Planted(levels={}))
    _, row, bound = planted_windows()
    share = smallest_leak(tables_of(empty, row, bound), BASE, "no_traj", "m1", CFG, LIMITS)
    assert share is not None
    assert 30 / 80 < share < 0.45, "30 of the 80 points that are missing close the gap; three errors more turn it red"

    def leaking(part: float) -> Evidence:
        """The same answers, of which a share is the truth."""
        leaked = {}
        for seed, values in row.items():
            order = np.random.default_rng([LIMITS.leak_seed, seed]).permutation(len(values))
            leaked[seed] = values.copy()
            leaked[seed][order[: int(np.ceil(part * len(values)))]] = 100.0
        return tables_of(empty, leaked, bound)

    assert verdict_of(tables_of(empty, row, bound)) == "holds"
    assert verdict_of(leaking(share)) == "fails"
    assert verdict_of(leaking(share - LIMITS.leak_step)) == "holds"


def test_what_is_missing_has_no_power_and_a_row_above_needs_no_leak(tmp_path: Path) -> None:
    empty = evidence_of(tmp_path, Planted(levels={}))
    _, row, bound = planted_windows()
    whole = tables_of(empty, row, bound)
    assert smallest_leak(empty, BASE, "no_traj", "m1", CFG, LIMITS) is None
    two = {seed: held for seed, held in whole.scores[BASE].items() if seed < 5}
    assert smallest_leak(replace(whole, scores={BASE: two}), BASE, "no_traj", "m1", CFG, LIMITS) is None
    assert smallest_leak(tables_of(empty, bound, row), BASE, "no_traj", "m1", CFG, LIMITS) == 0
    assert "not run" in leak_table(empty, CFG).note
    assert "(No-Traj)" in leak_table(whole, CFG).note
    share = smallest_leak(whole, BASE, "no_traj", "m1", CFG, LIMITS)
    assert share is not None
    assert f"| No-Traj | {100 * share:.0f} |" in leak_table(whole, CFG).markdown()


def test_windows_that_leak_once_go_on_leaking() -> None:
    counts = np.array([[3.0, 0.0], [5.0, 2.0]])
    leaks = leaked_windows(counts, np.array([0.0, 0.3, 0.6, 1.0]), np.random.default_rng(0))
    assert (np.diff(leaks, axis=-1) >= 0).all()
    assert leaks.sum(axis=(0, 1)).tolist() == [0, 3, 6, 10]
    assert (leaks[..., -1] == counts).all()


# Worlds together


def test_a_world_moves_its_own_takes_only_and_worlds_are_averaged() -> None:
    """Two worlds, one constant: the interval of the mean is half that of the world that varies."""
    rng = np.random.default_rng(0)
    counts = np.full((50, len(CFG.horizons)), 4.0)
    varied = statistics.Sums(counts * rng.normal(20, 5, (50, 1)), counts)
    constant = statistics.Sums(counts * 40.0, counts)
    mean = statistics.plain_mean(len(CFG.horizons))
    alone = estimate(statistics.profile("w", {0: varied}, CFG), mean, 0.95)
    both = estimate(statistics.profile("w", {0: varied, 1: constant}, CFG), mean, 0.95)
    assert both.value == pytest.approx((alone.value + 40.0) / 2)
    assert both.low == pytest.approx((alone.low + 40.0) / 2)
    assert both.high == pytest.approx((alone.high + 40.0) / 2)


# Words


def test_every_word_of_a_verdict_is_explained_once() -> None:
    assert set(MEANINGS) == set(get_args(Verdict))
    assert set(EXACT) == set(get_args(ExactWord))
    assert set(ORDER) | {"holds", "reported"} == set(MEANINGS)
    words = [str(row[0]) for row in words_table().rows]
    assert len(words) == len(set(words)) == len(MEANINGS) + len(EXACT)


def test_every_control_is_printed_with_the_figure_where_the_information_is(tmp_path: Path) -> None:
    rows = tuple(row for row in in_base(tmp_path, {}).values() if row.claim.key != "retrieval")
    evidence = evidence_of(tmp_path, Planted())
    printed = "; ".join(str(line[-1]) for line in summary_table(rows, evidence, CFG).rows)
    controls = [f for row in rows for f in row.findings if f.statement.role == "control"]
    judged = [f for f in controls if f.statement.kind != "reported"]
    assert printed.count("holds: ") == len(judged) == 8
    assert "not run" not in printed
    assert {f.statement.against for f in controls} == {BASE}


def test_the_table_of_shares_says_who_has_reached_what(tmp_path: Path) -> None:
    planted = Planted(**QUIET, levels={**Planted().levels, BASE: INFORMED | {"oracle": 20.0}})
    lines = {str(row[0]): row for row in shares_table(evidence_of(tmp_path, planted), CFG).rows}
    attention = {name for name in lines if name.startswith("Retrieval attention")}
    assert len(attention) == len(ATTENTION_VARIANTS)
    assert set(lines) - attention == {"No-Traj", "Endpoint-Traj", "Oracle", "Scorer+"}
    assert [str(lines[name][-1]) for name in ("No-Traj", "Oracle")] == ["reached", "not reached"]
    assert str(lines["Oracle"][-2]) == "0.6"
