"""Verdicts of the claims flip with the effect that is planted, and nothing that is missing is filled in."""

from pathlib import Path

import pytest
from claims_fixture import BLIND, CFG, INFORMED, NO_INTENT, Planted, evidence_of

from schemas.claims import BASE, NO_INFORMATION, NO_STYLE
from trajpilot_core.studies.claims.evidence.contrasts import contrast
from trajpilot_core.studies.claims.evidence.tables import SeedScores
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS, RULES, conjunction
from trajpilot_core.studies.claims.verdicts.judge import Judged, judge_claims

BUILT = tuple(c.key for c in CLAIMS if c.statements and {s.row for s in c.statements} <= set(INFORMED))
PRECISE = {"noise": 1.0, "n_takes": 40}
"""Noise small enough for the equivalence tests to decide."""


def judged(folder: Path, planted: Planted) -> dict[str, Judged]:
    return {row.claim.key: row for row in judge_claims(evidence_of(folder, planted), CFG)}


def test_with_the_effects_that_are_claimed_every_claim_and_control_holds(tmp_path: Path) -> None:
    rows = judged(tmp_path, Planted(**PRECISE))
    assert {key: rows[key].verdict("claim") for key in BUILT} == dict.fromkeys(BUILT, "holds")
    controls = {key: verdict for key in BUILT if (verdict := rows[key].verdict("control")) is not None}
    assert controls == dict.fromkeys([key for key in BUILT if key != "scorer_endpoint"], "holds")


def test_without_any_effect_no_claim_holds(tmp_path: Path) -> None:
    flat = dict.fromkeys(INFORMED, 25.0) | {"majority": 5.0}
    rows = judged(tmp_path, Planted(levels={BASE: flat}))
    assert {rows[key].verdict("claim") for key in BUILT} <= {"undecided", "fails"}
    assert all(row.shown("claim") == row.verdict("claim") for row in rows.values())


@pytest.mark.parametrize(
    ("key", "levels"),
    [
        ("oracle", {"oracle": 15.0, "ceiling/oracle": 20.0}),
        ("endpoint", {"endpoint_traj": 15.0, "ceiling/endpoint_traj": 20.0}),
        ("scorer", {"scorer": 15.0}),
        ("scorer_endpoint", {"scorer": 28.0}),
        ("top1", {"top1": 45.0}),
        ("shuffle", {"shuffled": 75.0}),
    ],
)
def test_a_claim_fails_where_its_effect_is_turned_round(tmp_path: Path, key: str, levels: dict[str, float]) -> None:
    """By rows that have learned what they are given; other rows show nothing (test_claims_power.py)."""
    rows = judged(tmp_path, Planted(widening=0.0, levels={BASE: INFORMED | levels}))
    assert rows[key].verdict("claim") == "fails"


def test_a_lead_that_shrinks_with_the_horizon_fails_the_widening_only(tmp_path: Path) -> None:
    findings = judged(tmp_path, Planted(widening=-3.0))["oracle"].findings
    assert [finding.verdict for finding in findings[:2]] == ["holds", "fails"]


@pytest.mark.parametrize(
    ("key", "row"),
    [
        ("oracle", "oracle"),
        ("endpoint", "endpoint_traj"),
        ("scorer", "scorer"),
        ("top1", "top1"),
        ("shuffle", "shuffled"),
    ],
)
def test_a_control_that_is_not_broken_fails(tmp_path: Path, key: str, row: str) -> None:
    levels = {**Planted().levels, NO_INFORMATION: BLIND | {row: 35.0}}
    assert judged(tmp_path, Planted(levels=levels, **PRECISE))[key].verdict("control") == "fails"


def test_a_control_with_noise_is_undecided_not_held(tmp_path: Path) -> None:
    rows = judged(tmp_path, Planted(noise=25.0, n_takes=12))
    assert rows["oracle"].verdict("control") == "undecided"


def test_a_lead_that_does_not_shrink_without_intent_fails_its_control(tmp_path: Path) -> None:
    levels = {**Planted().levels, NO_STYLE: NO_INTENT | {"scorer": 40.0}}
    assert judged(tmp_path, Planted(levels=levels))["scorer"].verdict("control") == "fails"


def test_a_world_that_was_not_run_is_said_and_never_filled_in(tmp_path: Path) -> None:
    rows = judged(tmp_path, Planted(levels={BASE: INFORMED}))
    assert rows["oracle"].verdict("claim") == "holds"
    control = rows["oracle"].findings[-1]
    assert (control.verdict, control.headline) == ("not run", None)
    assert "no_information" in control.note


def test_a_missing_seed_leaves_the_figure_and_takes_the_verdict(tmp_path: Path) -> None:
    finding = judged(tmp_path, Planted(missing=((BASE, 4),)))["endpoint"].findings[0]
    assert finding.verdict == "not run"
    assert "lacks seed 4" in finding.note
    assert finding.headline is not None
    assert [seed for seed, _ in finding.headline.per_seed] == [3, 5]


def test_a_missing_row_is_named(tmp_path: Path) -> None:
    levels = {BASE: {k: v for k, v in INFORMED.items() if k != "top1"}}
    finding = judged(tmp_path, Planted(levels=levels))["top1"].findings[0]
    assert (finding.verdict, finding.note) == ("not run", "no row top1 in base")


def test_a_model_that_is_not_trained_withholds_the_verdicts_that_rest_on_it(tmp_path: Path) -> None:
    rows = judged(tmp_path, Planted(undertrained=("endpoint_traj",)))
    assert rows["endpoint"].verdict("claim") == "undertrained"
    assert "by the intervals: holds" in rows["endpoint"].findings[0].note
    assert rows["oracle"].verdict("claim") == "holds"


def test_rows_scored_on_different_windows_are_never_subtracted(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED}))
    held = evidence.scores[BASE][3]
    evidence.scores[BASE][3] = SeedScores(held.takes, held.rows, {**held.counts, "oracle": held.counts["oracle"] + 1})
    found = contrast(evidence, BASE, "oracle", "no_traj", "m1", CFG)
    assert found.profile is not None
    assert found.profile.seeds == (4, 5)
    assert found.gap == "oracle and no_traj scored on different windows (base, seed 3)"


def test_every_kind_of_statement_has_its_rule_in_words() -> None:
    kinds = {statement.kind for claim in CLAIMS for statement in claim.statements}
    assert kinds == set(RULES)
    assert all(claim.statements or claim.out_of_reach or claim.elsewhere or claim.wants for claim in CLAIMS)


def test_a_claim_without_a_control_says_why() -> None:
    for claim in CLAIMS:
        has_control = any(statement.role == "control" for statement in claim.statements)
        assert bool(claim.no_control) == (bool(claim.statements) and not has_control), claim.key


def test_one_failure_fails_a_conjunction_and_what_is_only_reported_does_not_count() -> None:
    assert conjunction(["holds", "fails", "not run"]) == "fails"
    assert conjunction(["holds", "not run", "undecided"]) == "not run"
    assert conjunction(["holds", "reported"]) == "holds"
    assert conjunction(["reported"]) == "reported"
