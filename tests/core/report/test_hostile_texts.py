"""Texts of the data stay text, and the page runs nobody else's script."""

import base64
import hashlib
import json

import pyarrow as pa
from report_page import CFG, Reader, replaced
from synthetic_corpus import corpus
from synthetic_results import Kept, built, report_inputs

from schemas.arrow import table_of
from schemas.results import Judgement


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
    harmless = report_inputs(corpus(n_train=6, n_test=12, n_segments=10, n_labels=len(XSS)))
    for tables_of, texts in ((inputs.tables, XSS), (harmless.tables, ["plain"])):
        checks = [Judgement(check=f"demo: {text}", verdict="fails", detail=text) for text in texts]
        tables_of["judgements"] = pa.concat_tables([tables_of["judgements"], table_of(Judgement, checks)])
    documents = built(inputs, CFG.replace(examples=60)).documents
    pages = (documents, built(harmless, CFG.replace(examples=60)).documents)
    hostile, plain = (Reader(page["report.html"].decode()) for page in pages)
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in plain.tags}
    names = {(tag, name) for tag, attributes in hostile.tags for name in attributes}
    assert names == {(tag, name) for tag, attributes in plain.tags for name in attributes}
    assert len(hostile.scripts) == 2
    assert json.loads(hostile.scripts[0])
    text = "".join(hostile.text)
    assert sum(label in text for label in XSS) >= len(XSS) - 1  # the parser drops the NUL of one
    assert "{{7*7}}" in text
    assert b"\\input" not in documents["metrics.tex"].split(b"\n", 1)[1]
    assert b"\\write" not in documents["metrics.tex"]


def renamed(takes: pa.Table) -> pa.Table:
    """Give every take a hostile name and scenario."""
    names = [XSS[i % len(XSS)] for i in range(takes.num_rows)]
    return replaced(replaced(takes, "name", names), "scenario", names)
