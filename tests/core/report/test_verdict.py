"""The verdict says what the tables say: results planted the other way round turn it round."""

import json
import math

from report_page import CFG, Reader, with_metrics
from synthetic_results import Kept, Tables, a_metric, built

from schemas.arrow import rows_of, table_of
from schemas.results import Judgement, Metric
from trajpilot_core.report.tables.results import Results, results_of
from trajpilot_core.report.verdict import BROKEN, NOTHING, DerivedVerdict, story_of, verdict_of, with_faults


def planted(inputs: Tables, **gains: tuple[float, float, float]) -> Results:
    """The metrics with these gains over No-Traj (value, low, high), by row; of other rows there is none."""
    made = []
    for m in rows_of(Metric, inputs.tables["metrics"]):
        if m.reference != "no_traj":
            made.append(m)
        elif m.variant in gains:
            value, low, high = gains[m.variant]
            made.append(m.replace(value=value, low=low, high=high))
    return results_of(made, [])


def said(results: Results, **changes: bool) -> DerivedVerdict:
    return verdict_of(results, **{"simulated": True, "has_heads": False, "is_broken": False, **changes})


def test_the_interval_of_the_scorer_decides(inputs: Tables) -> None:
    for gain, state, words in (
        ((1.2, 0.3, 2.1), "helps", "a retrieved trajectory helps: Scorer − No-Traj = +1.2 points of M@1 [+0.3, +2.1]"),
        ((-1.2, -2.1, -0.3), "hurts", "a retrieved trajectory hurts: Scorer − No-Traj = −1.2 points of M@1"),
        ((1.2, -0.3, 2.1), "undecided", "no effect of a retrieved trajectory is shown: Scorer − No-Traj = +1.2"),
        ((-0.01, -0.4, 0.3), "undecided", "no effect of a retrieved trajectory is shown: Scorer − No-Traj = 0.0"),
        ((9.0, -math.inf, math.inf), "nothing", "nothing can be said of a retrieved trajectory (too few takes"),
    ):
        verdict = said(planted(inputs, scorer=gain, oracle=(5.0, 4.0, 6.0), pool_mean=(3.0, 2.0, 4.0)))
        assert (verdict.state, words in verdict.text) == (state, True), verdict


def test_the_best_row_is_never_one_that_is_told_the_truth(inputs: Tables) -> None:
    truth = {"oracle": (50.0, 40.0, 60.0), "previous": (40.0, 30.0, 50.0), "scorer": (1.0, 0.5, 1.5)}
    assert "best of" not in said(planted(inputs, **truth)).text
    assert "Endpoint-Traj, +2.0" in said(planted(inputs, **truth, endpoint_traj=(2.0, 1.0, 3.0))).text


def test_a_model_that_is_not_trained_gives_no_verdict(inputs: Tables) -> None:
    results = planted(inputs, scorer=(9.0, 8.0, 10.0), pool_mean=(12.0, 11.0, 13.0))
    weak = Results(results.metrics, frozenset({"scorer", "pool_mean"}))
    assert said(weak).state == "nothing"
    assert "(Scorer UNDERTRAINED)" in said(weak).text
    assert "best of" not in said(weak).text


def told(
    gains: dict[tuple[str, str], tuple[float, float, float]], weak: tuple[str, ...] = (), *, simulated: bool = True
) -> str:
    """The verdict of a run with these differences (value, low, high) by (row, reference); `weak`: below the floors."""
    rows = dict.fromkeys(row for pair in gains for row in pair)
    ends = [
        a_metric(variant=row, reference=other, value=value, low=low, high=high)
        for (row, other), (value, low, high) in gains.items()
    ]
    judged = [Judgement(check=f"trained: row {row}", verdict="undertrained", detail="") for row in weak]
    results = results_of([*(a_metric(variant=row) for row in rows), *ends], judged)
    return verdict_of(results, simulated=simulated, has_heads=False, is_broken=False, judgements=judged).text


def test_each_recipe_has_its_own_question() -> None:
    planners = {
        ("schema", "no_traj"): (-5.0, -6.0, -4.0),
        ("pdpp", "no_traj"): (2.0, 1.0, 3.0),
        ("scorer", "no_traj"): (1.0, 0.5, 1.5),
    }
    text = told(planners)
    assert "PDPP, the best planner of another paper, is above No-Traj: PDPP − No-Traj = +2.0 points of M@1" in text
    no_goal = {
        ("anticipation_scorer", "anticipation_no_traj"): (1.2, 0.3, 2.1),
        ("scorer", "no_traj"): (-9.0, -9.5, -8.5),
    }
    assert "a retrieved trajectory helps: Scorer, no goal − No-Traj, no goal = +1.2" in told(no_goal)
    latents = {("cem", "latent_no_traj"): (-1.0, -2.0, -0.5), ("scorer", "no_traj"): (9.0, 8.5, 9.5)}
    assert "CEM hurts: CEM − Latent No-Traj = −1.0" in told(latents)
    stories = [story_of({row for pair in gains for row in pair}) for gains in (planners, no_goal, latents)]
    assert len({story.question for story in (*stories, story_of({"no_traj", "scorer"}))}) == 4


def test_a_simulated_world_below_the_floors_is_called_too_small_and_recorded_takes_are_not() -> None:
    gains = {("scorer", "no_traj"): (1.2, 0.3, 2.1)}
    text = told(gains, ("scorer",))
    first = "This simulated world is too small to learn in: Scorer is not above the floors. The page only shows that"
    assert text.startswith(first)
    assert "nothing can be said of a retrieved trajectory (Scorer UNDERTRAINED): Scorer − No-Traj = +1.2" in text
    assert "too small" not in told(gains, ("scorer",), simulated=False)
    assert "too small" not in told(gains, ("oracle",)), "it does not decide"


def test_without_the_scorer_another_main_row_answers_and_without_any_none(inputs: Tables) -> None:
    one = said(planted(inputs, endpoint_traj=(-2.0, -3.0, -1.0)))
    assert (one.state, "Endpoint-Traj hurts" in one.text) == ("hurts", True)
    assert said(planted(inputs)) == DerivedVerdict("nothing", NOTHING)


def test_a_broken_ceiling_leaves_no_verdict(inputs: Tables) -> None:
    results = planted(inputs, scorer=(9.0, 8.0, 10.0))
    assert said(results, is_broken=True) == DerivedVerdict("nothing", BROKEN)


def test_the_sentence_stands_first_on_the_page_and_in_json_and_turns_with_the_results(
    few: Tables, kept: Kept, recorded: Kept, page: Reader
) -> None:
    def turned(m: Metric) -> Metric:
        return m.replace(value=-30.0, low=-31.0, high=-29.0) if m.reference and m.variant == "scorer" else m

    text, found = "".join(page.text), json.loads(kept.documents["report.json"])
    assert found["verdict"] in text
    assert text.index(found["verdict"]) < text.index("All rows but ablations")
    assert found["verdict"].startswith("In this simulated world, ")
    other = json.loads(built(with_metrics(few, turned), CFG).documents["report.json"])
    assert found["state"] != other["state"] == "hurts"
    text = json.loads(recorded.documents["report.json"])["verdict"]
    assert text.startswith("On the takes that were scored, ")
    assert "simulated" not in text


def test_checks_that_do_not_all_hold_are_unfolded_and_the_others_folded(few: Tables, kept: Kept) -> None:
    judged = rows_of(Judgement, few.tables["judgements"])
    assert all(one.verdict == "holds" for one in judged if one.check.startswith("trained: "))
    html = kept.documents["report.html"].decode()
    folded = "<summary>{} Do models and rows count as trained? "
    assert folded.format("4 of 4") in html
    weak = Judgement(check="trained: final/traj, seed 0", verdict="undertrained", detail="")
    other = Tables({**few.tables, "judgements": table_of(Judgement, [*judged, weak])})
    html = built(other, CFG).documents["report.html"].decode()
    checks = html.split('<section id="checks">')[1].split("</section>")[0]
    assert checks.index("4 of 5 Do models and rows count as trained?") < checks.index("<details>")
    assert checks.count("<details>") == 3


def test_a_failed_check_that_speaks_of_a_fault_is_named_on_the_first_screen_and_others_are_not(few: Tables) -> None:
    failed = Judgement(check="leak: planted <check>", verdict="fails", detail="seen at H=3")
    judgements = [*rows_of(Judgement, few.tables["judgements"]), failed]
    report = built(Tables({**few.tables, "judgements": table_of(Judgement, judgements)}), CFG)
    words = "This run FAILS its own check leak: planted <check> (seen at H=3)."
    assert json.loads(report.documents["report.json"])["verdict"].endswith(words)
    assert words.replace("<", "&lt;").replace(">", "&gt;") in report.documents["report.html"].decode()
    plain = said(planted(few, scorer=(1.2, 0.3, 2.1)))
    checks = (("identity: x", "fails"), ("demo: x", "fails"), ("trained: x", "fails"), ("demo: x", "holds"))
    for check, verdict in checks:
        judged = Judgement.model_validate({"check": check, "verdict": verdict, "detail": ""})
        is_named = verdict == "fails" and not check.startswith("trained")
        assert (with_faults(plain, [judged]) is plain) != is_named, check
    assert with_faults(plain, [failed.replace(verdict="not run")]) is plain
