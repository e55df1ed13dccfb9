"""The report: its numbers agree everywhere, it runs nobody else's script, and it is built whatever is missing."""

import base64
import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from synthetic_corpus import corpus
from synthetic_results import Kept, Tables, built, report_inputs

from schemas.arrow import rows_of, table_of
from schemas.config import ReportConfig
from schemas.rejects import Reject, RejectCode, reject
from schemas.results import Judgement, Metric
from trajpilot_core.engine.stage import Output, Runtime, Work
from trajpilot_core.report import health, published
from trajpilot_core.report.figures import report_charts
from trajpilot_core.report.figures.base import Material
from trajpilot_core.report.page import GROUPS
from trajpilot_core.report.tables import all_tables, number, results_of
from trajpilot_core.stages import REPORTED, STAGES
from trajpilot_core.stages.report import report_on

CFG = ReportConfig(config_digest="0123456789abcdef", corpus="egoexo4d_atomic", frames=False)


class Reader(HTMLParser):
    """Collects tags with attributes, table cells by key, text, and script blocks."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.cells: dict[tuple[str, str], str] = {}
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.table, self.key, self.raw = "", None, ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.tags.append((tag, found))
        if tag == "table":
            self.table = found.get("id") or ""
        if tag in ("td", "th"):
            self.key = found.get("data-key")
            if self.key:
                self.cells[self.table, self.key] = ""
        if tag in ("script", "style"):
            self.raw = tag
            self.scripts += [""] if tag == "script" else []

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self.key = None
        if tag == self.raw:
            self.raw = ""

    def handle_data(self, data: str) -> None:
        if self.raw == "script":
            self.scripts[-1] += data
        elif not self.raw:
            self.text.append(data)
            if self.key:
                self.cells[self.table, self.key] += data


@pytest.fixture(scope="module")
def inputs() -> Tables:
    return report_inputs(corpus(n_train=6, n_test=12, n_segments=10))


@pytest.fixture(scope="module")
def kept(inputs: Tables) -> Kept:
    return built(inputs, CFG)


@pytest.fixture(scope="module")
def page(kept: Kept) -> Reader:
    return Reader(kept.documents["report.html"].decode())


def with_metrics(inputs: Tables, change: object) -> Tables:
    rows = [change(m) for m in rows_of(Metric, inputs.tables["metrics"])]  # type: ignore[operator]
    return Tables({**inputs.tables, "metrics": table_of(Metric, rows)})


def test_the_stage_writes_what_it_declares_and_reads_nothing_else(inputs: Tables, kept: Kept) -> None:
    assert set(kept.documents) == set(STAGES["report"].writes)
    assert set(inputs.asked) <= set(STAGES["report"].reads)
    assert kept.counts == (12, 12)


def test_every_cell_agrees_in_html_json_latex_and_parquet(inputs: Tables, kept: Kept, page: Reader) -> None:
    """100 % of the printed cells, from the metrics table outwards."""
    stored = {
        (m.variant, m.reference or "", m.pooling if m.horizon is None else str(m.horizon), m.metric): m
        for m in rows_of(Metric, inputs.tables["metrics"])
        if m.seed is None and m.cluster == "take"
    }
    document = json.loads(kept.documents["report.json"])
    in_json = {(f"t-{table['id']}", cell["key"]): cell for table in document["tables"] for cell in table["cells"]}
    assert set(in_json) == set(page.cells)
    assert len(in_json) > 1000
    for (table, key), text in page.cells.items():
        m, cell = stored[tuple(key.split("|"))], in_json[table, key]
        signed = m.reference is not None
        interval = f"[{number(m.low, signed)}, {number(m.high, signed)}]"
        assert text.replace("▲", "").replace("▼", "").split() == [number(m.value, signed), *interval.split()]
        assert (cell["value"], cell["low"], cell["high"], cell["text"]) == (
            m.value,
            m.low,
            m.high,
            number(m.value, signed),
        )
    for name in ("metrics.tex", "metrics_intervals.tex"):
        in_latex = latex_values(kept.documents[name].decode().split(r"\label{tab:ceilings}")[0])
        assert in_latex == [cell["text"].replace("−", "-") for table in document["tables"] for cell in table["cells"]]


def latex_values(text: str) -> list[str]:
    """All values of all tables, in reading order, without the intervals."""
    rows = [
        line for line in text.splitlines() if line.endswith(r"\\") and "Method" not in line and "scriptsize" not in line
    ]
    cells = [cell for row in rows for cell in row.removesuffix(r"\\").split("&")[2:]]
    return [found[1] for cell in cells if (found := re.search(r"\$(?:\\mathbf\{)?([-+0-9.]+)\}?\$", cell))]


def test_a_number_changed_on_its_way_to_the_page_would_be_seen(inputs: Tables, page: Reader) -> None:
    """The planted fault of the test above: one cell of the metrics table differs from the page."""
    other = built(with_metrics(inputs, lambda m: m.replace(value=m.value + 1) if m.variant == "oracle" else m), CFG)
    changed = Reader(other.documents["report.html"].decode()).cells
    differ = {key for (table, key), text in page.cells.items() if changed[table, key] != text}
    assert differ == {key for _, key in page.cells if key.startswith("oracle|")}


TRUTH = ("oracle", "previous")


def test_bold_is_the_best_row_that_does_not_see_the_truth(inputs: Tables) -> None:
    results = results_of(rows_of(Metric, inputs.tables["metrics"]), [])
    seen = 0
    for table in all_tables(results):
        for group in table.groups:
            for column, metric in enumerate(table.metrics):
                cells = [row.cells[column] for row in group.rows if row.reference is None and row.variant not in TRUTH]
                best = (min if metric == "ED" else max)([c.metric.value for c in cells], default=None)
                assert [c.is_best for c in cells] == [
                    len(cells) > 1 and c.metric.value == pytest.approx(best) for c in cells
                ]
                seen += sum(c.is_best for c in cells)
            assert not any(cell.is_best for row in group.rows if row.variant in TRUTH for cell in row.cells)
    assert seen > 50


def test_equal_inputs_give_equal_bytes(inputs: Tables, kept: Kept) -> None:
    assert built(inputs, CFG).documents == kept.documents


def test_the_page_asks_for_nothing_and_runs_one_script(kept: Kept, page: Reader) -> None:
    for tag, attributes in page.tags:
        for name, value in attributes.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("src", "href", "srcset", "action", "data"):
                assert (value or "").startswith(("#", "data:image/jpeg")), (tag, value)
    assert not {"link", "iframe", "object", "embed", "form", "base"} & {tag for tag, _ in page.tags}
    assert "url(" not in kept.documents["report.html"].decode().lower()
    policy = next(
        a["content"] for t, a in page.tags if t == "meta" and a.get("http-equiv") == "Content-Security-Policy"
    )
    digest = base64.b64encode(hashlib.sha256(page.scripts[1].encode()).digest()).decode()
    assert policy is not None
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}'" in policy
    assert len(page.scripts) == 2


XSS = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "<img src=x onerror=alert(3)>",
    "<svg onload=alert(4)>",
    '"><script>alert(5)</script>',
    "' onmouseover='alert(6)",
    "javascript:alert(7)",
    "<iframe src=javascript:alert(8)>",
    "<body onload=alert(9)>",
    "<a href='javascript:alert(10)'>x</a>",
    "</title><script>alert(11)</script>",
    "</style><script>alert(12)</script>",
    "<!--<script>alert(13)//-->",
    "{{7*7}}",
    "{% raw %}",
    "{{ config }}",
    "<math><mi//xlink:href='data:x,<script>alert(17)</script>'>",
    "<details open ontoggle=alert(18)>",
    "&lt;script&gt;alert(19)&lt;/script&gt;",
    "\u2028alert(20)",
    "<scr\x00ipt>alert(21)",
    "<object data='http://x/22'>",
    "<link rel=stylesheet href=//x/23>",
    "<meta http-equiv=refresh content=0;//x/24>",
    "<base href=//x/25>",
    "<form action=//x/26><input autofocus onfocus=alert(26)>",
    "\\input{/etc/passwd}",
    "\\write18{id}",
    "$\\catcode`\\$=0$ %{}#_^~&",
    "=cmd|'/c calc'!A1",
    "]]><script>alert(31)</script>",
)


def test_hostile_labels_and_names_stay_text() -> None:
    """30 strings as labels, take names, scenarios, reject details and candidates' labels."""
    assert len(XSS) >= 30
    tables = corpus(n_train=6, n_test=12, n_segments=10, texts=XSS)
    tables["takes"] = renamed(tables["takes"])
    inputs = report_inputs(tables)
    for name in ("ingest.rejects", "trajectories.rejects"):
        held = inputs.tables[name]
        inputs.tables[name] = replaced(held, "detail", [XSS[i] for i in range(held.num_rows)])
    checks = [Judgement(check=f"claim: {text}", verdict="fails", detail=text) for text in XSS]
    inputs.tables["judgements"] = pa.concat_tables([inputs.tables["judgements"], table_of(Judgement, checks)])
    documents = built(inputs, CFG.replace(examples=60)).documents
    hostile, plain = (
        Reader(documents["report.html"].decode()),
        Reader(
            built(
                report_inputs(corpus(n_train=6, n_test=12, n_segments=10, n_labels=len(XSS))), CFG.replace(examples=60)
            )
            .documents["report.html"]
            .decode()
        ),
    )
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in plain.tags}
    names = {(tag, name) for tag, attributes in hostile.tags for name in attributes}
    assert names == {(tag, name) for tag, attributes in plain.tags for name in attributes}
    assert len(hostile.scripts) == 2
    assert json.loads(hostile.scripts[0])
    text = "".join(hostile.text)
    assert sum(label in text for label in XSS) >= len(XSS) - 1  # the parser drops the NUL of one
    assert "{{7*7}}" in text
    for name in ("metrics.tex", "metrics_intervals.tex"):
        assert b"\\input" not in documents[name].split(b"\n", 1)[1]
        assert b"\\write" not in documents[name]


def renamed(takes: pa.Table) -> pa.Table:
    """Give every take a hostile name and scenario."""
    names = [XSS[i % len(XSS)] for i in range(takes.num_rows)]
    return replaced(replaced(takes, "name", names), "scenario", names)


def replaced(table: pa.Table, column: str, values: list[str]) -> pa.Table:
    at = table.schema.get_field_index(column)
    return table.set_column(at, table.schema.field(column), pa.array(values, table.schema.field(column).type))


def test_simulated_numbers_carry_a_banner_and_no_published_value(kept: Kept, page: Reader) -> None:
    text = "".join(page.text)
    assert "Simulated world." in text
    assert "Published" not in text
    assert "29.38" not in text
    assert b"SIMULATED WORLD" in kept.documents["metrics.tex"]


def real(inputs: Tables) -> Tables:
    """The same numbers, as if the takes were of the real corpus."""
    renamed = with_metrics(inputs, lambda m: m.replace(corpus="egoexo4d"))
    takes = inputs.tables["takes"]
    return Tables({**renamed.tables, "takes": replaced(takes, "corpus", ["egoexo4d"] * takes.num_rows)})


def test_a_real_corpus_shows_the_published_value_beside_ours(inputs: Tables) -> None:
    text = "".join(Reader(built(real(inputs), CFG).documents["report.html"].decode()).text)
    assert "Published value next to ours" in text
    assert "29.38" in text
    assert "Simulated world." not in text


def test_another_corpus_has_no_published_value(inputs: Tables) -> None:
    other = with_metrics(inputs, lambda m: m.replace(corpus="epic"))
    assert published.comparisons(results_of(rows_of(Metric, other.tables["metrics"]), []), CFG) == []


@pytest.mark.parametrize("other", [{"corpus": "egoexo4d_keystep"}, {"corpus": None}, {"is_closed": True}])
def test_another_task_on_the_same_takes_has_no_published_value(inputs: Tables, other: dict[str, object]) -> None:
    results = results_of(rows_of(Metric, real(inputs).tables["metrics"]), [])
    assert published.comparisons(results, CFG)
    assert published.comparisons(results, CFG.replace(**other)) == []


def test_the_header_names_the_corpus_whose_files_were_read(inputs: Tables) -> None:
    def title(inputs: Tables, **changes: object) -> str:
        return str(json.loads(built(inputs, CFG.replace(**changes)).documents["report.json"])["title"])

    simulated = "TrajPilot on a simulated world in the file layout of"
    assert title(inputs, corpus="goalstep") == f"{simulated} Ego4D GoalStep"
    assert title(inputs) == f"{simulated} Ego-Exo4D, atomic descriptions"
    assert title(real(inputs), is_closed=True) == "TrajPilot on Ego-Exo4D, atomic descriptions, closed vocabulary"


def test_the_published_table_is_whole_and_marks_values_outside_our_interval(inputs: Tables) -> None:
    values = published.published_values()
    assert len(values) == 6 * 3 * 6
    assert values[3, "no_traj", "M@1"] == values[3, "no_traj", "MSeq"] == 29.38
    rows = published.comparisons(results_of(rows_of(Metric, real(inputs).tables["metrics"]), []), CFG)
    assert len(rows) == len(values)
    assert {row.is_outside for row in rows} == {True, False}


def test_an_undertrained_model_marks_every_row_that_rests_on_it(inputs: Tables) -> None:
    judgements = [
        row.replace(verdict="undertrained") if row.check == "trained: final/traj, seed 0" else row
        for row in rows_of(Judgement, inputs.tables["judgements"])
    ]
    weak = results_of(rows_of(Metric, inputs.tables["metrics"]), judgements).undertrained
    scorers = {"scorer", "scorer_plus", "scorer_permuted", "scorer_no_labels", "scorer_no_motion"}
    assert weak == {"oracle", "top1", "pool_mean", "shuffled"} | scorers
    documents = built(Tables({**inputs.tables, "judgements": table_of(Judgement, judgements)}), CFG).documents
    assert documents["report.html"].count(b"UNDERTRAINED") > 20
    assert b"undertrained" in documents["metrics.tex"]


def test_every_claim_that_does_not_hold_is_printed_among_the_limits(inputs: Tables, kept: Kept) -> None:
    limits = " ".join(json.loads(kept.documents["report.json"])["limits"])
    judgements = rows_of(Judgement, inputs.tables["judgements"])
    lost = [j for j in judgements if j.check.startswith(("claim: ", "demo: ")) and j.verdict != "holds"]
    assert lost
    for judgement in lost:
        assert judgement.check.split(": ", 1)[1][1:] in limits
    assert "12 test takes" in limits
    assert "One seed" in limits


def test_every_check_has_a_place_on_the_page(inputs: Tables, page: Reader) -> None:
    text = "".join(page.text)
    for judgement in rows_of(Judgement, inputs.tables["judgements"]):
        assert judgement.check.split(":")[0] in GROUPS
        assert judgement.check.split(": ", 1)[1] in text


def test_every_reject_is_shown_with_meaning_action_and_counts(page: Reader) -> None:
    text = "".join(page.text)
    for wanted in (
        "TRAJ_GAP",
        "tracking was lost for longer than the limit",
        "no pose for 0.31 s",
        "TS_REORDERED",
        "UNSURE",
    ):
        assert wanted in text


def test_one_take_and_no_interval_still_make_a_report(inputs: Tables) -> None:
    alone = with_metrics(inputs, lambda m: m.replace(low=-np.inf, high=np.inf, n_takes=1))
    documents = built(alone, CFG).documents
    assert json.loads(documents["report.json"])["metrics"][0]["low"] is None
    assert "[−inf" not in documents["report.html"].decode()
    assert "inf]" not in documents["report.html"].decode()
    cells = Reader(documents["report.html"].decode()).cells
    assert all(text.endswith(" too few takes") for text in cells.values())
    assert b"too few takes" in documents["metrics_intervals.tex"]
    assert b"Infinity" not in documents["report.json"]


def test_what_was_not_built_stands_below_the_main_table(page: Reader) -> None:
    text = "".join(page.text)
    assert "not built: the closed-vocabulary planners" in text
    assert text.index("All rows over all horizons") < text.index("not built") < text.index("Difference to No-Traj,")


def test_an_undecided_claim_is_neither_green_nor_red(inputs: Tables) -> None:
    open_ = [Judgement(check="claim: x", verdict="undecided", detail="d")]
    html = built(Tables({**inputs.tables, "judgements": table_of(Judgement, open_)}), CFG).documents["report.html"]
    assert b'<li class="v-undecided">' in html
    assert b'<li class="open"><b>0 of 1</b>' in html


def test_a_window_that_three_stages_miss_is_lost_once(inputs: Tables) -> None:
    def lost(stage_name: str, windows: tuple[str, ...]) -> pa.Table:
        code = RejectCode.WINDOW_INCOMPLETE
        rows = [reject(stage_name, code, "egoexo4d:take00001", f"window {w}: no feature for s") for w in windows]
        return table_of(Reject, rows)

    held = {"predictor": lost("predictor", ("t:h3:0000", "t:h3:0001")), "scorer": lost("scorer", ("t:h3:0001",))}
    held["evaluation"] = lost("evaluation", ("t:h3:0001", "t:h4:0000"))
    assert health.lost_units(held) == {"predictor": 2, "scorer": 0, "evaluation": 1}
    kept = {stage: t for stage, t in inputs.tables.items() if stage.endswith(".rejects")}
    assert sum(health.lost_units(kept).values()) == sum(sum(t["n_units"].to_pylist()) for t in kept.values())


def test_a_stage_says_itself_what_the_report_counts_of_it(inputs: Tables) -> None:
    toy = replace(STAGES["features"], name="toy", writes=("toys",), output=Output("toys", "toys", ("split",)))
    more = {"toys": inputs.tables["segments"], "toy.rejects": inputs.tables["trajectories.rejects"]}
    stage, kept = report_on((*REPORTED, toy)), Kept()
    assert {"toys", "toy.rejects"} <= set(stage.reads)
    held = Tables({**inputs.tables, **more})
    stage.run(Work(held, CFG, (), kept, Runtime("/nowhere", "cpu", 1, Path("unused"))))
    n, lost = more["toys"].num_rows, more["toy.rejects"].num_rows
    cells = "".join(f'<td class="num">{count}</td>' for count in (n + lost, lost, n))
    assert f'<tr><th scope="row">toy</th><td>toys</td>{cells}' in kept.documents["report.html"].decode()


def test_rows_that_were_not_built_leave_no_hole(inputs: Tables) -> None:
    rows = [m for m in rows_of(Metric, inputs.tables["metrics"]) if m.variant in ("no_traj", "oracle")]
    none = {name: inputs.tables[name].slice(0, 0) for name in ("gate", "headroom", "shuffles", "outcomes")}
    documents = built(Tables({**inputs.tables, **none, "metrics": table_of(Metric, rows)}), CFG).documents
    assert b"nothing to draw" in documents["report.html"]


def test_every_chart_tells_its_numbers_in_words(inputs: Tables) -> None:
    results = results_of(rows_of(Metric, inputs.tables["metrics"]), [])
    drawn = report_charts(Material(results, [], [], [], []))
    for figure in (*drawn["horizon"], *drawn["summary"], *drawn["controls"]):
        assert 'role="img" aria-label="' in figure.chart
        assert "Oracle: 3: " in figure.chart


def test_every_picture_has_a_text(page: Reader) -> None:
    assert all(attributes.get("alt") for tag, attributes in page.tags if tag == "img")
    assert all(a.get("aria-label") or a.get("aria-hidden") for tag, a in page.tags if tag == "svg")
