"""A figure is one file: the report and the UI find it by the list."""

from types import SimpleNamespace
from typing import Any

import pytest
import toy_figure

from schemas.config import PipelineConfig
from trajpilot_core.report import figures
from trajpilot_core.report.drawing.svg_grid import NotDrawn, Picture
from trajpilot_core.report.figures.base import Material
from trajpilot_core.report.tables.results import results_of
from trajpilot_core.report.ui.gallery import draw
from trajpilot_core.stages import EVERY_STAGE

LOOK: Any = SimpleNamespace(config=PipelineConfig())


def test_a_figure_in_one_file_is_found_in_the_report_and_among_the_pictures_of_its_stage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = [figure.name for figure in figures.figures_of("ingest")]
    monkeypatch.setattr(figures, "FIGURES", (*figures.FIGURES, toy_figure.FIGURE))
    assert [figure.name for figure in figures.figures_of("ingest")] == [*before, "toy"]
    made = draw("ingest", toy_figure.FIGURE, LOOK)
    assert isinstance(made, Picture)
    assert made.title == "A toy"
    training = figures.report_charts(Material(results_of([], []), [], [], [], []))["training"]
    assert "How many rows a toy counts" in [chart.caption for chart in training]


def test_every_figure_is_shown_somewhere_and_every_stage_that_it_names_exists() -> None:
    for figure in figures.FIGURES:
        assert (figure.section is None) == (figure.charts is None)
        assert bool(figure.stages) == (figure.draw is not None)
        assert figure.charts is not None or figure.draw is not None
        assert set(figure.stages) <= set(EVERY_STAGE)
    pictures = [(stage, figure.name) for figure in figures.FIGURES for stage in figure.stages]
    assert len(set(pictures)) == len(pictures)


def test_a_figure_of_the_report_alone_is_no_picture() -> None:
    alone = next(figure for figure in figures.FIGURES if figure.draw is None)
    assert isinstance(draw("ingest", alone, LOOK), NotDrawn)
