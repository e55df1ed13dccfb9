"""One table, four renderings: the same cells, escaped for each language."""

import json
import math

from trajpilot_core.report.tables.table import TOO_FEW, Table, Value, interval, number

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
    assert "| Keystep SR ↑ | Keystep ED ↓ |" in table.markdown()
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
    assert isinstance(rows, dict)
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    wide = Table("", ("x",), ((Value(1.0, -math.inf, math.inf),),)).json()
    assert json.dumps(wide, allow_nan=False).count("null") == 2


def test_numbers_have_a_true_minus_and_zero_has_no_sign() -> None:
    assert (number(-0.04), number(-1.26, 1), number(0.04, 1, True), number(math.nan)) == ("0.0", "−1.3", "0.0", "–")
    assert interval(-math.inf, 1.0) == TOO_FEW
    assert str(Value(3.0, digits=0, unit="takes")) == "3 takes"


def test_that_no_cell_has_an_interval_is_said_once_and_where_one_has_every_cell_says_its_own() -> None:
    few, whole = Value(1.0, -math.inf, math.inf), Value(2.0, 1.0, 3.0)
    table = Table("t", ("a", "b"), (("x", few), ("y", few)), "Percent.").said_once()
    assert [[str(cell) for cell in row] for row in table.rows] == [["x", "1.0"], ["y", "1.0"]]
    assert table.note == "Percent. No intervals: too few takes."
    mixed = Table("t", ("a", "b"), (("x", few), ("y", whole)), "Percent.")
    assert mixed.said_once() is mixed
    assert Table("t", ("a",), (("x",),)).said_once().note == ""
