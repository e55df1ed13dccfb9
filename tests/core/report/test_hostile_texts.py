"""Texts of the data stay text, the page runs one script, and that finds every row and every number."""

import base64
import hashlib
import json
from importlib import resources

import pyarrow as pa
from hostile import TEXTS
from report_page import CFG, Reader, of_three_rows, replaced
from synthetic_corpus import corpus
from synthetic_results import Kept, built, report_inputs

from schemas.arrow import table_of
from schemas.results import Judgement
from trajpilot_core.methods import METHODS
from trajpilot_core.report.tables.table import row_name


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
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert f"script-src 'sha256-{digest}'" in policy
    assert len(page.scripts) == 2


XSS = (*TEXTS, "{{ config }}", "\u2028alert(20)", "<scr\x00ipt>alert(21)", "<base href=//x/25>")


def test_hostile_labels_and_names_stay_text(page: Reader) -> None:
    """30 strings as labels, take names, scenarios, reject details and candidates' labels."""
    assert len(XSS) >= 30
    tables = corpus(n_train=6, n_test=12, n_segments=10, texts=XSS)
    names = [XSS[i % len(XSS)] for i in range(tables["takes"].num_rows)]
    tables["takes"] = replaced(replaced(tables["takes"], "name", names), "scenario", names)
    inputs = report_inputs(tables, draws=100)
    for name in ("ingest.rejects", "trajectories.rejects"):
        held = inputs.tables[name]
        inputs.tables[name] = replaced(held, "detail", [XSS[i] for i in range(held.num_rows)])
    checks = [Judgement(check=f"demo: {text}", verdict="fails", detail=text) for text in XSS]
    inputs.tables["judgements"] = pa.concat_tables([inputs.tables["judgements"], table_of(Judgement, checks)])
    documents = built(of_three_rows(inputs), CFG.replace(examples=60)).documents
    hostile = Reader(documents["report.html"].decode())
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in page.tags}
    names, plain = ({(tag, name) for tag, own in one.tags for name in own} for one in (hostile, page))
    assert names - plain == {("details", "open")}, "a failed check is unfolded"
    assert len(hostile.scripts) == 2
    assert json.loads(hostile.scripts[0])
    text = "".join(hostile.text)
    assert sum(label in text for label in XSS) >= len(XSS) - 1  # the parser drops the NUL of one
    assert "{{7*7}}" in text
    assert b"\\input" not in documents["metrics.tex"].split(b"\n", 1)[1]
    assert b"\\write" not in documents["metrics.tex"]


# What the script switches and sorts by (in a browser: docs, the report).


def test_every_row_of_the_run_can_be_switched_and_is_found_by_its_id(kept: Kept, page: Reader) -> None:
    offered = [(a["data-of"], a["data-name"]) for tag, a in page.tags if tag == "div" and "data-of" in a]
    assert [name for _, name in offered] == [row_name(str(id_)) for id_, _ in offered]
    shown = {a["data-row"] for tag, a in page.tags if tag == "tr" and "data-row" in a}
    assert {id_ for id_, _ in offered} == shown, "a row that cannot be switched, or a switch without a row"
    assert shown <= {one.id for one in METHODS}
    legends = {a["data-row"] for tag, a in page.tags if tag == "li" and "data-row" in a}
    assert {"oracle", "scorer", "pool_mean"} <= legends <= shown


def test_what_is_sorted_by_is_the_number_behind_the_cell(kept: Kept, page: Reader) -> None:
    tables = json.loads(kept.documents["report.json"])["tables"]
    known = {cell["key"]: cell["value"] for table in tables for cell in table["cells"]}
    cells = [a for tag, a in page.tags if tag == "td" and "data-key" in a]
    assert len(cells) > 1000
    assert all(float(str(a["data-value"])) == known[str(a["data-key"])] for a in cells)
    heads = {a["data-metric"] for tag, a in page.tags if tag == "th" and "data-metric" in a}
    assert heads == {str(a["data-key"]).rsplit("|", 1)[1] for a in cells}


def test_the_page_offers_nothing_to_click_without_the_script(page: Reader) -> None:
    assert not {"button", "input", "label"} & {tag for tag, _ in page.tags}
    script = resources.files("trajpilot_core.report").joinpath("templates/report.js").read_text()
    for hook in ("data-of", "[data-row=", "data-metric", "dataset.key", "dataset.value"):
        assert hook in script
