"""Published values stand next to ours where the corpus and the task are theirs, and nowhere else."""

import pytest
from report_page import CFG, Reader, real, with_metrics
from synthetic_results import Kept, Tables, built

from schemas.arrow import rows_of
from schemas.features import RELEASED_NOTE
from schemas.results import Metric
from trajpilot_core.paper.published import HORIZONS, published_of
from trajpilot_core.report.tables.published import anticipation_for, comparisons, published_for
from trajpilot_core.report.tables.results import Results, results_of


def of(inputs: Tables) -> Results:
    return results_of(rows_of(Metric, inputs.tables["metrics"]), [])


@pytest.fixture(scope="module")
def ours(inputs: Tables) -> Results:
    """Results of recorded takes."""
    return of(real(inputs))


def test_a_real_corpus_shows_the_published_value_beside_ours(recorded: Kept) -> None:
    text = "".join(Reader(recorded.documents["report.html"].decode()).text)
    assert "Published value next to ours" in text
    assert "29.38" in text
    assert "SIMULATED" not in text


def test_another_corpus_and_another_task_on_the_same_takes_have_no_published_value(few: Tables, ours: Results) -> None:
    other = of(with_metrics(few, lambda m: m.replace(corpus="epic")))
    assert published_for(other, CFG) is None
    assert comparisons(other, None) == []
    assert published_for(ours, CFG)
    for task in ({"corpus": "egoexo4d_basketball"}, {"corpus": None}, {"released": "omnivore_video"}):
        assert published_for(ours, CFG.replace(**task)) is None


def test_a_recorded_run_on_released_features_says_so_on_the_page_and_above_each_latex_table(few: Tables) -> None:
    documents = built(real(few), CFG.replace(released="omnivore_video")).documents
    text = "".join(Reader(documents["report.html"].decode()).text)
    assert "Published value next to ours" not in text
    assert "29.38" not in text
    assert text.count(RELEASED_NOTE) >= 2  # among the facts, and among the limits
    latex = documents["metrics.tex"].decode()
    assert latex.count("not to be set next to published numbers") == latex.count("\\caption")


def test_the_published_table_is_whole_marks_values_outside_our_interval_and_is_another_for_classes(
    ours: Results,
) -> None:
    found, classes = (published_for(ours, CFG.replace(is_closed=is_so)) for is_so in (False, True))
    assert not set(found.values) & set(classes.values)
    assert (classes.values["sample", "scorer", "M@1"], len(classes.values)) == (30.6, 5 * 2)
    assert len(found.values) == 6 * 5 * 6
    assert found.values[3, "no_traj", "M@1"] == found.values[3, "no_traj", "MSeq"] == 29.38
    rows = comparisons(ours, found)
    assert len(rows) == 6 * 3 * 6, "the rows that this run has"
    assert {str(row[5]).endswith("(outside)") for row in rows} == {True, False}


NAMES = {"no_traj": "anticipation_no_traj", "top1": "anticipation_oracle_no_dropout"}


def anticipating(m: Metric) -> Metric:
    """The figure of a row without a goal."""
    return m.replace(variant=NAMES.get(m.variant, m.variant))


def test_without_a_goal_the_papers_future_and_full_stand_next_to_ours_on_its_recorded_corpus_alone(
    few: Tables, ours: Results
) -> None:
    recorded = results_of([anticipating(m) for m in ours.metrics], [])
    found = anticipation_for(recorded, CFG)
    n_seen, n_masked, n_all = 5 * 6 * 6, 2 * 6 * 3, 4 * 3
    assert len(found.values) == n_seen + n_masked + n_masked + 2 * n_all, "each number once, in our names"
    assert found.values[3, "anticipation_no_traj", "M@1"] == found.values[3, "anticipation_no_traj", "MSeq"]
    assert found.values["sample", "anticipation_oracle", "M@1"] == 33.9
    assert (3, "oracle", "M@1") not in found.values, "the table of planning prints it more exactly"
    rows = comparisons(recorded, found)
    assert {row[1] for row in rows} == {"No-Traj, no goal", "Oracle, no goal, no dropout", "Oracle"}
    assert anticipation_for(ours, CFG) is None, "no row of it anticipates"
    assert anticipation_for(of(with_metrics(few, anticipating)), CFG) is None, "simulated takes"
    for other in ({"corpus": "egoper"}, {"corpus": None}, {"is_closed": True}):
        assert anticipation_for(recorded, CFG.replace(**other)) is None
    text = "".join(Reader(built(with_metrics(real(few), anticipating), CFG).documents["report.html"].decode()).text)
    assert "full per-horizon results of anticipation" in text


# The published values of closed benchmarks.


CLOSED = CFG.replace(corpus="egoexo4d_keystep", has_heads=True)


def test_published_values_of_a_benchmark_are_its_own() -> None:
    for corpus, wanted in (("egoexo4d_keystep", [20.72, 15.26]), ("goalstep", [7.51, 7.25])):
        found = published_of(corpus, is_closed=False)
        assert len(found.values) == 6 * 6 * 4 + 6 * 3
        assert [found.values[place, "viterbi_plan_net", "Mid mAcc"] for place in (3, "plain")] == wanted


def test_a_recorded_benchmark_is_set_next_to_the_paper_and_a_simulated_one_never(few: Tables) -> None:
    found = of(real(few))
    rows = comparisons(found, published_for(found, CLOSED))
    assert len(rows) == 3 * (6 * 4 + 3)  # three of the paper's six rows are in these made-up results
    assert {row[0] for row in rows} == {*map(str, HORIZONS), "mean of the horizons"}
    assert published_for(of(few), CLOSED) is None
    other = with_metrics(real(few), lambda m: m.replace(corpus="goalstep"))
    assert published_for(of(other), CLOSED) is None, "takes of GoalStep under the reader of Keystep"
