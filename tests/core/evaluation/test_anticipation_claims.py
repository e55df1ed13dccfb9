"""Claims on rows without a goal: judged by intervals, withheld by shares of the ceiling and by trainings."""

from types import SimpleNamespace
from typing import Any

from synthetic_results import a_metric

from schemas.results import Ceiling, Judgement
from trajpilot_core.evaluation.paper_claims import GOAL_FREE_CLAIMS, CheckInputs, anticipation_checks, reached_shares
from trajpilot_core.methods.anticipation import MAJORITY, NO_TRAJ, ORACLE, ROWS, SCORER
from trajpilot_core.report.limits import _claims
from trajpilot_core.report.page import SIGNS
from trajpilot_core.report.tables.anticipation import shares_table

WHOLE = {row.id: (71.0 if row.ceiling == "start" else 95.0) for row in ROWS}
"""Exact ceilings, percent."""
REACHED = {row.id: 10.0 if row is MAJORITY else 55.0 if row.ceiling == "start" else 70.0 for row in ROWS}
"""74 % and 71 % of the way from a majority of 10 %."""


def ceilings(values: dict[str, float]) -> list[Ceiling]:
    common: dict[str, Any] = {"standard_error": 1.0, "n_takes": 9, "n_windows": 9, "binding": True, "above": False}
    common |= {"horizon": None, "metric": "M@1"}
    return [
        Ceiling(variant=row, value=value, ceiling=WHOLE[row], difference=value - WHOLE[row], **common)
        for row, value in values.items()
    ]


def evidence(low: float, high: float, *weak: str, rows: tuple[str, ...] = tuple(WHOLE)) -> CheckInputs:
    """Every claimed difference has this interval on the claimed side, at two horizons."""
    metrics = [
        a_metric(
            variant=claim.variant,
            reference=claim.reference,
            horizon=horizon,
            pooling="none",
            value=claim.sign * (low + high) / 2,
            low=min(claim.sign * low, claim.sign * high),
            high=max(claim.sign * low, claim.sign * high),
        )
        for claim in GOAL_FREE_CLAIMS
        for horizon in (3, 8)
    ]
    trained = [Judgement(check=f"trained: {model}, seed 0", verdict="undertrained", detail="") for model in weak]
    predictions: Any = SimpleNamespace(variants=lambda: rows)
    return CheckInputs(predictions, metrics, {}, {}, {}, trained)


def verdicts(found: CheckInputs, values: dict[str, float] | None = None) -> list[str]:
    return [one.verdict for one in anticipation_checks(found, ceilings(REACHED if values is None else values))]


def test_intervals_decide_where_models_are_near_their_ceilings() -> None:
    assert verdicts(evidence(1.0, 3.0)) == ["holds"] * len(GOAL_FREE_CLAIMS)
    assert verdicts(evidence(-3.0, -1.0)) == ["fails"] * len(GOAL_FREE_CLAIMS)
    assert verdicts(evidence(-1.0, 3.0)) == ["undecided"] * len(GOAL_FREE_CLAIMS)
    assert verdicts(evidence(1.0, 3.0), {}) == ["holds"] * len(GOAL_FREE_CLAIMS), "recorded takes have no ceilings"
    assert verdicts(evidence(1.0, 3.0, rows=("no_traj",))) == [], "a run without such rows"


def test_a_row_far_below_its_ceiling_decides_nothing() -> None:
    """Planted: No-Traj at 48 % of the way to its ceiling, half of it is required."""
    low = REACHED | {NO_TRAJ.id: 39.0}
    found = {
        claim.check: verdict for claim, verdict in zip(GOAL_FREE_CLAIMS, verdicts(evidence(1.0, 3.0), low), strict=True)
    }
    touched = {claim.check for claim in GOAL_FREE_CLAIMS if NO_TRAJ.id in claim[1:3] or claim.variant == SCORER.id}
    assert {check for check, verdict in found.items() if verdict == "underpowered"} == touched
    (said,) = [
        one.detail for one in anticipation_checks(evidence(1.0, 3.0), ceilings(low)) if "Oracle is above" in one.check
    ]
    assert said.startswith("share of the ceiling: No-Traj, no goal 48 % (50 % required); by the intervals: holds")


def test_rows_with_unequal_shares_of_their_ceilings_are_confounded() -> None:
    """Planted: Oracle at 94 % of its ceiling, No-Traj at 74 %."""
    apart = REACHED | {ORACLE.id: 90.0}
    assert verdicts(evidence(1.0, 3.0), apart)[:2] == ["confounded by training"] * 2


def test_an_untrained_model_takes_precedence_over_its_share() -> None:
    low = REACHED | {NO_TRAJ.id: 20.0}
    found = verdicts(evidence(1.0, 3.0, "final/traj_goal_dropout"), low)
    assert found == ["undertrained", "undertrained", "undertrained", "underpowered", "undertrained"]


def test_shares_of_every_row_except_the_floor_are_printed() -> None:
    assert {one.row for one in reached_shares(ceilings(REACHED))} == {row.id for row in ROWS} - {MAJORITY.id}
    table = shares_table(ceilings(REACHED))
    assert table is not None
    printed = {str(row[0]): [str(cell) for cell in row[1:]] for row in table.rows}
    assert printed[NO_TRAJ.name] == ["55.0", "10.0", "71.0", "74", "50"]
    assert printed[ORACLE.name] == ["70.0", "10.0", "95.0", "71", "60"]
    assert shares_table([]) is None
    assert shares_table([one for one in ceilings(REACHED) if one.variant != MAJORITY.id]) is None


def test_every_verdict_has_a_sign_and_a_text() -> None:
    for verdict in Judgement.model_fields["verdict"].annotation.__args__:
        judged = Judgement.model_validate({"check": "claim: x", "verdict": verdict, "detail": "d"})
        assert SIGNS[verdict]
        assert verdict == "holds" or _claims([judged])
