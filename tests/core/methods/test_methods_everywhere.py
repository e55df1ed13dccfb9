"""A declared row is found wherever rows are shown, scored, bounded or checked; an undeclared one is refused."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pytest
from report_page import Reader
from right_predictions import predictions_of
from rows_fixture import METHOD, listed
from synthetic_corpus import SKILL, corpus, predictions
from synthetic_results import Kept, Tables, built, report_inputs

from schemas.arrow import rows_of, table_of
from schemas.config import CompletedReport, EvaluationConfig
from schemas.results import Metric
from trajpilot_core.errors import MethodError
from trajpilot_core.evaluation.ceiling import ExactCeilings, compare, row_scores
from trajpilot_core.evaluation.checks import gate_check
from trajpilot_core.evaluation.prediction_arrays import Predictions
from trajpilot_core.evaluation.tables import gate_rows, metric_rows
from trajpilot_core.methods import METHODS, examined
from trajpilot_core.metrics import with_ceiling
from trajpilot_core.predict import answers
from trajpilot_core.predict.page import gate_said
from trajpilot_core.report.drawing.charts import Series
from trajpilot_core.report.gallery.windows import draw

CFG = CompletedReport(frames=False)
KNOWN = {"no_traj": 11.0, "endpoint_traj": 22.0, "oracle": 33.0}
"""Made-up exact ceiling of every window."""


@dataclass
class Made:
    """A run with the toy row."""

    predicted: Predictions
    inputs: Tables
    report: Kept

    def metrics(self, reference: str | None) -> list[Metric]:
        """The toy's figures against a reference, averaged over seeds."""
        rows = rows_of(Metric, self.inputs.tables["metrics"])
        return [m for m in rows if m.variant == "toy" and m.reference == reference and m.seed is None]

    def page(self) -> str:
        return self.report.documents["report.html"].decode()

    def section(self, id_: str) -> str:
        return self.page().split(f'<section id="{id_}"')[1].split("</section>")[0]

    def cells(self, table: str) -> list[str]:
        """Keys of the toy's cells in a table of the page."""
        return [key for id_, key in Reader(self.page()).cells if id_ == f"t-{table}" and key.startswith("toy|")]


@pytest.fixture(scope="module")
def made() -> Iterator[Made]:
    tables = corpus(n_train=6, n_test=8, n_segments=9)
    with listed():
        predicted = predictions(tables, {**SKILL, "toy": 0.45})
        inputs = report_inputs(tables, draws=100, predicted=predicted)
        yield Made(predictions_of(predicted), inputs, built(inputs, CFG))


def test_it_is_scored_and_compared_with_the_reference_and_its_own_references(made: Made) -> None:
    for reference in (None, "no_traj", *METHOD.against):
        assert {m.metric for m in made.metrics(reference)} >= {"M@1", "MSeq"}, reference
    assert not made.metrics("oracle"), "nobody asked for that"
    assert "toy" in pc.unique(row_scores(made.predicted)["variant"]).to_pylist()
    assert "toy" in pc.unique(made.inputs.tables["outcomes"]["variant"]).to_pylist()


def test_it_is_compared_with_the_ceiling_that_it_declares(made: Made) -> None:
    windows = tuple(made.predicted.window_ids)
    values = {kind: np.full((len(windows), len(with_ceiling())), value) for kind, value in KNOWN.items()}
    takes, horizons = ("t",) * len(windows), np.zeros(len(windows), np.int64)
    known = ExactCeilings(windows, takes, horizons, values, values, 0)
    METHODS.remove(METHOD)
    try:
        for bound in KNOWN:
            with listed(replace(METHOD, sees="ends", ceiling=bound)):
                found = {row.ceiling for row in compare(made.predicted, known) if row.variant == "toy"}
            assert found == {KNOWN[bound]}
    finally:
        METHODS.append(METHOD)


def test_its_gate_is_checked_and_a_closed_one_that_answers_for_itself_fails_by_its_name(made: Made) -> None:
    judged = gate_check(made.predicted)
    assert judged.verdict == "holds"
    assert "Toy row on " in judged.detail
    judgements = made.inputs.tables["judgements"].to_pylist()
    assert any("Toy row on " in row["detail"] for row in judgements)
    blocks = [replace(b, rankings=b.rankings[:, :, ::-1]) if b.variant == "toy" else b for b in made.predicted.blocks]
    judged = gate_check(replace(made.predicted, blocks=blocks))
    assert judged.verdict == "fails"
    assert "toy, H=3" in judged.detail


def test_every_table_and_chart_of_main_rows_and_the_gallery_of_the_report_show_it(made: Made) -> None:
    for table in ("overview", "gain", "horizons", "gain-horizons", "sequences", "gain-top1", "against-toy"):
        assert made.cells(table), table
    assert not made.cells("controls"), "it is a main row"
    assert "beyond a toy&#39;s average" in made.page()
    assert "as much as a toy knows" in made.page()
    assert "Toy row" in made.report.documents["metrics.tex"].decode()
    ceilings = made.page().split('id="t-ceilings"')[1].split("</tbody>")[0]
    assert '<span class="chip k-toy">' in ceilings, "the table of ceilings"
    for section in ("summary", "horizon", "gallery"):
        assert "Toy row" in made.section(section), section
    assert "fill: var(--toy)" in made.section("summary")
    assert ">the toy's own</text>" in made.section("gallery")


def test_it_has_its_colours_dashes_and_mark_on_pages_and_pictures(made: Made) -> None:
    assert "--toy: #123456;" in made.page()
    assert "--toy: #abcdef;" in made.page()
    assert ".k-toy { color: var(--toy); }" in made.page()
    assert "#123456" not in made.page().split("</style>", 1)[1], "a page has a dark theme"
    look = Series("a toy", "toy", ()).look
    assert (look["color"], look["linestyle"], look["marker"]) == ("#123456", (0, (8.0, 1.0, 1.0, 1.0)), "D")
    assert look["linewidth"] == pytest.approx(2.2 * 0.75)


def test_it_answers_a_users_video_in_its_place(made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    said = object()
    monkeypatch.setattr(answers, "METHODS", [replace(one, answer=lambda _: said) for one in METHODS if one.answer])
    batch: Any = SimpleNamespace()
    assert list(answers.answers_of(batch, moving=True))[-2:] == ["no_traj", "toy"]
    assert "toy" not in answers.answers_of(batch, moving=False)


def test_its_gate_is_described_in_its_own_words(made: Made) -> None:
    row: Any = SimpleNamespace(row="toy", gate=0.25, threshold=0.5, opened=False)
    closed = "gate closed: 0.250, opens from 0.500; the answer is that of No-Traj"
    assert gate_said(row) == closed
    row.opened = True
    assert gate_said(row).endswith("; the toy stands")


def test_the_first_gate_of_the_list_decides_the_classes_of_the_gallery_and_the_table_of_the_gate(made: Made) -> None:
    first, gate = examined(), gate_rows(made.predicted)
    drawn = draw(made.inputs.tables["outcomes"], CFG)
    at = METHODS.index(first)
    METHODS.remove(first)
    try:
        assert (first.id, examined().id) == ("scorer", "toy")
        others = draw(made.inputs.tables["outcomes"], CFG)
        assert (drawn.row, others.row) == ("scorer", "toy")
        assert others.n_windows == drawn.n_windows
        assert others.sizes != drawn.sizes
        assert gate_rows(made.predicted) != gate
    finally:
        METHODS.insert(at, first)


def test_a_row_that_nobody_declared_is_refused_by_its_name(made: Made) -> None:
    tables = corpus(n_train=6, n_test=8, n_segments=9)
    unknown = predictions_of(predictions(tables, {"no_traj": 0.3, "unheard-of": 0.4}))
    with pytest.raises(MethodError, match="no row of the tables is called 'unheard-of'"):
        metric_rows(unknown, "toy", EvaluationConfig(bootstrap=100))
    metrics = made.inputs.tables["metrics"]
    renamed = [m.replace(variant="unheard-of") if m.variant == "toy" else m for m in rows_of(Metric, metrics)]
    with pytest.raises(MethodError, match="no row of the tables is called 'unheard-of'"):
        built(Tables({**made.inputs.tables, "metrics": table_of(Metric, renamed)}), CFG)
