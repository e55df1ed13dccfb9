"""Finished runs in the paper's own columns: every cell has its place, and one that was not run says so."""

from itertools import product
from pathlib import Path

import pyarrow.csv as pacsv
import pytest
from synthetic_results import a_metric

from schemas.results import Judgement
from trajpilot_core.errors import InputError
from trajpilot_core.methods import method
from trajpilot_core.paper.published import CLOSED_ATOMIC, CLOSED_FULL, CLOSED_OVERALL, CLOSED_ROWS, HORIZONS
from trajpilot_core.report.tables.results import FULL, PANEL, results_of
from trajpilot_core.report.tables.table import NOTHING, Value
from trajpilot_core.studies.paper_tables.base import PaperRun
from trajpilot_core.studies.paper_tables.cells import cells_of
from trajpilot_core.studies.paper_tables.labels import LABELS, tables_of
from trajpilot_core.studies.paper_tables.labels.planning import CLOSED_PANEL, TITLES
from trajpilot_core.studies.paper_tables.write import FOLDER, write_tables

PLACES = [*((h, "none") for h in HORIZONS), (None, "plain"), (None, "sample")]


def number(dataset: str, row: str, horizon: int | None, metric: str) -> float:
    """A made-up value that no other cell has; later rows are better, Oracle best."""
    place = list((*TITLES, CLOSED_ATOMIC)).index(dataset)
    better = CLOSED_ROWS.index(row) * (-0.1 if metric == "ED" else 1.0)
    return 10 * place + better + (horizon or 0) / 100 + len(metric) / 1000


def a_run(dataset: str, *, simulated: bool = True, weak: str = "") -> PaperRun:
    """A run on one benchmark with all of the paper's rows."""
    far = {"low": float("-inf"), "high": float("inf")}
    metrics = [
        a_metric(variant=row, horizon=h, pooling=pooling, metric=metric, value=number(dataset, row, h, metric))
        for row, (h, pooling), metric in product(CLOSED_ROWS, PLACES, (*FULL, *PANEL))
    ]
    metrics = [one if one.horizon else one.replace(**far) for one in metrics]
    judged = [Judgement(check=f"trained: final/{weak}, seed 0", verdict="undertrained", detail="")] if weak else []
    names = ("labels", "lambda_bridge", "transition_weight", "smoothing", "temperature")
    settings = {} if dataset == CLOSED_ATOMIC else dict(zip(names, (40.0, 0.15, 1.5, 0.5, 1.0), strict=True))
    return PaperRun(f"runs/{dataset}", dataset, results_of(metrics, judged), settings, simulated)


def texts(runs: list[PaperRun], label: str) -> list[list[str]]:
    return [[str(cell) for cell in row] for row in tables_of(cells_of(runs))[label].rows]


def test_three_runs_fill_all_432_cells_each_with_its_own_number() -> None:
    rows = texts([a_run(dataset) for dataset in TITLES], CLOSED_FULL)
    cells = [cell for row in rows for cell in row[2:]]
    assert len(cells) == 432
    assert NOTHING not in cells
    for at, (horizon, row) in enumerate(product(HORIZONS, CLOSED_ROWS)):
        wanted = [f"{number(d, row, horizon, metric):.2f}" for d, metric in product(TITLES, FULL)]
        assert [cell.replace("−", "-") for cell in rows[at][2:]] == wanted


def test_a_benchmark_without_a_run_and_a_row_without_figures_say_that_they_were_not_run() -> None:
    assert all(cell == NOTHING for row in texts([], CLOSED_OVERALL) for cell in row[1:])
    rows = texts([a_run("goalstep")], CLOSED_FULL)
    assert sum(cell == NOTHING for row in rows for cell in row) == 2 * 144
    assert all(NOTHING not in row[6:10] for row in rows)


def test_the_best_that_is_not_told_the_truth_is_bold_and_in_edit_distance_that_is_the_lowest() -> None:
    table = tables_of(cells_of([a_run("egoper")]))[CLOSED_FULL]
    for row in table.rows[:6]:
        bold = [isinstance(cell, Value) and cell.is_best for cell in row[10:]]
        assert all(bold) == any(bold) == (row[1] == method("scorer").name)


def test_simulated_tables_say_so_and_mark_undertrained_rows() -> None:
    table = tables_of(cells_of([a_run("keystep", weak="scorer")]))[CLOSED_OVERALL]
    assert table.note.startswith("SIMULATED")
    assert "†" in table.note
    assert [str(row[1]).endswith("†") for row in table.rows] == [row == "scorer" for row in CLOSED_ROWS]
    assert "SIMULATED" not in tables_of(cells_of([a_run("keystep", simulated=False)]))[CLOSED_OVERALL].note


def test_runs_of_two_kinds_are_refused() -> None:
    with pytest.raises(InputError, match=r"cannot share a table .runs/keystep simulated, runs/egoper recorded."):
        cells_of([a_run("keystep"), a_run("egoper", simulated=False)])


def test_files_are_equal_bytes_twice_and_give_the_cells_back(tmp_path: Path) -> None:
    atomic = cells_of([a_run(CLOSED_ATOMIC)])
    assert ({cell.table for cell in atomic}, {cell.metric for cell in atomic}) == ({CLOSED_PANEL}, set(PANEL))
    cells = cells_of([a_run("keystep"), a_run(CLOSED_ATOMIC)])
    first, second = (write_tables(cells, tmp_path / name) for name in ("a", "b"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]
    kept = [row for path in (tmp_path / "a" / FOLDER).glob("*.csv") for row in pacsv.read_csv(path).to_pylist()]
    assert sorted(row["value"] for row in kept) == sorted(cell.value for cell in cells)
    page = (tmp_path / "a" / "tables.html").read_text()
    assert page.count("SIMULATED WORLDS") == len(LABELS), "in every caption, those of empty tables included"
    assert "Simulated worlds: no evidence about real recordings" in page


def test_latex_has_the_papers_columns_and_a_label(tmp_path: Path) -> None:
    write_tables(cells_of([a_run(dataset) for dataset in TITLES]), tmp_path)
    text = (tmp_path / "tables" / f"{CLOSED_FULL}.tex").read_text()
    assert rf"\label{{tab:{CLOSED_FULL}}}" in text
    assert r"\multicolumn{4}{c}{Keystep} & \multicolumn{4}{c}{GoalStep} & \multicolumn{4}{c}{EgoPER} \\" in text
    assert r"\cmidrule(lr){3-6} \cmidrule(lr){7-10} \cmidrule(lr){11-14}" in text
    body = [line for line in text.splitlines() if line.endswith(r" \\")]
    assert {line.count(" & ") for line in body[1:]} == {13}
    assert text.count(r"\midrule") == 6
    assert r"\begin{tabular}{rlrrrrrrrrrrrr}" in text
