"""Pictures of committed outputs: what they may weigh and show, and what becomes of one that cannot be drawn."""

import logging
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from checkout import CHECKOUT

from schemas.config import PipelineConfig, ReportConfig, RunOptions
from schemas.results import CurvePoint
from trajpilot_core.engine.progress import CountedSteps, portion
from trajpilot_core.errors import StoreError
from trajpilot_core.methods import METHODS
from trajpilot_core.report.committed import committed_under
from trajpilot_core.report.drawing.bars import MOST_ROWS, Bar, bar_chart
from trajpilot_core.report.drawing.charts import Axes, Point, Series, plan_chart
from trajpilot_core.report.drawing.picture import MOST_BYTES, Drawn, NotDrawn, NothingToDraw, Picture, fitted
from trajpilot_core.report.drawing.style import style
from trajpilot_core.report.drawing.svg_grid import Panel, sheet
from trajpilot_core.report.figures import FIGURES, figures_of
from trajpilot_core.report.figures.base import Figure
from trajpilot_core.report.figures.clips import clips
from trajpilot_core.report.figures.curves import CHOSEN_BY, chosen_epoch
from trajpilot_core.report.ui.gallery import draw

COMMITTED: Any = object()
HOSTILE = '<script>alert(1)</script>"><img src="http://outside.example/x">'


def test_a_picture_that_is_too_large_is_drawn_smaller_until_it_fits() -> None:
    def of(size: int) -> Drawn:
        return Drawn(bytes(size), f"{size}", smaller=lambda: of(size // 2))

    made = fitted("p", "t", of(MOST_BYTES * 2))
    assert isinstance(made, Picture)
    assert (made.caption, len(made.uri) <= MOST_BYTES) == (str(MOST_BYTES // 2), True)


def test_a_picture_that_cannot_be_made_small_enough_is_left_out_and_its_size_said() -> None:
    made = fitted("p", "t", Drawn(bytes(MOST_BYTES), "huge"))
    assert made == NotDrawn("p", "t", "267 kB are too large; at most 200 kB")


@pytest.mark.parametrize(
    "error", [NothingToDraw("nothing was trained"), StoreError("damaged"), OSError("no disk"), ValueError("nan")]
)
def test_a_picture_that_cannot_be_drawn_is_a_line_with_its_reason_and_ends_nothing(
    error: Exception, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(committed: Any) -> Drawn:
        raise error

    monkeypatch.setattr(logging.getLogger("trajpilot"), "propagate", True)
    with caplog.at_level(logging.INFO, "trajpilot"):
        made = draw("ingest", Figure("p", "A title", draw=broken), COMMITTED)
    assert made == NotDrawn("p", "A title", str(error))
    assert f"no picture 'A title': {error}" in caplog.text


def test_a_fault_of_ours_is_not_hidden_as_a_missing_picture() -> None:
    def faulty(committed: Any) -> Drawn:
        raise KeyError("segment_id")

    with pytest.raises(KeyError):
        draw("ingest", Figure("p", "t", draw=faulty), COMMITTED)


def test_every_picture_of_an_empty_root_is_a_reason_that_names_the_stage_to_run(tmp_path: Path) -> None:
    committed = committed_under(PipelineConfig(), RunOptions(root=str(tmp_path), data_root=str(tmp_path)))
    for stage in {stage for figure in FIGURES for stage in figure.stages}:
        for figure in figures_of(stage):
            made = draw(stage, figure, committed)
            assert isinstance(made, NotDrawn)
            assert "run " in made.reason


def test_no_frame_is_decoded_where_the_report_may_show_none(tmp_path: Path) -> None:
    config = PipelineConfig(report=ReportConfig(frames=False))
    with pytest.raises(NothingToDraw, match="personal data"):
        clips(committed_under(config, RunOptions(root=str(tmp_path))))


def test_hostile_names_are_text_in_a_picture() -> None:
    chart = bar_chart(HOSTILE, HOSTILE, [Bar(HOSTILE[:19], (("train", 3),))])
    content = sheet([Panel(HOSTILE, chart)], (), style(), 2, HOSTILE).decode()
    assert {element.tag.split("}")[1] for element in ElementTree.fromstring(content).iter()} == {
        "svg",
        "style",
        "rect",
        "text",
    }


def test_bars_that_do_not_fit_are_counted() -> None:
    bars = [Bar(f"scenario {i}", (("train", i),)) for i in range(MOST_ROWS + 5)]
    assert "takes; 5 more not shown" in bar_chart("t", "takes", bars)


def test_a_path_is_drawn_at_one_scale_with_its_start_marked() -> None:
    square = tuple(Point(x, y, y, y) for x, y in ((0.0, 0.0), (1.0, 0.0), (1.0, 1.0)))
    chart = plan_chart(Axes("t", "m", "", ()), [Series("path", "oracle", square)])
    points = chart.split('points="')[1].split('"')[0].split()
    (x0, y0), (x1, _), (_, y2) = (tuple(map(float, point.split(","))) for point in points)
    assert x1 - x0 == pytest.approx(y0 - y2, abs=0.2)
    assert f'class="start" d="M{x0} {y0}' in chart
    assert "<svg" in plan_chart(Axes("t", "m", "", ()), [Series("still", "oracle", square[:1])])


def test_every_row_has_the_colour_of_the_report() -> None:
    assert all(f".{one.id} {{ color: #" in style() for one in METHODS)
    assert ".scorer { color: #0072b2; }" in style()


def test_the_epoch_that_is_marked_is_the_first_with_the_best_dev_score() -> None:
    scores = [0.1, 0.4, 0.4, 0.2]
    rows = [
        CurvePoint(model="final/traj", seed=0, epoch=e, split="dev", quantity="M@1", value=v)
        for e, v in enumerate(scores, start=1)
    ]
    assert chosen_epoch(rows, "final/traj", "M@1") == 2
    with pytest.raises(NothingToDraw, match="no dev R@5"):
        chosen_epoch(rows, "final/traj", "R@5")


def test_the_curves_show_the_scores_by_which_the_trainings_choose() -> None:
    folder = CHECKOUT / "trajpilot_core" / "training"
    files = {
        "alignment": "fit_alignment",
        "predictor": "fit_predictor",
        "scorer": "scorer_fit",
        "scorer_plus": "scorer_plus_fit",
    }
    for name, file in files.items():
        assert f'selected="dev/{CHOSEN_BY[name]}"' in (folder / f"{file}.py").read_text()


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


def test_a_table_without_rows_is_nothing_to_draw() -> None:
    assert "nothing to draw" in bar_chart("Left out", "takes", [])
