r"""The tables as LaTeX floats, ready for \input; needs booktabs and graphicx. The numbers are those of the HTML page.

Every text is escaped: a label can neither run a command nor end a group. The output is ASCII, so that no font or
encoding can lack a character: a letter loses its accents, and any other character without a command below becomes its
code point, `[U+5207]`. A table longer than a page continues in a further float; one wider than a line is scaled down to
it.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trajpilot_core.report.tables.table import Table

LINES = 52
"""Rows of one float: what a page of 8.5 x 11 inches has room for in footnotesize, below a caption of six lines."""
HEAD = "% Needs \\usepackage{booktabs,graphicx}. Written by TrajPilot; do not edit.\n"
COMMANDS = (
    {letter: "\\" + letter for letter in "{}$&#%_"}
    | {"−": "$-$", "–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''", "✓": "ok", "°": r"$^{\circ}$"}
    | {"\\": r"\textbackslash{}", "^": r"\textasciicircum{}", "~": r"\textasciitilde{}"}
    | {"<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "…": r"\dots{}", "†": r"\dag{}"}
    | {"✗": r"$\times$", "×": r"$\times$", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", "λ": r"$\lambda$"}
    | {"→": r"$\rightarrow$", "↑": r"$\uparrow$", "↓": r"$\downarrow$"}
)
"""Character -> its LaTeX: those with a meaning to LaTeX, and the signs of our own texts."""


def latex_text(text: str) -> str:
    """Return text in which no character has a meaning to LaTeX, in ASCII; control characters become spaces."""
    escaped = "".join(map(_character, text))
    return "{}" + escaped if escaped[:1] in ("[", "*") else escaped  # after a line end it would be its argument


def _character(character: str) -> str:
    if character in COMMANDS:
        return COMMANDS[character]
    if character.isascii():
        return character if character.isprintable() else " "
    if character.isspace() or unicodedata.category(character) in ("Cc", "Cf"):
        return " "
    letter = unicodedata.normalize("NFD", character)[0]
    return letter if letter.isascii() and letter.isalpha() else f"[U+{ord(character):04X}]"


def fitted(tabular: str) -> list[str]:
    r"""Return the lines that set a table at its own size, or scaled down to the line where it is wider; needs graphicx.

    The environment `tabular` has no blank line.
    """
    lines = tabular.strip().splitlines()
    return [r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%", *lines[:-1], lines[-1] + "}"]


def document(tables: Sequence["Table"], note: str) -> str:
    """Return all tables, one after the other; `note`: what the numbers are measured on, part of every caption."""
    noted = [replace(table.flat(), note=f"{table.note} {note}".strip()) for table in tables]
    return HEAD + "\n".join(floating(table.id or f"t{at}", table) for at, table in enumerate(noted))


def floating(label: str, table: "Table") -> str:
    r"""Return a table as floats with caption and label; one longer than LINES is cut."""
    caption = latex_text(f"{table.title}. {table.note}".strip())
    lines = []
    for at, part in enumerate(_parts(table)):
        lines += [r"\begin{table*}[!htp]", r"\centering\footnotesize\setlength{\tabcolsep}{4pt}"]
        lines += [
            rf"\caption{{{caption}{' (continued)' if at else ''}}}",
            rf"\label{{tab:{label}{f'-{at}' if at else ''}}}",
        ]
        lines += [*fitted(part.latex()), r"\end{table*}", ""]
    return "\n".join(lines)


def _parts(table: "Table") -> Iterator["Table"]:
    """Cut a table into parts of at most LINES rows."""
    for begin in range(0, max(1, len(table.rows)), LINES):
        rules = tuple(rule - begin for rule in table.rules if begin < rule < begin + LINES)
        yield replace(table, rows=table.rows[begin : begin + LINES], rules=rules)
