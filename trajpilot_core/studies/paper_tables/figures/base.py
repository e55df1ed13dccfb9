"""The record of a figure of the paper, and how it is written: equal numbers give equal bytes, fonts are embedded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trajpilot_core.report.committed import WARNING
from trajpilot_core.report.drawing.sheets import styled
from trajpilot_core.report.tables.table import NOTHING
from trajpilot_core.studies.paper_tables.base import PaperCell, PaperRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

METADATA: dict[str, Any] = {"CreationDate": None, "Creator": "TrajPilot", "Producer": "matplotlib"}
"""Nothing that differs from run to run."""


@dataclass(frozen=True)
class FigureSource:
    """The data of the figures."""

    cells: Sequence[PaperCell]
    runs: Sequence[PaperRun]

    @property
    def warning(self) -> str:
        """Notice in every figure of simulated runs; empty for recorded ones."""
        return WARNING if any(run.is_simulated for run in self.runs) else ""


@dataclass(frozen=True)
class PaperFigure:
    """One figure of the paper."""

    label: str
    """The paper's, without its kind."""
    draw: Callable[[FigureSource], "tuple[Drawing, str] | None"]
    """Returns the drawing and its caption; None where no run has data for it."""
    tables: tuple[str, ...] = ()
    """Labels whose cells it shows."""
    recipes: tuple[str, ...] = ()
    """Experiments whose finished runs it shows, where it shows no cells."""


def undrawn(figures: Sequence[PaperFigure], captions: Mapping[str, str]) -> list[str]:
    """Return a sentence for each figure that no run fills.

    Args:
        captions: label -> caption of those that were drawn.
    """
    return [f"{figure.label}: {NOTHING}" for figure in figures if figure.label not in captions]


def absences(names: Iterable[str]) -> str:
    """Return the end of a caption that names the rows without a line or bar."""
    absent = ", ".join(dict.fromkeys(names))
    return f" Not run: {absent}." if absent else ""


def write_figures(
    figures: Sequence[PaperFigure], source: FigureSource, folder: Path
) -> tuple[list[Path], dict[str, str]]:
    """Draw figures and return their files, and label -> caption of those that were drawn.

    Args:
        folder: where they are written; files of the same names are replaced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: list[Path] = []
    captions: dict[str, str] = {}
    with styled():
        for figure in figures:
            picture = figure.draw(source)
            if picture is None:
                continue
            drawing, caption = picture
            captions[figure.label] = f"{source.warning}. {caption}" if source.warning else caption
            files.append(folder / f"{figure.label}.pdf")
            drawing.savefig(files[-1], format="pdf", metadata=METADATA)
    return files, captions
