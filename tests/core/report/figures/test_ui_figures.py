"""Pictures of committed outputs: what they may weigh and show, and what becomes of one that cannot be drawn."""

import base64
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest
from checkout import CHECKOUT

from schemas.arrow import table_of
from schemas.config import PipelineConfig, ReportConfig, RunOptions
from schemas.planners import PLANNERS
from schemas.results import CurvePoint
from trajpilot_core.engine.progress import CountedSteps, portion
from trajpilot_core.errors import StoreError
from trajpilot_core.report.committed import committed_under
from trajpilot_core.report.drawing.charts import Chart, Point, Series
from trajpilot_core.report.drawing.sheets import svg
from trajpilot_core.report.figures import PICTURES, curves, figures_of
from trajpilot_core.report.figures.base import MOST_BYTES, Drawn, Figure, NothingToDraw, Picture, draw
from trajpilot_core.report.figures.corpus import clips, corpus
from trajpilot_core.report.figures.curves import DEV_QUANTITIES
from trajpilot_core.stages import EVERY_STAGE

COMMITTED: Any = SimpleNamespace(config=PipelineConfig())
HOSTILE = '<script>alert(1)</script>"><img src="http://outside.example/x">'


def test_a_picture_that_is_too_large_is_left_out_with_its_size() -> None:
    huge = Figure("p", "t", ("ingest",), lambda _: Drawn(bytes(MOST_BYTES), "huge"))
    assert draw(huge, COMMITTED) == Picture("p", "t", "267 kB is too large; the limit is 200 kB")


def test_a_picture_that_cannot_be_drawn_has_its_reason_and_a_fault_of_ours_is_not_hidden() -> None:
    def failing(error: Exception) -> Figure:
        def broken(committed: Any) -> Drawn:
            raise error

        return Figure("p", "A title", ("ingest",), broken)

    for error in (NothingToDraw("no row was scored"), StoreError("damaged"), OSError("no disk"), ValueError("nan")):
        assert draw(failing(error), COMMITTED) == Picture("p", "A title", str(error))
    with pytest.raises(KeyError):
        draw(failing(KeyError("segment_id")), COMMITTED)


def test_every_picture_of_an_empty_root_is_a_reason_that_names_the_stage_to_run(tmp_path: Path) -> None:
    committed = committed_under(PipelineConfig(), RunOptions(root=str(tmp_path), data_root=str(tmp_path)))
    for stage in {stage for figure in PICTURES for stage in figure.stages}:
        for figure in figures_of(stage):
            made = draw(figure, committed)
            assert "run " in made.text
            assert not made.uri


def test_a_corpus_without_planning_windows_says_so_in_place_of_an_empty_chart() -> None:
    empty = pa.table({"horizon": pa.array([], pa.int64()), "split": pa.array([], pa.string())})
    with pytest.raises(NothingToDraw, match="no planning windows"):
        corpus(SimpleNamespace(table=lambda *_: empty))  # type: ignore[arg-type]


def test_no_frame_is_decoded_where_the_report_may_show_none(tmp_path: Path) -> None:
    config = PipelineConfig(report=ReportConfig(frames=False))
    with pytest.raises(NothingToDraw, match="personal data"):
        clips(committed_under(config, RunOptions(root=str(tmp_path))))


def test_hostile_names_are_text_in_a_picture() -> None:
    chart = Chart(HOSTILE, HOSTILE, HOSTILE, [Series(HOSTILE, "scorer", (Point(3, 1), Point(4, 2)))])
    drawn = [*ElementTree.fromstring(svg([chart], HOSTILE)).iter()]
    assert {element.tag.split("}")[1] for element in drawn} == {"svg", "defs", "style", "g", "path", "use", "text"}
    assert all(HOSTILE[:25] in "".join(element.itertext()) for element in drawn[:1])


def test_a_picture_asks_for_nothing_and_two_on_one_page_share_no_id() -> None:
    charts = [Chart(title, "x", "y", [Series("a", "scorer", (Point(3, 1, 0, 2), Point(4, 2)))]) for title in "ab"]
    first, second = (svg([chart]) for chart in charts)
    assert svg(charts[:1]) == first, "equal numbers, equal bytes"
    ids = [set(re.findall(r'\bid="([^"]*)"', text)) for text in (first, second)]
    assert all(ids)
    assert not ids[0] & ids[1]
    assert "url(" not in first + second
    references = set(re.findall(r'href="([^"]*)"', first))
    assert references == {f"#{name}" for name in ids[0]}


def test_charts_that_are_drawn_at_the_same_time_are_equal_to_those_drawn_one_by_one() -> None:
    charts = [Chart(f"chart {n}", "x", "y", [Series("a", "scorer", (Point(3, n), Point(4, 2)))]) for n in range(6)]
    with ThreadPoolExecutor(3) as threads:
        assert [*threads.map(lambda chart: svg([chart]), charts)] == [svg([chart]) for chart in charts]


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


def drawn_planners(rows: list[CurvePoint]) -> Picture:
    (figure,) = figures_of("planners")
    tables = {("planners", "planners_curves"): table_of(CurvePoint, rows)}
    own = {"table": lambda *name: tables[name], "warning": lambda: ""}
    return draw(figure, SimpleNamespace(config=PipelineConfig(), **own))


def svg_of(picture: Picture) -> str:
    assert picture.uri, picture
    return base64.b64decode(picture.uri.split(",", 1)[1]).decode()


def test_planners_have_their_names_and_a_dot_at_the_first_of_the_best_epochs() -> None:
    """A pair of panels each; curves of learning rates that were not selected are nowhere."""
    text = svg_of(drawn_planners(planner_curves(9)))
    texts = re.findall("<text[^>]*>([^<]*)<", text)
    names = ("PDPP", "SCHEMA", "ViterbiPlanNet")
    titles = [part for part in texts if "training loss" in part or "dev Mid" in part]
    assert [title.split(", ")[0] for title in titles] == [
        f"{name}: {what}" for name in names for what in ("training loss", "dev Mid mAcc")
    ]
    keys = [f"{name}, H={h}: epoch 9" for name in names for h in range(3, 9)]
    assert [part for part in texts if "H=" in part] == keys
    assert "rate x" not in text
    assert not any(f"{method}_h" in text for method in PLANNERS)
    flat = [row.replace(value=0.5) for row in planner_curves(9)]
    assert "PDPP, H=3: epoch 1<" in svg_of(drawn_planners(flat))
    faulty = [row.replace(model=row.model.replace("5, rate x3", "9")) for row in planner_curves(9)]
    assert "SCHEMA, H=9" in svg_of(drawn_planners(faulty)), "the planted fault: one that was not kept, as a model"


def test_the_picture_of_as_many_epochs_as_the_originals_train_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault, a point for every epoch, is too large for Prefect's database."""
    rows = [row.replace(value=row.epoch * 37 % 101 / 100) for row in planner_curves(500, rates=("",))]
    assert drawn_planners(rows).uri
    monkeypatch.setattr(curves, "MOST_POINTS", 500)
    assert not drawn_planners(rows).uri


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


def test_every_stage_that_a_picture_names_exists_and_has_one_of_each_name() -> None:
    pictures = [(stage, figure.name) for figure in PICTURES for stage in figure.stages]
    assert {stage for stage, _ in pictures} <= set(EVERY_STAGE)
    assert len(set(pictures)) == len(pictures)
