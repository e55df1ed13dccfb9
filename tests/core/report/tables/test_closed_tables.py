"""The paper's tables of closed vocabularies on the page of one run, and the published values of its benchmark."""

from report_page import CFG, Reader, real, with_metrics
from synthetic_results import Tables, built

from schemas.arrow import rows_of
from schemas.results import Metric
from schemas.training import KEYSTEP_DECODING, ClassHeadSettings
from trajpilot_core.paper.published import HORIZONS, published_of, published_settings
from trajpilot_core.report.tables.anticipation import closed_tables, settings_table
from trajpilot_core.report.tables.published import comparisons, published_for
from trajpilot_core.report.tables.results import Results, results_of

HEADS = ClassHeadSettings(bridge_weight=0.15, decoding=KEYSTEP_DECODING, candidates=5)
CLOSED = CFG.replace(corpus="egoexo4d_keystep", heads=HEADS)


def results(inputs: Tables) -> Results:
    return results_of(rows_of(Metric, inputs.tables["metrics"]), [])


def test_class_heads_bring_both_layouts_of_the_paper_and_classes_its_panel(inputs: Tables) -> None:
    overall, full = closed_tables(results(inputs), CLOSED, 375)
    assert overall.metrics == ("SR", "Mid mAcc", "mIoU")
    assert [group.title for group in overall.groups] == ["mean of the horizons"]
    assert full.metrics == ("SR", "Mid mAcc", "mIoU", "ED")
    assert [group.title for group in full.groups] == [f"H = {h}" for h in HORIZONS]
    rows = [row.variant for row in full.groups[0].rows]
    assert set(rows) == {"no_traj", "scorer", "oracle"}, "rows that the paper has not stand elsewhere"
    (panel,) = closed_tables(results(inputs), CFG.replace(is_closed=True), 72)
    assert panel.metrics == ("M@1", "M@5", "MSeq")
    assert [group.title for group in panel.groups] == ["mean over all windows"]
    assert closed_tables(results(inputs), CFG, 72) == []


def test_the_page_shows_them_with_the_settings_of_the_heads(inputs: Tables, page: Reader) -> None:
    assert "Settings of the class heads" not in "".join(page.text)
    assert not any(table.startswith("t-closed") for table, _ in page.cells)
    page = Reader(built(inputs, CLOSED).documents["report.html"].decode())
    text = "".join(page.text)
    assert "Closed-vocabulary planning, " in text
    assert "Settings of the class heads" in text
    assert ("t-closed-full", "oracle||3|Mid mAcc") in page.cells


def test_the_published_settings_stand_below_those_of_a_recorded_corpus_alone() -> None:
    recorded, simulated = (settings_table(CLOSED, 375, is_simulated=is_so) for is_so in (False, True))
    assert recorded is not None
    assert simulated is not None
    assert [str(cell) for cell in recorded.rows[1]][1:5] == ["375", "0.15", "1.5", "0.5 / 1"]
    assert [str(cell) for cell in recorded.rows[0]][1:5] == ["375", "0.15", "1.5", "0.5 / 1"]
    assert len(simulated.rows) == 1
    assert "simulated" in str(simulated.rows[0][0])


def test_published_values_of_a_benchmark_are_its_own() -> None:
    for corpus, n_labels, wanted in (("egoexo4d_keystep", 375, [20.72, 15.26]), ("goalstep", 310, [7.51, 7.25])):
        found = published_of(corpus, is_closed=False)
        assert found is not None
        assert len(found.values) == 6 * 6 * 4 + 6 * 3
        assert [found.values[place, "viterbi_plan_net", "Mid mAcc"] for place in (3, "plain")] == wanted
        assert published_settings(corpus)["labels"] == n_labels


def test_the_panel_of_the_classes_has_its_published_values() -> None:
    found = published_of("egoexo4d_atomic", is_closed=True)
    assert found is not None
    assert found.values["sample", "scorer", "M@1"] == 30.6
    assert found.values["sample", "pdpp", "MSeq"] == 10.3
    assert len(found.values) == 5 * 2


def test_a_recorded_benchmark_is_set_next_to_the_paper_and_a_simulated_one_never(inputs: Tables) -> None:
    found = results(real(inputs))
    rows = comparisons(found, published_for(found, CLOSED))
    assert len(rows) == 3 * (6 * 4 + 3)  # three of the paper's six rows are in these made-up results
    assert {row.place for row in rows} == {*map(str, HORIZONS), "mean of the horizons"}
    assert published_for(results(inputs), CLOSED) is None
    other = with_metrics(real(inputs), lambda m: m.replace(corpus="goalstep"))
    assert published_for(results(other), CLOSED) is None, "takes of GoalStep under the reader of Keystep"
