"""The paper's figures: drawn from the tables' cells, equal bytes twice, fonts inside, pixels only where allowed."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pyarrow as pa
import pytest
from planning_world import Memory
from test_paper_labels import an_atomic_run

from schemas.config import PipelineConfig, ReportConfig
from trajpilot_core.engine.settings import LastRun
from trajpilot_core.methods import method
from trajpilot_core.paper.published import ATOMIC
from trajpilot_core.report.drawing.sheets import styled
from trajpilot_core.report.gallery.pictures import Path as HeadPath
from trajpilot_core.report.gallery.pictures import Thumbnail
from trajpilot_core.report.gallery.windows import Example, Facts, GalleryStep, GalleryWindows, Plan
from trajpilot_core.report.tables.results import results_of
from trajpilot_core.studies.paper_tables.base import PaperRun
from trajpilot_core.studies.paper_tables.cells import cells_of
from trajpilot_core.studies.paper_tables.figures import FIGURES, curves, qualitative
from trajpilot_core.studies.paper_tables.figures.base import FigureSource, undrawn, write_figures
from trajpilot_core.studies.paper_tables.labels.planning import ATOMIC_ROWS, GOAL_FREE_ROWS


def source(*, simulated: bool = True) -> FigureSource:
    run = an_atomic_run(simulated=simulated)
    return FigureSource(cells_of([run]), [run])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Path], dict[str, str]]:
    """Files and captions of the figures of a simulated run."""
    return write_figures(FIGURES, source(), tmp_path_factory.mktemp("made"))


def test_equal_cells_give_equal_bytes_with_embedded_fonts_and_no_date_and_other_cells_do_not(
    made: tuple[list[Path], dict[str, str]], tmp_path: Path
) -> None:
    files, held = made[0], source()
    assert [path.name for path in files] == ["atomic_planning.pdf"]
    moved = [c.replace(value=c.value + 1) if c.table == ATOMIC and c.row == "scorer" else c for c in held.cells]
    for name, cells in (("same", held.cells), ("moved", moved)):
        again, _ = write_figures(FIGURES, replace(held, cells=cells), tmp_path / name)
        is_equal = [one.read_bytes() == two.read_bytes() for one, two in zip(files, again, strict=True)]
        assert is_equal == [name == "same"], name
    for path in files:
        content = path.read_bytes()
        assert b"CreationDate" not in content
        assert not re.search(rb"20\d\d-\d\d-\d\dT", content)
    if (program := shutil.which("pdffonts")) is not None:
        printed = subprocess.run([program, str(files[0])], capture_output=True, text=True, check=True).stdout
        fonts = printed.splitlines()[2:]
        assert fonts
        assert all(line.split()[-5] == "yes" for line in fonts), fonts


def test_a_line_has_the_values_of_its_cells_and_the_colour_of_its_row() -> None:
    held = source()
    drawn = curves.FIGURES[1].draw(held)
    axis = drawn[0].axes[0]
    wanted = [c.value for c in held.cells if (c.table, c.row, c.metric) == (ATOMIC, "scorer", "M@1")]
    lines = {line.get_color(): line.get_ydata().tolist() for line in axis.get_lines()}
    assert lines[method("scorer").style.light] == wanted
    assert len(lines) == 3
    assert "Not run: Qwen zero-shot, Qwen tuned + LLM, " in drawn[1]


def cut_in(drawing: "matplotlib.figure.Figure") -> float:
    """How far anything that is drawn reaches beyond the border, inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    canvas = FigureCanvasAgg(drawing)
    canvas.draw()
    box, (width, height) = drawing.get_tightbbox(canvas.get_renderer()), drawing.get_size_inches()
    return float(max(-box.x0, -box.y0, box.x1 - width, box.y1 - height))


def test_no_text_of_a_figure_leaves_its_canvas() -> None:
    """Seen before: of both figures of planning in latents four of six names and the half of the notice were cut."""
    run = an_atomic_run()
    known = [one for one in run.results.metrics if one.variant == "no_traj"]
    rows = (*curves.PLANNED, *ATOMIC_ROWS, *GOAL_FREE_ROWS)
    metrics = [one.replace(variant=row) for row in rows for one in known]
    metrics += [one.replace(metric=name) for one in metrics if one.metric == "M@1" for name in ("SR", "Full mAcc")]
    full = replace(run, results=results_of(metrics, []))
    held = FigureSource([*cells_of([full]), *cells_of([shots(simulated=True)])], [full])
    with styled():
        drawn = {figure.label: figure.draw(held) for figure in FIGURES if figure.label != "qualitative_open_vocab"}
        assert [label for label, one in drawn.items() if one is None or cut_in(one[0]) > 0.01] == []
        drawing, _ = drawn["cem_vs_none"] or (None, "")
        drawing.set_size_inches(2.35, 2.9)
        assert cut_in(drawing) > 0.5, "the planted fault"


def test_simulated_runs_say_so_in_picture_and_caption_and_recorded_ones_do_not(
    made: tuple[list[Path], dict[str, str]], tmp_path: Path
) -> None:
    recorded = source(simulated=False)
    of_recorded = write_figures(curves.FIGURES[1:2], recorded, tmp_path)
    for held, (_, captions), is_simulated in ((source(), made, True), (recorded, of_recorded, False)):
        drawing, _ = curves.FIGURES[1].draw(held) or (None, "")
        assert ("SIMULATED" in drawing.get_suptitle()) == ("SIMULATED" in captions["atomic_planning"]) == is_simulated


def test_a_figure_without_a_run_is_said_to_be_absent() -> None:
    empty = FigureSource([], [])
    assert [figure.draw(empty) for figure in FIGURES] == [None] * len(FIGURES)
    said = undrawn(FIGURES, {"atomic_planning": "drawn"})
    assert said == [f"{figure.label}: not run" for figure in FIGURES if figure.label != "atomic_planning"]


def shots(*, simulated: bool) -> PaperRun:
    """A run on shots: three rows with intervals, one that too few takes allow none."""
    values = {"no_traj": (57.0, 100.0, 14.0), "scorer": (81.0, 70.0, 92.0), "oracle": (93.0, 92.0, 95.0)}
    found = [
        {"row": row, "metric": metric, "seed": None, "value": value, "low": low, "high": value + 9, "n_takes": 10}
        for row, held in values.items()
        for metric, value in zip(("accuracy", "made", "missed"), held, strict=True)
        for low in (float("-inf") if row == "oracle" else value - 9,)
    ]
    held = {("outcome", "shot_scores"): pa.Table.from_pylist(found)}
    return PaperRun("shots", "egoexo4d_basketball", results_of([], []), {}, simulated, lambda *at: held.get(at))


def test_shots_are_drawn_from_their_table_and_absent_rows_are_named(tmp_path: Path) -> None:
    run = shots(simulated=True)
    held = FigureSource(cells_of([run]), [run])
    files, captions = write_figures([curves.FIGURES[0]], held, tmp_path)
    assert [path.name for path in files] == ["basketball_teaser.pdf"]
    assert captions["basketball_teaser"].startswith("SIMULATED")
    assert "Attentive probe" in captions["basketball_teaser"].rsplit("Not run: ", 1)[1]
    drawing, _ = curves.FIGURES[0].draw(held) or (None, "")
    assert [bar.get_height() for bar in drawing.axes[0].patches] == [57, 100, 14, 81, 70, 92, 93, 92, 95]


def test_full_accuracy_over_the_horizon_comes_from_the_runs_and_names_what_was_not_run() -> None:
    atomic, in_latents = an_atomic_run(), {"no_traj": "latent_no_traj", "oracle": "latent_oracle"}
    named = [
        m.replace(metric="Full mAcc", variant=in_latents[m.variant])
        for m in atomic.results.metrics
        if m.metric == "F@1" and m.variant in in_latents
    ]
    run = replace(atomic, results=results_of(named, []))
    figure = next(one for one in FIGURES if one.label == "cem_full_mean")
    drawing, caption = figure.draw(FigureSource([], [run])) or (None, "")
    (axis,) = [one for one in drawing.axes if one.get_lines()]
    assert axis.get_title() == "Open vocabulary"
    wanted = [m.value for m in named if m.variant == "latent_oracle" and m.pooling == "none"]
    assert [line.get_ydata().tolist() for line in axis.get_lines()][1] == wanted
    assert "Not run: CEM, CEM, goal step, CEM-bank, Random-bank." in caption


def an_example() -> Example:
    steps = tuple(GalleryStep(f"step {at} $x_1$ α", state, sign) for at, (state, sign) in enumerate(STATES))
    path = HeadPath("true", "true", np.array([[0.0, 0.0, 0.0], [1.0, 0.5, 0.0]]))
    truth = tuple(f"truth {at}" for at in range(len(STATES)))
    plans = (Plan("Scorer", steps),)
    return Example("w", "t", "take", "a title", len(STATES), (1, 2), (0, 3), truth, plans, "", (path,), "m")


STATES = (("hit", "✓"), ("hit", "✓"), ("top5", "5"), ("miss", "✗"), ("hit", "✓"))


def laid_out(example: Example, frames: Mapping[tuple[str, float], Thumbnail] = {}) -> "matplotlib.figure.Figure":
    return qualitative._laid_out(qualitative.ShownWindows([example], {"w": ((1.0,), (2.0,))}, dict(frames), ""), "")


def test_every_middle_step_has_its_colour_and_its_sign() -> None:
    drawing = laid_out(an_example())
    answers = next(axis for axis in drawing.axes if axis.get_title().startswith("a title"))
    said = [text.get_text() for text in answers.texts]
    assert [text[0] for text in said if text[0] in "✓5✗"] == ["✓", "5", "✗"], "Start and Goal are no middle steps"
    colours = [matplotlib.colors.to_hex(patch.get_facecolor()) for patch in answers.patches]
    assert colours == [qualitative.COLOURS[name] for name in ("truth", "truth", "truth", "hit", "top5", "miss")]


def test_a_frame_is_drawn_where_there_is_one() -> None:
    import base64

    import cv2

    coded = cv2.imencode(".jpg", np.full((8, 8, 3), 200, np.uint8))[1].tobytes()
    frames = {("t", 1.0): Thumbnail("data:image/jpeg;base64," + base64.b64encode(coded).decode(), "")}
    axes = laid_out(an_example(), frames).axes
    assert [len(axis.images) for axis in axes] == [1, 0, 0, 0]
    assert [text.get_text() for text in axes[2].texts] == ["no frame"]


def test_no_video_is_opened_where_report_frames_is_off(monkeypatch: pytest.MonkeyPatch) -> None:
    span = {"start_s": 1.0, "end_s": 2.0}
    facts = Facts({}, {}, {"a": span, "b": span}, {"w": {"segment_ids": ["a", "b"]}}, {}, {})
    opened: list[object] = []
    monkeypatch.setattr(qualitative.windows, "load_facts", lambda *_: facts)
    monkeypatch.setattr(qualitative.windows, "examples", lambda *_: [an_example()])
    monkeypatch.setattr(qualitative.windows, "video_files", lambda *_: {"t": "t.mp4"})
    monkeypatch.setattr(qualitative, "frames_of", lambda times, *given: (opened.append((set(times), given)) or {}, []))
    last = LastRun(config=PipelineConfig(), data_root="/corpus", device="cpu", recipe="atomic")
    run = replace(an_atomic_run(), last=last)
    nothing = GalleryWindows({}, {})
    said = qualitative._shown(run, Memory(), nothing, ReportConfig(frames=False)).no_frames
    assert (said, opened) == ("No frame is shown: report.frames is off.", [])
    qualitative._shown(run, Memory(), nothing, ReportConfig())
    side = qualitative.SIDE_PX
    assert opened == [({"t"}, ({"t": "t.mp4"}, "/corpus", side, 1))], "the planted fault: with frames on it is opened"
