r"""The paper's tables as files (LaTeX to \input, CSV, a page, and paper.tex)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow.csv as pacsv

from schemas.arrow import table_of
from trajpilot_core.report.offline import Page, Section
from trajpilot_core.report.tables.latex import floating, latex_text
from trajpilot_core.studies.paper_tables.base import PaperCell
from trajpilot_core.studies.paper_tables.labels import tables_of

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
    """Write every table under `out`, over files of the same names, and return the files; equal cells, equal bytes.

    Cells that no run fills read "not run".
    """
    folder, files = out / FOLDER, []
    folder.mkdir(parents=True, exist_ok=True)
    tables = tables_of(cells)
    for label, table in tables.items():
        rows = table_of(PaperCell, [cell for cell in cells if cell.table == label])
        files += [folder / f"{label}.tex", folder / f"{label}.csv"]
        files[-2].write_text(floating(label, table), encoding="utf-8")
        pacsv.write_csv(rows, files[-1])
    page = out / PAGE
    page.write_bytes(Page(TITLE, banner(cells), [Section("tables", "Tables", tuple(tables.values()))]).html())
    return [page, *files]


def write_document(
    tables: Sequence[str], figures: Mapping[str, str], banner: str, out: Path, absent: Sequence[str] = ()
) -> Path:
    r"""Write paper.tex, which compiles in its own folder with pdflatex, and return it.

    `figures`: label -> caption, their files are in `figures`; `absent`: a sentence for each that was not drawn.
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
