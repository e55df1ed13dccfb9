"""One table, four renderings: the same cells, escaped for each language; LaTeX that compiles."""

import json
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pdflatex import compiled
from synthetic_results import Kept

from trajpilot_core.report.tables import latex
from trajpilot_core.report.tables.latex import fitted, latex_text
from trajpilot_core.report.tables.table import TOO_FEW, Table, Value, interval, number
from trajpilot_core.stages import STAGES

TABLE = Table(
    "Rows & <b>",
    ("row", "M@1, %", "verdict"),
    (("a|b_c", Value(1.25, 1.0, 1.5, 2), "holds"), ("<script>", Value(-0.001, is_signed=True), "undecided")),
    "A note.",
)


def test_every_rendering_escapes_each_text_and_shows_numbers_and_verdicts() -> None:
    text = TABLE.markdown()
    assert text.startswith("### Rows & <b>\n\nA note.\n\n| row | M@1, % | verdict |\n| --- | --- | --- |\n")
    assert r"| a\|b_c | 1.25 [1.00, 1.50] | **holds** |" in text
    assert "| 0.0 |" in text
    assert Table("", ("a",), ()).markdown() == "*Nothing was run for this table.*\n"
    text = TABLE.html()
    assert "<caption>Rows &amp; &lt;b&gt;</caption>" in text
    assert '<td class="num">1.25 [1.00, 1.50]</td>' in text
    assert '<td class="v-holds">holds</td>' in text
    assert "<script>" not in text
    text = TABLE.latex()
    assert r"a\textbar{}b\_c & 1.25 [1.00, 1.50] & holds \\" in text
    assert r"M@1, \%" in text


def test_titles_over_the_header_lines_and_the_best_of_a_column_reach_every_rendering() -> None:
    rows = (("a", Value(2.0, is_best=True), Value(1.0, mark="†")), ("b", Value(1.0), "not run"))
    table = Table("t", ("", "SR ↑", "ED ↓"), rows, over=(("", 1), ("Keystep", 2)), rules=(1,))
    assert "| a | **2.0** | 1.0† |" in table.markdown()
    html = table.html()
    assert '<tr><th colspan="1" class="over"></th><th colspan="2" class="over">Keystep</th></tr>' in html
    assert '<td class="num"><b>2.0</b></td><td class="num">1.0†</td>' in html
    latex = table.latex().splitlines()
    assert latex[1:5] == [
        r"\begin{tabular}{lrr}",
        r"\toprule",
        r"\multicolumn{1}{c}{} & \multicolumn{2}{c}{Keystep} \\",
        r"\cmidrule(lr){2-3}",
    ]
    assert latex[5] == r" & SR $\uparrow$ & ED $\downarrow$ \\"
    assert latex[7:10] == [r"a & \textbf{2.0} & 1.0\dag{} \\", r"\midrule", r"b & 1.0 & not run \\"]


def test_json_has_the_numbers_in_full_and_no_infinity() -> None:
    rows = TABLE.json()
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    wide = Table("", ("x",), ((Value(1.0, -math.inf, math.inf),),)).json()
    assert json.dumps(wide, allow_nan=False).count("null") == 2


def test_numbers_have_a_true_minus_and_zero_has_no_sign() -> None:
    assert (number(-0.04), number(-1.26, 1), number(0.04, 1, True), number(math.nan)) == ("0.0", "−1.3", "0.0", "–")
    assert interval(-math.inf, 1.0) == f"({TOO_FEW})"


# LaTeX compiles: no error, no box wider than its line, no float longer than its page, any letter.


HOSTILE = "α 切 ∑ é ñ ǭ Ł ß ‘x’ “y” – — … \\input{/etc/passwd} $ & # % _ ^ ~ < > | { } \x07 🙂 \u200b \u0301"
WIDE = Table("wide", tuple(f"column {at}" for at in range(30)), (tuple("0123456789" for _ in range(30)),))


@given(st.text())
def test_any_text_comes_out_as_ascii_without_a_bare_command(text: str) -> None:
    said = latex_text(text)
    assert said.isascii()
    assert all(line.isprintable() for line in said.splitlines())
    assert said[:1] not in ("[", "*")


def test_letters_lose_their_accents_and_others_say_which_they_are() -> None:
    wanted = {"éǭ": "eo", "λ ≤": r"$\lambda$ $\leq$", "切": "{}[U+5207]", "≠ α": "{}[U+2260] [U+03B1]"}
    assert {text: latex_text(text) for text in wanted} == wanted
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


def test_the_tables_of_the_report_compile(kept: Kept, tmp_path: Path) -> None:
    """With every row that there is, the longest table that a run can have."""
    for name in [name for name in STAGES["report"].writes if name.endswith(".tex")]:
        (tmp_path / name).write_bytes(kept.documents[name])
        assert compiled(rf"\input{{{name}}}", tmp_path) == [], name


LONG = Table("t", ("row",), tuple((f"r{at}",) for at in range(200)), rules=(30, 60, 150))


def test_a_long_table_is_cut_and_keeps_every_row_and_rule() -> None:
    parts = [part for part in latex.floating("long", LONG).split(r"\begin{table*}") if part.strip()]
    starts = [part.split("\n\\midrule\n", 1)[1].split(" ")[0] for part in parts]
    assert starts == ["r0", "r52", "r104", "r156"]
    assert [part.count(r"\midrule") for part in parts] == [2, 2, 2, 1]
    assert ["(continued)" in part for part in parts] == [False, *[True] * 3]
    assert len(re.findall(r"^r\d+ ", "\n".join(parts), re.MULTILINE)) == 200


def test_a_table_in_one_part_would_not_fit_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The planted fault of the test above: nothing is cut."""
    monkeypatch.setattr(latex, "LINES", 10_000)
    assert any("too large" in fault for fault in compiled(latex.floating("long", LONG), tmp_path))
