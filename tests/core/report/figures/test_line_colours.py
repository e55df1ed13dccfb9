"""Lines of one chart never share a colour, and each row has one printed name and one colour wherever it stands."""

import math
import re
from itertools import combinations

import pytest
from report_page import Reader
from synthetic_results import Tables

from schemas.arrow import rows_of
from schemas.results import CurvePoint, Metric
from trajpilot_core.methods import METHODS
from trajpilot_core.report.drawing.charts import Chart
from trajpilot_core.report.drawing.row_styles import style_of
from trajpilot_core.report.figures import rows
from trajpilot_core.report.figures.curves import NAMES, training_charts
from trajpilot_core.report.tables.results import cell_of, results_of


def every_row(inputs: Tables) -> list[Metric]:
    """Figures for every row that there is: those of No-Traj under other names."""
    own = [m for m in rows_of(Metric, inputs.tables["metrics"]) if m.variant == "no_traj"]
    return [m.replace(variant=one.id) for one in METHODS for m in own]


def curves_of(models: list[str]) -> list[CurvePoint]:
    return [
        CurvePoint(model=f"final/{model}", seed=0, epoch=epoch, split=split, quantity=quantity, value=0.1 * epoch)
        for model in models
        for epoch in (1, 2)
        for split, quantity in (("train", "loss"), ("dev", "M@1"))
    ]


@pytest.fixture(scope="module")
def charts(inputs: Tables) -> list[Chart]:
    """Every chart of a run that has every row and every model."""
    models = sorted({model.split("/")[-1] for one in METHODS for model in one.models} | set(NAMES))
    results = results_of(every_row(inputs), [])
    (trained,) = training_charts([("predictor", curves_of(models[:8]))])
    return [rows.gain_chart(results), *rows.horizon_charts(results, []), rows.control_chart(results), *trained]


def alike(one: str, other: str) -> bool:
    """Whether the colours of two styles are closer than 30 in RGB of 0 to 255, on white or on black."""
    first, second = style_of(one), style_of(other)
    pairs = ((first.light, second.light), (first.dark, second.dark))
    return any(math.dist(bytes.fromhex(a[1:]), bytes.fromhex(b[1:])) < 30 for a, b in pairs)


def test_lines_of_one_chart_differ_in_colour(charts: list[Chart]) -> None:
    seen = 0
    for chart in charts:
        for one, other in combinations(dict.fromkeys(line.style for line in chart.series), 2):
            assert not alike(one, other), (one, other, chart.title)
            seen += 1
    assert seen > 200
    assert alike("no_traj", "anticipation_no_traj"), "what would be found: two rows of one colour"
    assert not alike("no_traj", "oracle")


def test_what_prints_as_zero_is_neither_better_nor_worse(inputs: Tables) -> None:
    gain = next(m for m in rows_of(Metric, inputs.tables["metrics"]) if m.reference and m.metric == "M@1")
    small, seen = (gain.replace(value=-v, low=-v - 0.01, high=-v + 0.01) for v in (0.03, 0.3))
    assert (cell_of(small).text, cell_of(small).sign) == ("0.0", "")
    assert cell_of(seen).sign == "worse"


def test_rows_have_one_printed_name(page: Reader) -> None:
    """No id of a row is printed; ids stand in keys, classes and names of models."""
    assert len({one.name for one in METHODS}) == len(METHODS)
    text = re.sub(r"final/\w+", "", "".join(page.text))
    ids = [one.id for one in METHODS if "_" in one.id]
    assert [id_ for id_ in ids if re.search(rf"\b{id_}\b", text)] == []
    assert "(ours)" not in text
    assert "no-traj" not in text
