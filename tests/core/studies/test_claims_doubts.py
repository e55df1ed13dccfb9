"""What withholds a verdict: models that are not trained, windows that differ, controls that test nothing."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from claims_fixture import CFG, INFORMED, Planted, evidence_of

from schemas.claims import BASE, NO_INFORMATION, NO_STYLE
from trajpilot_core.studies.claims.evidence.contrasts import untrained
from trajpilot_core.studies.claims.evidence.readings import change
from trajpilot_core.studies.claims.evidence.statistics import Equivalence
from trajpilot_core.studies.claims.evidence.tables import Evidence, SeedScores
from trajpilot_core.studies.claims.pages.judged import (
    BROKEN,
    equivalence_table,
    statements_table,
    summary_table,
    verdict_text,
)
from trajpilot_core.studies.claims.pages.scorer import inputs_table
from trajpilot_core.studies.claims.pages.summary import in_short
from trajpilot_core.studies.claims.verdicts.attribution import attribution_text, lead, sources
from trajpilot_core.studies.claims.verdicts.families import judge_plus
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS, Statement
from trajpilot_core.studies.claims.verdicts.judge import JudgedStatement, judge, judge_claims

EQUAL = tuple(s for claim in CLAIMS for s in claim.statements if s.kind == "equal" and s.row in INFORMED)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """Every claim and every control holds here, with little noise."""
    return evidence_of(tmp_path_factory.mktemp("claims"), Planted(noise=1.0, n_takes=12))


def of_kind(key: str, kind: str) -> Statement:
    return next(s for claim in CLAIMS if claim.key == key for s in claim.statements if s.kind == kind)


def with_rows(evidence: Evidence, world: str, rows: Mapping[str, str], points: float = 0.0) -> Evidence:
    """Put other rows' answers, raised by some points, in the place of rows of a world."""
    seeds = {
        seed: SeedScores(
            held.takes,
            {
                **held.rows,
                **{row: held.rows[other] + points * held.counts[other][..., None] for row, other in rows.items()},
            },
            held.counts,
        )
        for seed, held in evidence.scores[world].items()
    }
    return replace(evidence, scores={**evidence.scores, world: seeds})


def judged_as(evidence: Evidence, world: str, model: str, verdict: str | None, seed: int = 4) -> Evidence:
    """Change what was judged of one training; None: nothing was."""
    check = f"trained: final/{model}, seed {seed}"
    told = [
        (place, row.replace(verdict=verdict) if verdict and (place.world, row.check) == (world, check) else row)
        for place, row in evidence.judgements
        if verdict or (place.world, row.check) != (world, check)
    ]
    return replace(evidence, judgements=tuple(told))


@pytest.mark.parametrize(("key", "kind"), [("scorer", "shrinks"), ("endpoint", "equal")])
@pytest.mark.parametrize("world", [BASE, ""])
def test_a_control_asks_both_worlds_whether_their_models_are_trained(
    whole: Evidence, key: str, kind: str, world: str
) -> None:
    statement = of_kind(key, kind)
    assert judge(statement, whole, CFG).verdict == "holds"
    model = "endpoint_traj" if key == "endpoint" else "scorer"
    found = judge(statement, judged_as(whole, world or statement.world, model, "undertrained"), CFG)
    assert found.verdict == "undertrained"
    assert f"({world or statement.world}, seed 4); by the intervals: holds" in found.note


@pytest.mark.parametrize("key", ["endpoint", "scorer"])
def test_a_training_that_nobody_judged_is_no_training(whole: Evidence, key: str) -> None:
    model = {"endpoint": "endpoint_traj", "scorer": "scorer"}[key]
    one = judge(of_kind(key, "mean"), judged_as(whole, BASE, model, None), CFG)
    assert (one.verdict, f"final/{model} (base, seed 4: not judged)" in one.note) == ("undertrained", True)
    none = judge(of_kind(key, "mean"), replace(whole, judgements=()), CFG)
    assert (none.verdict, f"final/{model} (base, seed 3, 4, 5: not judged)" in none.note) == ("undertrained", True)
    assert untrained(whole, BASE, ("scorer_plus", "oracle", "majority"), CFG) == ()


def test_what_scorer_plus_must_beat_needs_a_judged_training(whole: Evidence) -> None:
    assert {one.verdict for one in judge_plus(judged_as(whole, BASE, "scorer_plus", None), CFG)} == {"undertrained"}


@pytest.mark.parametrize("statement", EQUAL, ids=lambda s: f"{s.row}-{s.reference}")
def test_an_equivalence_without_a_difference_to_break_is_vacuous(whole: Evidence, statement: Statement) -> None:
    assert judge(statement, whole, CFG).verdict == "holds"
    found = judge(statement, with_rows(whole, BASE, {statement.row: statement.reference}), CFG)
    assert (found.verdict, found.shown) == ("vacuous", "holds")
    assert found.note.startswith("in base the difference is not shown to lie")
    assert found.note.endswith("by the intervals: holds")
    assert found.broken is not None
    assert found.broken.value == 0
    turned = judge(statement, with_rows(whole, BASE, {statement.row: statement.reference}, -5.0 * statement.sign), CFG)
    assert turned.verdict == "vacuous"


@pytest.mark.parametrize("statement", EQUAL, ids=lambda s: f"{s.row}-{s.reference}")
def test_a_control_whose_test_holds_in_the_informative_world_too_is_vacuous(
    whole: Evidence, statement: Statement
) -> None:
    """The planted fault: a difference that excludes zero and lies within the margin, so that it passes anywhere."""
    rows = {statement.row: statement.reference}
    within = with_rows(whole, BASE, rows, 0.9 * CFG.margin * statement.sign)
    here = judge(statement._replace(world=BASE), within, CFG)
    assert here.shown == "holds"
    found = judge(statement, within, CFG)
    assert found.broken is not None
    assert found.broken.is_above_zero() or found.broken.is_below_zero()
    assert (found.verdict, found.shown) == ("vacuous", "holds")
    beyond = with_rows(whole, BASE, rows, 1.1 * CFG.margin * statement.sign)
    assert judge(statement, beyond, CFG).verdict == "holds"


def test_an_equivalence_that_fails_still_fails_without_a_difference_to_break(whole: Evidence) -> None:
    flat = with_rows(whole, BASE, {"oracle": "no_traj"})
    differing = with_rows(flat, NO_INFORMATION, {"oracle": "no_traj"}, 9.0)
    assert judge(of_kind("oracle", "equal"), differing, CFG).verdict == "fails"


def test_a_lead_that_was_never_there_does_not_shrink(whole: Evidence) -> None:
    """The planted fault: below No-Traj in `base`, further below without intent."""
    lost = with_rows(whole, BASE, {"scorer": "no_traj"}, -2.0)
    found = judge(of_kind("scorer", "shrinks"), with_rows(lost, NO_STYLE, {"scorer": "no_traj"}, -9.0), CFG)
    assert found.headline is not None
    assert found.headline.high < 0
    assert (found.verdict, found.shown) == ("vacuous", "holds")


def test_a_gate_that_never_opens_is_no_equivalence(whole: Evidence) -> None:
    """The planted fault: error 0, power 100 %, in one seed or in all."""
    statement = of_kind("scorer", "equal")
    shut = with_rows(whole, NO_INFORMATION, {"scorer_permuted": "scorer"})
    found = judge(statement, shut, CFG)
    assert isinstance(found.headline, Equivalence)
    assert found.headline.standard_error == 0
    assert (found.verdict, found.note) == (
        "vacuous",
        "in some seed the two rows answer alike everywhere; by the intervals: holds",
    )
    seeds = {**whole.scores[NO_INFORMATION], 5: shut.scores[NO_INFORMATION][5]}
    in_one = replace(whole, scores={**whole.scores, NO_INFORMATION: seeds})
    assert judge(statement, in_one, CFG).verdict == "vacuous"


def test_without_the_informative_world_no_control_has_a_verdict(whole: Evidence) -> None:
    found = judge(EQUAL[0], replace(whole, scores={w: s for w, s in whole.scores.items() if w != BASE}), CFG)
    assert (found.verdict, found.broken) == ("not run", None)
    assert "no scores of the world base" in found.note
    assert found.headline is not None


def test_what_a_control_must_break_and_what_a_figure_is_stand_on_the_page(whole: Evidence) -> None:
    judged = judge_claims(whole, CFG)
    findings: list[JudgedStatement] = [finding for row in judged for finding in row.findings]
    text = statements_table(judged, whole).markdown()
    assert BROKEN == "the same in base [95 %]"
    assert BROKEN in text
    assert BROKEN in equivalence_table(judged, CFG).header
    shrinking = next(finding for finding in findings if finding.statement.kind == "shrinks")
    assert f"| {change(shrinking.broken)} |" in text
    short = summary_table(judged, whole, CFG).markdown()
    assert f"{shrinking.verdict}: {change(shrinking.headline)}, {change(shrinking.broken)}" in short
    units = {finding.statement.kind: finding.unit for finding in findings if not finding.statement.is_deep}
    assert units == {
        "equal": "points, mean over H, 90 %",
        "each": "points, mean over H",
        "mean": "points, mean over H",
        "slope": "points per step of H",
        "shrinks": "points, mean over H",
        "reported": "points, mean over H",
    }
    assert {f.unit for f in findings if f.statement.is_deep} == {"points, mean over H >= 5"}
    assert all(f"| {unit} |" in text for unit in units.values())


def test_rows_on_different_windows_cost_their_own_statement_only(whole: Evidence) -> None:
    held = whole.scores[BASE][3]
    counts = {**held.counts, "oracle": held.counts["oracle"] + 1}
    seeds = {**whole.scores[BASE], 3: SeedScores(held.takes, held.rows, counts)}
    evidence = replace(whole, scores={**whole.scores, BASE: seeds})
    rows = {row.claim.key: row for row in judge_claims(evidence, CFG)}
    assert rows["oracle"].verdict("claim") == "not run"
    assert "scored on different windows (base, seed 3)" in rows["oracle"].findings[0].note
    assert rows["endpoint"].verdict("claim") == "holds"


def test_nothing_is_attributed_to_models_that_are_not_trained(whole: Evidence) -> None:
    def text(evidence: Evidence) -> str:
        return attribution_text(lead(evidence, "scorer", "no_traj", "m1", CFG), sources(evidence, "scorer", CFG))

    assert "Sources whose statements hold" in text(whole)
    weak = judged_as(whole, BASE, "scorer", "undertrained")
    assert lead(weak, "scorer", "no_traj", "m1", CFG).verdict == "undertrained"
    assert "Nothing is attributed: undertrained (which models and shares: claims.html)" in text(weak)
    of_source = text(judged_as(whole, BASE, "endpoint_traj", "undertrained"))
    assert "motion of the ends is undertrained" in of_source
    assert "Sources whose" not in of_source


def test_what_an_input_adds_is_not_said_of_an_untrained_twin(whole: Evidence) -> None:
    assert "undertrained" not in inputs_table(whole, CFG).markdown()
    text = inputs_table(judged_as(whole, BASE, "scorer_no_labels", "undertrained"), CFG).markdown()
    lines = [line for line in text.splitlines() if "no labels" in line]
    assert lines
    assert all("| undertrained | **holds** |" in line for line in lines)


def test_a_withheld_claim_names_every_reason_and_what_each_of_its_statements_shows(whole: Evidence) -> None:
    weak = judged_as(whole, BASE, "traj", "undertrained")
    claims = {one.claim.key: one for one in judge_claims(weak, CFG)}
    assert verdict_text(claims["oracle"]) == "undertrained (intervals: holds; holds)"
    assert verdict_text({one.claim.key: one for one in judge_claims(whole, CFG)}["oracle"]) == "holds"


def test_what_is_left_open_says_so_first_and_gives_training_as_the_reason_only_where_it_is_one(
    whole: Evidence,
) -> None:
    judged = judge_claims(whole, CFG)
    assert in_short(judged).startswith("of the claims that can be judged ")
    left = [replace(one, findings=tuple(replace(f, verdict="undertrained") for f in one.findings)) for one in judged]
    assert in_short(left).startswith("no claim is confirmed or refuted")
    assert "their training could reach" in in_short(left)
    absent = [replace(one, findings=tuple(replace(f, verdict="not run") for f in one.findings)) for one in judged]
    assert "training" not in in_short(absent)
