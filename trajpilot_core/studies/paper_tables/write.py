r"""The paper's tables as files (LaTeX to \input, CSV and Parquet, a page, paper.tex), and what is missing of them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from schemas.arrow import table_of
from trajpilot_core.report.offline import Page, Section
from trajpilot_core.report.tables.latex import floating, latex_text
from trajpilot_core.report.tables.table import NOTHING
from trajpilot_core.studies.paper_tables.base import PaperCell, PaperRun, printed
from trajpilot_core.studies.paper_tables.cells import fill
from trajpilot_core.studies.paper_tables.figures import FIGURES
from trajpilot_core.studies.paper_tables.labels import LABELS, tables_of

PAGE, DOCUMENT = "tables.html", "paper.tex"
FOLDER = "tables"
TITLE = "The paper's tables from finished runs"
SIMULATED = "Simulated worlds: no evidence about real recordings, and not comparable with published numbers."
RECORDED = "Our own results on recorded takes, not the paper's."
PREAMBLE = r"""\documentclass[letterpaper]{article}
\usepackage[T1]{fontenc}
\usepackage{lmodern}
\usepackage[margin=1in]{geometry}
\usepackage{booktabs,graphicx}
\setlength{\emergencystretch}{3em}
\setlength{\belowcaptionskip}{4pt}
"""


def write_tables(cells: Sequence[PaperCell], out: Path) -> list[Path]:
    """Write every table under `out` and return the files; equal cells, equal bytes.

    Args:
        cells: those that runs fill; the cells of a table without any read "not run" or "not built".
        out: folder; files of the same names are replaced.
    """
    folder, files = out / FOLDER, []
    folder.mkdir(parents=True, exist_ok=True)
    tables = tables_of(cells)
    for label, table in tables.items():
        rows = table_of(PaperCell, [cell for cell in cells if cell.table == label])
        files += [folder / f"{label}.{kind}" for kind in ("tex", "csv", "parquet")]
        files[-3].write_text(floating(label, table), encoding="utf-8")
        pacsv.write_csv(rows, files[-2])
        pq.write_table(rows, files[-1])
    page = out / PAGE
    page.write_bytes(Page(TITLE, banner(cells), [Section("tables", "Tables", tuple(tables.values()))]).html())
    return [page, *files]


def write_document(
    tables: Sequence[str], figures: Mapping[str, str], banner: str, out: Path, absent: Sequence[str] = ()
) -> Path:
    r"""Write paper.tex, which compiles in its own folder with pdflatex, and return it.

    Args:
        figures: label -> caption; their files are in `figures`.
        banner: notice at the top.
        absent: a sentence for each figure that was not drawn.
    """
    lines = [PREAMBLE + r"\begin{document}", rf"\section*{{{latex_text(TITLE)}}}", latex_text(banner)]
    if absent:
        lines += [r"\paragraph{Figures without a run}\mbox{}\\", *(rf"{latex_text(figure)}.\\" for figure in absent)]
    lines.append(r"\clearpage")
    for label, caption in figures.items():
        lines += [
            r"\begin{figure}[p]\centering",
            rf"\includegraphics[width=\linewidth,height=.8\textheight,keepaspectratio]{{figures/{label}.pdf}}",
            rf"\caption{{{latex_text(caption)}}}\label{{fig:{label}}}",
            r"\end{figure}\clearpage",
        ]
    lines += [rf"\input{{{FOLDER}/{label}.tex}}" for label in tables]
    path = out / DOCUMENT
    path.write_text("\n".join([*lines, r"\end{document}", ""]), encoding="utf-8")
    return path


def banner(cells: Sequence[PaperCell]) -> str:
    """Return the notice at the top of page and document."""
    if not cells:
        return "Nothing was run."
    return SIMULATED if any(cell.is_simulated for cell in cells) else RECORDED


class PlanLine(NamedTuple):
    """One experiment of one label."""

    label: str
    """Empty below the first line of a label."""
    recipe: str
    """With the settings that differ from it."""
    root: str
    """Root of its run; else "not run"."""
    filled: str
    """Cells that it fills, of all of the label."""
    missing: str
    """On the first line of a label: rows without a number in any run; of a figure, tables without a cell."""


COLUMNS = PlanLine._fields


def plan_of(runs: Sequence[PaperRun]) -> list[PlanLine]:
    """Return the lines of all labels, tables first, then figures; errors as in `fill`."""
    filled = fill(runs)
    lines: list[PlanLine] = []
    for label, table in LABELS.items():
        mine = [(run, cell) for run, cell in filled if cell.table == label]
        places = [at for at in table.addresses() if (at[0], at[3]) not in table.void]
        titles, rows = {line.row: line.heads[-1] for line in table.lines}, {cell.row for _, cell in mine}
        lacking = {titles.get(row) or printed(row): row not in rows for row, *_ in places}
        missing = (
            "all" if all(lacking.values()) else ", ".join(name for name, is_absent in lacking.items() if is_absent)
        )
        changes = "".join(f" --set {change}" for change in table.changes)
        of_experiment = Counter(run.experiment for run, cell in mine if cell.address in places)
        recipes = dict.fromkeys((*table.recipes, *of_experiment))  # and other experiments that fill cells
        for at, recipe in enumerate(recipes):
            name = f"{recipe or 'unknown'}{changes if recipe in table.recipes else ''}"
            n_filled = f"{of_experiment[recipe]} of {len(places)}"
            lines.append(PlanLine("" if at else label, name, _roots(runs, (recipe,)), n_filled, "" if at else missing))
    known = {cell.table for _, cell in filled}
    for figure in FIGURES:
        if figure.tables:
            empty = ", ".join(label for label in figure.tables if label not in known)
            lines.append(PlanLine(figure.label, f"cells of {', '.join(figure.tables)}", "", "", empty))
        else:
            lines.append(PlanLine(figure.label, ", ".join(figure.recipes), _roots(runs, figure.recipes), "", ""))
    return lines


def _roots(runs: Sequence[PaperRun], recipes: Sequence[str]) -> str:
    """Return the roots of runs of some recipes."""
    return ", ".join(run.name for run in runs if run.experiment in recipes) or NOTHING
