"""The figures of the paper that runs can draw, in its order: the only list.

A new figure is one record in a file here; the PDF and its place in paper.tex follow.
"""

from trajpilot_core.studies.paper_tables.figures import curves, qualitative
from trajpilot_core.studies.paper_tables.figures.base import PaperFigure

FIGURES: tuple[PaperFigure, ...] = (*curves.FIGURES, qualitative.FIGURE)
