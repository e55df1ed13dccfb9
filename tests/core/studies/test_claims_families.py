"""Several comparisons at once: families of Holm's procedure, and the questions of the 2 x 2."""

from dataclasses import replace
from pathlib import Path

import pytest
from claims_fixture import ATTENTION, BLIND, CFG, INFORMED, Planted, evidence_of

from schemas.claims import BASE, NO_INFORMATION
from trajpilot_core.studies.claims.evidence import statistics
from trajpilot_core.studies.claims.evidence.tables import SeedScores
from trajpilot_core.studies.claims.pages.power import reference_table, square_table
from trajpilot_core.studies.claims.verdicts.families import SQUARE, against_reference, judge_square


def test_rows_against_the_reference_are_one_family_over_both_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted fault: p-values that nobody corrected. 0.004 of 22 counts as 0.088, by itself as 0.004."""
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED}))
    counted: list[int] = []
    holm = statistics.holm

    def one_small(p_values: list[float]) -> list[float]:
        counted.append(len(p_values))
        return holm([0.004, *([0.9] * (len(p_values) - 1))])

    monkeypatch.setattr(statistics, "holm", one_small)
    found = against_reference(evidence, CFG)
    assert counted == [len(found)] == [2 * len({one.row for one in found})]
    assert found[0].adjusted_p == pytest.approx(0.004 * len(found))
    assert found[0].shown == "undecided"
    monkeypatch.setattr(statistics, "holm", lambda p_values: [0.004] * len(p_values))
    assert against_reference(evidence, CFG)[0].shown == "holds"


def test_a_row_without_a_seed_counts_in_the_family_and_is_not_judged(tmp_path: Path) -> None:
    evidence = evidence_of(tmp_path, Planted(levels={BASE: INFORMED}))
    held = evidence.scores[BASE][4]
    less = SeedScores(held.takes, {row: v for row, v in held.rows.items() if row != "top1"}, held.counts)
    evidence = replace(evidence, scores={BASE: {**evidence.scores[BASE], 4: less}})
    found = {(one.row, one.metric): one for one in against_reference(evidence, CFG)}
    assert (found["top1", "m1"].shown, found["top1", "m1"].adjusted_p) == ("not run", 1.0)
    assert "Every row minus No-Traj" in reference_table(evidence, CFG).markdown()


@pytest.mark.parametrize(("gain", "verdict"), [(5.0, "holds"), (0.0, "undecided"), (-5.0, "fails")])
def test_the_first_question_of_the_square_is_answered_with_whichever_sign_comes_out(
    tmp_path: Path, gain: float, verdict: str
) -> None:
    """Both motions against the query's alone; no difference at all is found to be equivalent."""
    levels = INFORMED | ATTENTION | {"retrieval_attention": 34 + gain}
    blind = BLIND | dict.fromkeys(ATTENTION, 25.0)
    planted = Planted(levels={BASE: levels, NO_INFORMATION: blind}, noise=1.0, widening=0.0)
    found = judge_square(evidence_of(tmp_path, planted), CFG)
    assert [one.question for one in found] == [question for question in SQUARE for _ in ("m1", "mseq")]
    first, others = found[0], found[2:]
    assert first.compared.shown == verdict
    assert first.compared.figure is not None
    assert first.compared.figure.value == pytest.approx(gain, abs=0.6)
    assert first.blind is not None
    assert abs(first.blind.value) < 1
    assert {one.compared.shown for one in others if "when it is not" in one.question} == {"holds"}
    text = square_table(found, CFG).markdown()
    assert ("equivalent within 1.5 points" in text.splitlines()[4]) == (verdict == "undecided")


def test_a_square_whose_rows_nobody_declared_is_not_run(tmp_path: Path) -> None:
    levels = {row: level for row, level in INFORMED.items() if row not in ATTENTION}
    found = judge_square(evidence_of(tmp_path, Planted(levels={BASE: levels})), CFG)
    assert {one.compared.verdict for one in found} == {"not run"}
    assert "no row retrieval_attention" in found[0].compared.note
