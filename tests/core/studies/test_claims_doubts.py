"""What withholds a verdict: models that are not trained, windows that differ, controls that test nothing."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from claims_fixture import CFG, Planted, evidence_of
from trajpilot_core.studies.claims.verdicts.aims import judge_aims

from schemas.claims import BASE, FEATURE_SPACE, NO_INFORMATION, NO_SCENE, NO_STYLE
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.contrasts import untrained
from trajpilot_core.studies.claims.evidence.readings import change
from trajpilot_core.studies.claims.evidence.statistics import Equivalence, Sums, estimate
from trajpilot_core.studies.claims.evidence.tables import KINDS, Evidence, SeedScores
from trajpilot_core.studies.claims.pages.judged import BROKEN, equivalence_table, statements_table, summary_table
from trajpilot_core.studies.claims.pages.scorer import inputs_table
from trajpilot_core.studies.claims.verdicts.attribution import attribution_text, lead, sources
from trajpilot_core.studies.claims.verdicts.entries import compare_entries
from trajpilot_core.studies.claims.verdicts.hypotheses import CLAIMS, Statement
from trajpilot_core.studies.claims.verdicts.judge import JudgedStatement, judge, judge_claims

EQUAL = tuple(statement for claim in CLAIMS for statement in claim.statements if statement.kind == "equal")


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


def judged_as(evidence: Evidence, world: str, model: str, verdict: str | None, seed: int = 1) -> Evidence:
    """Change what was judged of one training; None: nothing was."""
    check = f"trained: final/{model}, seed {seed}"
    told = [
        (place, row.replace(verdict=verdict) if verdict and (place.world, row.check) == (world, check) else row)
        for place, row in evidence.judgements
        if verdict or (place.world, row.check) != (world, check)
    ]
    return replace(evidence, judgements=tuple(told))


@pytest.mark.parametrize(
    ("key", "kind", "world"), [("scorer", "shrinks", FEATURE_SPACE), ("endpoint", "equal", FEATURE_SPACE)]
)
def test_a_control_asks_both_worlds_whether_their_models_are_trained(
    whole: Evidence, key: str, kind: str, world: str
) -> None:
    assert judge(of_kind(key, kind), whole, CFG).verdict == "holds"
    weak = judged_as(whole, world, "endpoint_traj" if key == "endpoint" else "scorer", "undertrained")
    found = judge(of_kind(key, kind), weak, CFG)
    assert found.verdict == "undertrained"
    assert f"({world}, seed 1); by the intervals: holds" in found.note
    assert judge(of_kind(key, "mean"), weak, CFG).verdict == "holds"


@pytest.mark.parametrize("key", ["endpoint", "scorer"])
def test_a_training_that_nobody_judged_is_no_training(whole: Evidence, key: str) -> None:
    model = {"endpoint": "endpoint_traj", "scorer": "scorer"}[key]
    one = judge(of_kind(key, "mean"), judged_as(whole, BASE, model, None), CFG)
    assert (one.verdict, f"final/{model} (base, seed 1: not judged)" in one.note) == ("undertrained", True)
    none = judge(of_kind(key, "mean"), replace(whole, judgements=()), CFG)
    assert (none.verdict, f"final/{model} (base, seed 0, 1, 2: not judged)" in none.note) == ("undertrained", True)
    assert untrained(whole, BASE, ("scorer_plus", "oracle", "majority"), CFG) == ()


def test_the_aims_need_a_judged_training(whole: Evidence) -> None:
    aims = judge_aims(judged_as(whole, BASE, "scorer_plus", None), CFG)
    assert {c.verdict for c in aims.comparisons} | {s.verdict for s in aims.shares} == {"undertrained"}


@pytest.mark.parametrize("statement", EQUAL, ids=lambda s: f"{s.row}-{s.reference}")
def test_an_equivalence_without_a_difference_to_break_is_vacuous(whole: Evidence, statement: Statement) -> None:
    assert judge(statement, whole, CFG).verdict == "holds"
    found = judge(statement, with_rows(whole, FEATURE_SPACE, {statement.row: statement.reference}), CFG)
    assert (found.verdict, found.shown) == ("vacuous", "holds")
    assert found.note.startswith("in feature_space the difference is not shown to lie")
    assert found.note.endswith("by the intervals: holds")
    assert found.broken is not None
    assert found.broken.value == 0
    turned = judge(
        statement, with_rows(whole, FEATURE_SPACE, {statement.row: statement.reference}, -5.0 * statement.sign), CFG
    )
    assert turned.verdict == "vacuous"


@pytest.mark.parametrize("statement", EQUAL, ids=lambda s: f"{s.row}-{s.reference}")
def test_a_control_whose_test_holds_in_the_informative_world_too_is_vacuous(
    whole: Evidence, statement: Statement
) -> None:
    """The planted fault: a difference that excludes zero and lies within the margin, so that it passes anywhere."""
    rows = {statement.row: statement.reference}
    within = with_rows(whole, FEATURE_SPACE, rows, 0.9 * CFG.margin * statement.sign)
    here = judge(statement._replace(world=FEATURE_SPACE), within, CFG)
    assert here.shown == "holds"
    found = judge(statement, within, CFG)
    assert found.broken is not None
    assert found.broken.is_above_zero() or found.broken.is_below_zero()
    assert (found.verdict, found.shown) == ("vacuous", "holds")
    beyond = with_rows(whole, FEATURE_SPACE, rows, 1.1 * CFG.margin * statement.sign)
    assert judge(statement, beyond, CFG).verdict == "holds"


def test_a_swap_of_what_had_no_order_is_vacuous(whole: Evidence) -> None:
    assert judge(of_kind("scene", "swap"), whole, CFG).verdict == "holds"
    flat = replace(whole, geometry={**whole.geometry, FEATURE_SPACE: whole.geometry[NO_SCENE]})
    found = judge(of_kind("scene", "swap"), flat, CFG)
    assert (found.verdict, found.shown) == ("vacuous", "holds")
    assert "in feature_space the difference is not shown to lie above zero" in found.note


def test_an_equivalence_that_fails_still_fails_without_a_difference_in_drawn(whole: Evidence) -> None:
    flat = with_rows(whole, FEATURE_SPACE, {"oracle": "no_traj"})
    differing = with_rows(flat, NO_INFORMATION, {"oracle": "no_traj"}, 9.0)
    assert judge(of_kind("oracle", "equal"), differing, CFG).verdict == "fails"


def test_a_lead_that_was_never_there_does_not_shrink(whole: Evidence) -> None:
    """The planted fault: below No-Traj in `feature_space`, further below without intent."""
    lost = with_rows(whole, FEATURE_SPACE, {"scorer": "no_traj"}, -2.0)
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
    seeds = {**whole.scores[NO_INFORMATION], 2: shut.scores[NO_INFORMATION][2]}
    in_one = replace(whole, scores={**whole.scores, NO_INFORMATION: seeds})
    assert judge(statement, in_one, CFG).verdict == "vacuous"


def test_without_the_world_drawn_no_control_has_a_verdict(whole: Evidence) -> None:
    found = judge(EQUAL[0], replace(whole, scores={w: s for w, s in whole.scores.items() if w != FEATURE_SPACE}), CFG)
    assert (found.verdict, found.broken) == ("not run", None)
    assert "no scores of the world feature_space" in found.note
    assert found.headline is not None


def test_what_a_control_must_break_and_what_a_figure_is_stand_on_the_page(whole: Evidence) -> None:
    judged = judge_claims(whole, CFG)
    findings: list[JudgedStatement] = [finding for row in judged for finding in row.findings]
    text = statements_table(judged).markdown()
    assert BROKEN == "the same in feature_space [95 %]"
    assert BROKEN in text
    assert BROKEN in equivalence_table(judged, CFG).header
    shrinking = next(finding for finding in findings if finding.statement.kind == "shrinks")
    assert f"| {change(shrinking.broken)} |" in text
    assert "no control: no world takes away" in summary_table(judged).markdown()
    units = {finding.statement.kind: finding.unit for finding in findings if not finding.statement.is_deep}
    assert units == {
        "order": "distance, 2nd of 3 differences",
        "swap": "distance, 2nd difference",
        "equal": "points, mean over H, 90 %",
        "each": "points, mean over H",
        "mean": "points, mean over H",
        "slope": "points per step of H",
        "shrinks": "points, mean over H",
        "reported": "points, mean over H",
    }
    assert {f.unit for f in findings if f.statement.is_deep} == {"points, mean over H >= 5"}
    assert all(f"| {unit} |" in text for unit in units.values())


def test_distances_across_takes_have_intervals_of_both_takes(whole: Evidence) -> None:
    rng = np.random.default_rng(0)
    n = len(whole.scores[BASE][0].takes)
    means = np.array([1.0, 2.0, 3.0, 4.0]) + rng.normal(0, 0.1, (n, len(KINDS))) * [0, 0, 1, 0]
    counts = np.full(means.shape, 7.0)
    held = {seed: Sums(means * counts, counts) for seed in CFG.seeds}
    evidence = replace(whole, geometry={BASE: held, FEATURE_SPACE: held, NO_SCENE: held})
    found = judge(of_kind("scene", "order"), evidence, CFG)
    alone = estimate(statistics.profile(BASE, held, CFG), np.array([0.0, 0, 1, 0]), CFG.confidence)
    for part in found.parts[1:]:
        assert part.figure.high - part.figure.low == pytest.approx(2 * (alone.high - alone.low), rel=1e-6)
    swap = judge(of_kind("scene", "swap"), evidence, CFG)
    assert (swap.verdict, swap.headline is not None) == ("fails", True)


def test_rows_on_different_windows_cost_their_own_statement_only(whole: Evidence) -> None:
    held = whole.scores[BASE][0]
    counts = {**held.counts, "oracle": held.counts["oracle"] + 1}
    seeds = {**whole.scores[BASE], 0: SeedScores(held.takes, held.rows, counts)}
    evidence = replace(whole, scores={**whole.scores, BASE: seeds})
    rows = {row.claim.key: row for row in judge_claims(evidence, CFG)}
    assert rows["oracle"].verdict("claim") == "not run"
    assert "scored on different windows (base, seed 0)" in rows["oracle"].findings[0].note
    assert rows["endpoint"].verdict("claim") == "holds"


def test_doors_that_differ_within_chance_are_undecided_and_untrained_ones_say_so(whole: Evidence) -> None:
    assert compare_entries(whole, "m1", CFG).verdict == "holds"
    weak = compare_entries(judged_as(whole, FEATURE_SPACE, "endpoint_traj", "undertrained"), "m1", CFG)
    assert weak.verdict == "undertrained"
    assert "final/endpoint_traj (feature_space, seed 1)" in weak.gap
    assert "by the intervals: holds" in weak.gap
    close = replace(
        whole, scores={BASE: with_noise(whole, BASE, 0.2), FEATURE_SPACE: with_noise(whole, FEATURE_SPACE, -0.2)}
    )
    orders = compare_entries(close, "m1", CFG)
    assert [swap.is_shown() for swap in orders.swaps] == [False]
    assert orders.verdict == "undecided"


def with_noise(evidence: Evidence, world: str, points: float) -> Mapping[int, SeedScores]:
    """Let Pool-Mean differ from the Scorer by some points on average, and by five up or down in each take."""
    moved = with_rows(evidence, world, {"pool_mean": "scorer"}, points).scores[world]
    for held in moved.values():
        sign = np.where(np.arange(len(held.takes)) % 2, 5.0, -5.0)[:, None, None]
        held.rows["pool_mean"][...] += sign * held.counts["pool_mean"].mean()
    return moved


def test_nothing_is_attributed_to_models_that_are_not_trained(whole: Evidence) -> None:
    def text(evidence: Evidence) -> str:
        return attribution_text(lead(evidence, "scorer", "no_traj", "m1", CFG), sources(evidence, "scorer", CFG))

    assert "Sources whose comparisons are shown below" in text(whole)
    weak = judged_as(whole, BASE, "scorer", "undertrained")
    assert lead(weak, "scorer", "no_traj", "m1", CFG).shown == "undertrained"
    assert "final/scorer (base, seed 1)): nothing is attributed" in text(weak)
    of_source = text(judged_as(whole, BASE, "endpoint_traj", "undertrained"))
    assert "above zero. Models that the attribution needs are not trained (final/endpoint_traj" in of_source
    assert "Sources whose" not in of_source


def test_what_an_input_adds_is_not_said_of_an_untrained_twin(whole: Evidence) -> None:
    assert "undertrained" not in inputs_table(whole, CFG).markdown()
    text = inputs_table(judged_as(whole, BASE, "scorer_no_labels", "undertrained"), CFG).markdown()
    lines = [line for line in text.splitlines() if "no labels" in line]
    assert lines
    assert all("| undertrained | UNDERTRAINED: final/scorer_no_labels (base, seed 1) |" in line for line in lines)
