"""The report says what can be known at most, shows a broken ceiling in red, and where a gain comes from."""

import json
import math

import pytest
from report_page import CFG
from synthetic_results import Kept, Tables, built

from schemas.arrow import rows_of, table_of
from schemas.results import Ceiling, Judgement, Metric
from trajpilot_core.evaluation.ceiling import NO_CEILING
from trajpilot_core.methods import method
from trajpilot_core.report.figures.rows import horizon_charts
from trajpilot_core.report.tables.ceilings import INFORMATION, absence, ceiling_tables, state_of
from trajpilot_core.report.tables.results import attribution_tables, results_of
from trajpilot_core.report.tables.table import DAGGER, Value, number

SCORER = {k: v for k, v in method("scorer").against.items() if v}


@pytest.fixture(scope="module")
def rows(inputs: Tables) -> list[Ceiling]:
    return rows_of(Ceiling, inputs.tables["ceilings"])


def html(kept: Kept) -> str:
    return kept.documents["report.html"].decode()


def with_ceilings(few: Tables, rows: list[Ceiling]) -> Tables:
    return Tables({**few.tables, "ceilings": table_of(Ceiling, rows)})


def raised(rows: list[Ceiling], variant: str, horizon: int | None, metric: str) -> list[Ceiling]:
    """Plant a row that lies four standard errors above its ceiling."""

    def one(row: Ceiling) -> Ceiling:
        if (row.variant, row.horizon, row.metric) != (variant, horizon, metric):
            return row
        return row.replace(value=row.ceiling + 3.6, difference=3.6, above=True)

    return [one(row) for row in rows]


def test_every_ceiling_is_printed_as_it_stands_in_the_table(kept: Kept, rows: list[Ceiling]) -> None:
    (table,) = ceiling_tables(rows)
    printed = {(group.title, row[0].row): [str(cell) for cell in row[1:]] for group, of in table.blocks() for row in of}
    for row in rows:
        place = f"H = {row.horizon}" if row.horizon else "mean of the horizons"
        difference = f"{number(row.difference, is_signed=True)} ({number(row.standard_error)})"
        wanted = f"{number(row.value)} / {number(row.ceiling)}, {difference}"
        assert printed[place, row.variant][table.header.index(row.metric) - 1] == wanted, (place, row.variant)
    assert str(table.html()) in html(kept)
    assert json.loads(kept.documents["report.json"])["ceilings"] == [row.model_dump(mode="json") for row in rows]


def test_kept_ceilings_raise_no_alarm(kept: Kept) -> None:
    page = html(kept)
    assert 'class="c-broken' not in page
    assert 'class="alarm"' not in page


def test_a_broken_ceiling_is_red_at_the_top_and_in_the_table(few: Tables, rows: list[Ceiling]) -> None:
    made = built(with_ceilings(few, raised(rows, "scorer", None, "M@1")), CFG)
    page = html(made)
    alarm = page.split('<div class="alarm" role="alert">', 1)[1].split("</div>", 1)[0]
    assert "A row is above its ceiling" in alarm
    assert "Scorer, M@1 over all horizons: 65.6 / 62.0, +3.6 (0.9) ABOVE: a leak" in alarm
    line = page.split('id="t-ceilings"', 1)[1].split("k-scorer", 1)[1].split("</tr>", 1)[0]
    assert '<td class="c-broken">65.6 / 62.0, +3.6 (0.9) ABOVE: a leak</td>' in line
    document = json.loads(made.documents["report.json"])
    assert [said.partition(" over")[0] for said in document["ceilings_say"]] == ["Scorer, M@1"]
    assert b"+3.6 (0.9) ABOVE: a leak" in made.documents["metrics.tex"]


def test_a_single_figure_above_its_ceiling_warns_and_does_not_raise_the_alarm(few: Tables, rows: list[Ceiling]) -> None:
    page = html(built(with_ceilings(few, raised(rows, "scorer", 5, "F@5")), CFG))
    assert 'class="alarm"' not in page
    assert page.count('class="c-warn"') == 1


def test_recorded_takes_and_a_layout_without_exact_ceilings_say_why_there_are_none(few: Tables) -> None:
    assert ceiling_tables([]) == []
    assert "Recorded takes have no ceiling" in absence(simulated=False)
    judgements = rows_of(Judgement, few.tables["judgements"])
    none = Judgement(check=NO_CEILING, verdict="not run", detail="shots are no steps")
    judged = table_of(Judgement, [*judgements, none])
    page = html(built(Tables({**with_ceilings(few, []).tables, "judgements": judged}), CFG))
    assert "No exact ceiling for this layout of the simulated world: shots are no steps." in page
    assert "No ceiling was computed for this run" not in page


def test_too_few_takes_judge_no_ceiling(rows: list[Ceiling]) -> None:
    (table,) = ceiling_tables([row.replace(standard_error=math.inf) for row in rows])
    assert all("(too few takes)" in str(cell) for row in table.rows for cell in row[1:])
    assert "inf" not in table.html()


def test_the_verdict_follows_the_evaluation(rows: list[Ceiling]) -> None:
    for above, binding, state in ((False, True, "kept"), (True, True, "broken"), (True, False, "warn")):
        assert state_of(rows[0].replace(above=above, binding=binding)) == state


def test_the_horizon_chart_has_a_thin_line_per_kind_of_information(inputs: Tables, rows: list[Ceiling]) -> None:
    results = results_of(rows_of(Metric, inputs.tables["metrics"]), [])
    for figure in horizon_charts(results, rows):
        assert [line.style for line in figure.series if line.kind == "bound"] == [*INFORMATION]
        assert "ceiling of Endpoint-Traj: 3: " in figure.description
    plain = horizon_charts(results, [])
    assert not any(line.kind == "bound" for figure in plain for line in figure.series)


def test_the_attribution_has_a_line_per_part_that_is_taken_away(inputs: Tables, kept: Kept) -> None:
    tables = {t.id: t for t in attribution_tables(results_of(rows_of(Metric, inputs.tables["metrics"]), []))}
    assert [row[0].row for row in tables["against-scorer"].rows] == list(SCORER)
    for cell in (one for row in tables["against-scorer"].rows for one in row if isinstance(one, Value)):
        assert (cell.metric.variant, cell.metric.pooling) == ("scorer", "plain")
    block = html(kept).split('<section id="retrieval">', 1)[1].split("</section>", 1)[0]
    for wanted in SCORER.values():
        assert wanted.replace("'", "&#39;") in block


def test_an_undertrained_ablation_marks_the_line_that_rests_on_it(inputs: Tables) -> None:
    weak = Judgement(check="trained: final/scorer_no_labels, seed 0", verdict="undertrained", detail="")
    results = results_of(rows_of(Metric, inputs.tables["metrics"]), [weak])
    lines = [row[0] for row in attribution_tables(results)[0].rows]
    assert [name.row for name in lines if DAGGER in name.text] == ["scorer_no_labels"]
