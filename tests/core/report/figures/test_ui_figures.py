"""Pictures of committed outputs: what they may weigh and show, and what becomes of one that cannot be drawn."""

import base64
import logging
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
from checkout import CHECKOUT

from schemas.arrow import table_of
from schemas.config import PipelineConfig, ReportConfig, RunOptions
from schemas.planners import PLANNERS
from schemas.results import CurvePoint
from trajpilot_core.engine.progress import CountedSteps, portion
from trajpilot_core.errors import StoreError
from trajpilot_core.report import figures
from trajpilot_core.report.committed import committed_under
from trajpilot_core.report.drawing.charts import MOST_ROWS, Bar, Chart, Point, Series, bar_chart, line_chart
from trajpilot_core.report.drawing.row_styles import BETWEEN, LONGEST, SHORTEST
from trajpilot_core.report.drawing.svg_grid import MOST_BYTES, Drawn, NotDrawn, NothingToDraw, Picture, fitted, sheet
from trajpilot_core.report.figures import CHARTS, PICTURES, curves, figures_of, report_charts
from trajpilot_core.report.figures.base import Figure, Material, draw
from trajpilot_core.report.figures.corpus import clips
from trajpilot_core.report.figures.curves import DEV_QUANTITIES, chosen_epoch
from trajpilot_core.report.tables.results import results_of
from trajpilot_core.stages import EVERY_STAGE

COMMITTED: Any = SimpleNamespace(config=PipelineConfig())
HOSTILE = '<script>alert(1)</script>"><img src="http://outside.example/x">'


def test_a_picture_that_is_too_large_is_drawn_smaller_until_it_fits_or_left_out_with_its_size() -> None:
    def of(size: int) -> Drawn:
        return Drawn(bytes(size), f"{size}", smaller=lambda: of(size // 2))

    made = fitted("p", "t", of(MOST_BYTES * 2))
    assert (made.caption, len(made.uri) <= MOST_BYTES) == (str(MOST_BYTES // 2), True)
    huge = fitted("p", "t", Drawn(bytes(MOST_BYTES), "huge"))
    assert huge == NotDrawn("p", "t", "267 kB is too large; the limit is 200 kB")


def test_a_picture_that_cannot_be_drawn_is_a_line_with_its_reason_and_a_fault_of_ours_is_not_hidden(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(error: Exception) -> Figure:
        def broken(committed: Any) -> Drawn:
            raise error

        return Figure("p", "A title", ("ingest",), broken)

    monkeypatch.setattr(logging.getLogger("trajpilot"), "propagate", True)
    for error in (NothingToDraw("no row was scored"), StoreError("damaged"), OSError("no disk"), ValueError("nan")):
        with caplog.at_level(logging.INFO, "trajpilot"):
            made = draw("ingest", failing(error), COMMITTED)
        assert made == NotDrawn("p", "A title", str(error))
        assert f"no picture 'A title': {error}" in caplog.text
    with pytest.raises(KeyError):
        draw("ingest", failing(KeyError("segment_id")), COMMITTED)


def test_every_picture_of_an_empty_root_is_a_reason_that_names_the_stage_to_run(tmp_path: Path) -> None:
    committed = committed_under(PipelineConfig(), RunOptions(root=str(tmp_path), data_root=str(tmp_path)))
    for stage in {stage for figure in PICTURES for stage in figure.stages}:
        for figure in figures_of(stage):
            made = draw(stage, figure, committed)
            assert "run " in made.reason


def test_no_frame_is_decoded_where_the_report_may_show_none(tmp_path: Path) -> None:
    config = PipelineConfig(report=ReportConfig(frames=False))
    with pytest.raises(NothingToDraw, match="personal data"):
        clips(committed_under(config, RunOptions(root=str(tmp_path))))


def test_hostile_names_are_text_in_a_picture() -> None:
    chart = bar_chart(HOSTILE, HOSTILE, [Bar(HOSTILE[:19], (("train", 3),))])
    content = sheet([Chart(HOSTILE, chart)], (), HOSTILE).decode()
    tags = {element.tag.split("}")[1] for element in ElementTree.fromstring(content).iter()}
    assert tags == {"svg", "style", "rect", "text"}


def test_bars_that_do_not_fit_are_counted_and_none_are_nothing_to_draw() -> None:
    assert "nothing to draw" in bar_chart("Left out", "takes", [])
    bars = [Bar(f"scenario {i}", (("train", i),)) for i in range(MOST_ROWS + 5)]
    assert "takes; 5 more not shown" in bar_chart("t", "takes", bars)


def test_the_epoch_that_is_marked_is_the_first_with_the_best_dev_score() -> None:
    scores = [0.1, 0.4, 0.4, 0.2]
    rows = [
        CurvePoint(model="final/traj", seed=0, epoch=e, split="dev", quantity="M@1", value=v)
        for e, v in enumerate(scores, start=1)
    ]
    assert chosen_epoch(rows, "final/traj", "M@1") == 2
    assert chosen_epoch(rows, "final/traj", "R@5") == 0, "not measured"


def planner_curves(
    epochs: int, horizons: tuple[int, ...] = (3, 4, 5, 6, 7, 8), rates: tuple[str, ...] = ("", ", rate x3")
) -> list[CurvePoint]:
    """Curves of every planner, horizon and learning rate; the chosen rate has no name, the last epoch is the best."""
    models = [f"final/{method}_h{h}{rate}" for method in PLANNERS for h in horizons for rate in rates]
    quantities = (("train", "loss"), ("train", "Mid mAcc"), ("dev", "Mid mAcc"))
    return [
        CurvePoint(model=model, seed=0, epoch=epoch, split=split, quantity=quantity, value=1 / (2 + epochs - epoch))  # type: ignore[arg-type]
        for model in models
        for split, quantity in quantities
        for epoch in range(1, epochs + 1)
    ]


def drawn_planners(rows: list[CurvePoint]) -> Picture | NotDrawn:
    (figure,) = figures_of("planners")
    tables = {("planners", "planners_curves"): table_of(CurvePoint, rows)}
    own = {"table": lambda *name: tables[name], "warning": lambda: ""}
    return draw("planners", figure, SimpleNamespace(config=PipelineConfig(), **own))


def svg_of(picture: Picture | NotDrawn) -> str:
    assert isinstance(picture, Picture), picture
    return base64.b64decode(picture.uri.split(",", 1)[1]).decode()


def test_planners_have_their_names_and_colours_in_the_picture_of_their_training() -> None:
    """A pair of panels each; of six horizons three, told apart by dashes; curves of other learning rates nowhere."""
    text = svg_of(drawn_planners(planner_curves(9)))
    titles = re.findall(r'class="title"[^>]*>([^<]*)<', text)
    names = ("SCHEMA", "PDPP", "ViterbiPlanNet")
    shown = ("training loss", "dev Mid mAcc, thin: on training takes")
    assert titles == [f"{name}: {what}" for name in names for what in shown]
    keys = re.findall(r'class="key"[^>]*>([^<]*)<', text)
    assert keys == [f"{name}, H={h}: epoch 9" for name in names for h in (3, 6, 8)]
    assert "rate x" not in text
    assert not any(f"{method}_h" in text for method in PLANNERS)
    for method in PLANNERS:
        assert all(f'class="line {method} {dash}"' in text for dash in (SHORTEST, BETWEEN, LONGEST)), method
    assert f".{SHORTEST} polyline {{ stroke-dasharray:" in text


def test_one_horizon_is_a_full_line_and_a_rate_that_was_not_chosen_would_be_seen() -> None:
    """The planted fault: a training that was not kept, under a name without its rate."""
    rows = planner_curves(9, (5,))
    text = svg_of(drawn_planners(rows))
    assert 'class="line schema longest"' in text
    assert "shortest" not in text.split("</style>")[1]
    faulty = [row.replace(model=row.model.replace("5, rate x3", "6")) for row in rows]
    assert "SCHEMA, H=6" in svg_of(drawn_planners(faulty))


def test_the_picture_of_as_many_epochs_as_the_originals_train_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault, a point for every epoch, is too large for Prefect's database."""
    rows = planner_curves(500, (3, 6, 8), ("",))
    assert isinstance(drawn_planners(rows), Picture)
    monkeypatch.setattr(curves, "MOST_POINTS", 500)
    assert isinstance(drawn_planners(rows), NotDrawn)


def test_the_curves_show_the_scores_by_which_the_trainings_choose() -> None:
    folder = CHECKOUT / "trajpilot_core" / "training"
    for file in ("fit_alignment", "fit_predictor", "scorer_fit", "fit_planners", "fit_latent"):
        selected = re.findall(r'(?:selected=|SELECTED = )"dev/([^"]+)"', (folder / f"{file}.py").read_text())
        assert selected, file
        assert set(selected) <= set(DEV_QUANTITIES), file


def test_work_of_several_parts_only_moves_forward() -> None:
    told: list[float] = []

    def progress(done: int, total: int, what: str) -> None:
        told.append(done / total)

    for n in range(2):
        first, second = (portion(portion(progress, n * 5, 10), before, 5) for before in (0, 2))
        first(0, 1, "")
        first(1, 2, "")
        second(1, 3, "")
        second(3, 3, "")
    steps = CountedSteps(progress, after=2)
    assert told == sorted(told)
    assert told[-1] == 1.0
    told.clear()
    steps(1, 2, "")
    steps(2, 2, "")
    steps.begin("one")
    steps.begin("two")
    assert told == [0.25, 0.5, 0.5, 0.75]


def test_a_figure_in_one_file_is_found_in_the_report_and_among_the_pictures_of_its_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [figure.name for figure in figures_of("ingest")]
    toy = Figure("toy", "A toy", ("ingest",), lambda committed: Drawn(b"<svg/>", "a toy"))

    def charts(material: Material) -> list[Chart]:
        n = float(len(material.results.variants()))
        line = Series("rows", "scorer", (Point(3.0, n, n, n),))
        return [Chart("How many rows a toy counts", line_chart("Toy", "H", "rows", [line], x_ticks=(3.0,)))]

    monkeypatch.setattr(figures, "PICTURES", (*PICTURES, toy))
    monkeypatch.setattr(figures, "CHARTS", {**CHARTS, "training": (*CHARTS["training"], charts)})
    assert [figure.name for figure in figures_of("ingest")] == [*before, "toy"]
    made = draw("ingest", toy, COMMITTED)
    assert made.title == "A toy"
    training = report_charts(Material(results_of([], []), [], [], [], []))["training"]
    assert "How many rows a toy counts" in [chart.caption for chart in training]


def test_every_stage_that_a_picture_names_exists_and_has_one_of_each_name() -> None:
    pictures = [(stage, figure.name) for figure in PICTURES for stage in figure.stages]
    assert {stage for stage, _ in pictures} <= set(EVERY_STAGE)
    assert len(set(pictures)) == len(pictures)
