"""The tables as LaTeX compile: no error, no box wider than its line, no float longer than its page, any letter."""

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pdflatex import compiled
from synthetic_results import Kept

from trajpilot_core.report.tables import latex
from trajpilot_core.report.tables.latex_text import fitted, latex_text
from trajpilot_core.report.tables.table import Table
from trajpilot_core.stages import STAGES

HOSTILE = "α 切 ∑ é ñ ǭ Ł ß ‘x’ “y” – — … \\input{/etc/passwd} $ & # % _ ^ ~ < > | { } \x07 🙂 \u200b \u0301"
WIDE = Table("wide", tuple(f"column {at}" for at in range(30)), (tuple("0123456789" for _ in range(30)),))


@settings(max_examples=60, deadline=None)
@given(st.text())
def test_any_text_comes_out_as_ascii_without_a_bare_command(text: str) -> None:
    said = latex_text(text)
    assert said.isascii()
    assert all(line.isprintable() for line in said.splitlines())
    assert said[:1] not in ("[", "*")


def test_letters_keep_their_accents_and_others_say_which_they_are() -> None:
    assert latex_text("é") == r"\'{e}"
    assert latex_text("α ∑") == r"$\alpha$ $\sum$"
    assert latex_text("切") == "{}[U+5207]"
    assert latex_text("a[1]*") == "a[1]*"


def test_hostile_texts_compile_and_a_bare_one_does_not(tmp_path: Path) -> None:
    rows = tuple((text, "1.0") for text in (HOSTILE, "[2pt] first", "* star", "切"))
    hostile = Table(HOSTILE, ("row", HOSTILE), rows).latex()
    assert compiled("\n".join(fitted(hostile)), tmp_path) == []
    (tmp_path / "body.pdf").unlink()
    assert any(fault.startswith("!") for fault in compiled("切 & $", tmp_path)), "the planted fault"


def test_a_table_wider_than_its_line_is_scaled_and_without_that_it_is_seen(tmp_path: Path) -> None:
    assert compiled("\n".join(fitted(WIDE.latex())), tmp_path) == []
    assert any("Overfull" in fault for fault in compiled(WIDE.latex(), tmp_path)), "the planted fault"


def test_a_narrow_table_keeps_its_size(tmp_path: Path) -> None:
    narrow = fitted(Table("t", ("a",), (("b",),)).latex())
    measured = "\\sbox0{" + "\n".join(narrow) + "}\\typeout{WIDTH \\the\\wd0}\\usebox0"
    assert compiled(measured, tmp_path) == []
    plain = (tmp_path / "body.log").read_text().split("WIDTH ")[1].split("pt")[0]
    assert float(plain) < 60


def test_the_tables_of_the_report_compile(kept: Kept, tmp_path: Path) -> None:
    """With every row that there is, the longest table that a run can have."""
    for name in [name for name in STAGES["report"].writes if name.endswith(".tex")]:
        (tmp_path / name).write_bytes(kept.documents[name])
        assert compiled(rf"\input{{{name}}}", tmp_path) == [], name


LONG = Table("t", ("row",), tuple((f"r{at}",) for at in range(200)), rules=(30, 60, 150))


def test_a_long_table_is_cut_above_its_rules_and_keeps_every_row() -> None:
    parts = [part for part in latex.floating("long", LONG).split(r"\begin{table*}") if part.strip()]
    starts = [part.split("\n\\midrule\n", 1)[1].split(" ")[0] for part in parts]
    assert starts == ["r0", "r30", "r60", "r112", "r150"]
    assert ["(continued)" in part for part in parts] == [False, *[True] * 4]
    assert len(re.findall(r"^r\d+ ", "\n".join(parts), re.MULTILINE)) == 200


def test_a_table_in_one_part_would_not_fit_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault of the test above: nothing is cut."""
    monkeypatch.setattr(latex, "LINES", 10_000)
    assert any("too large" in fault for fault in compiled(latex.floating("long", LONG), tmp_path))
