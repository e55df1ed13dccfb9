"""Published values stand next to ours where the corpus and the task are theirs, and nowhere else."""

import pytest
from report_page import CFG, Reader, real, with_metrics
from synthetic_results import Tables, built

from schemas.arrow import rows_of
from schemas.results import Metric
from trajpilot_core.report.tables import published
from trajpilot_core.report.tables.results import results_of


def test_a_real_corpus_shows_the_published_value_beside_ours(inputs: Tables) -> None:
    text = "".join(Reader(built(real(inputs), CFG).documents["report.html"].decode()).text)
    assert "Published value next to ours" in text
    assert "29.38" in text
    assert "Simulated world." not in text


def test_another_corpus_has_no_published_value(inputs: Tables) -> None:
    other = with_metrics(inputs, lambda m: m.replace(corpus="epic"))
    assert published.comparisons(results_of(rows_of(Metric, other.tables["metrics"]), []), CFG) == []


@pytest.mark.parametrize("other", [{"corpus": "egoexo4d_keystep"}, {"corpus": None}, {"is_closed": True}])
def test_another_task_on_the_same_takes_has_no_published_value(inputs: Tables, other: dict[str, object]) -> None:
    results = results_of(rows_of(Metric, real(inputs).tables["metrics"]), [])
    assert published.comparisons(results, CFG)
    assert published.comparisons(results, CFG.replace(**other)) == []


def test_the_published_table_is_whole_and_marks_values_outside_our_interval(inputs: Tables) -> None:
    values = published.published_values()
    assert len(values) == 6 * 3 * 6
    assert values[3, "no_traj", "M@1"] == values[3, "no_traj", "MSeq"] == 29.38
    rows = published.comparisons(results_of(rows_of(Metric, real(inputs).tables["metrics"]), []), CFG)
    assert len(rows) == len(values)
    assert {row.is_outside for row in rows} == {True, False}
